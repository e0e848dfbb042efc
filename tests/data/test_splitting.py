import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bristle.data.dataset import stratified_split


@given(
    labels=st.lists(st.integers(0, 5), min_size=1, max_size=80),
    test_share=st.floats(0, 0.99),
    seed=st.integers(0, 2**32),
)
def test_split_takes_the_share_of_every_class(labels: list[int], test_share: float, seed: int) -> None:
    y = np.array(labels)
    train, test = stratified_split(y, test_share=test_share, seed=seed)
    assert sorted([*train, *test]) == list(range(len(y)))
    assert (np.diff(train) > 0).all()
    assert (np.diff(test) > 0).all()
    for number in np.unique(y):
        total, chosen = int((y == number).sum()), int((y[test] == number).sum())
        wanted = round(test_share * total) if test_share == 0 else max(1, round(test_share * total))
        assert chosen == min(wanted, total - 1)
    again = stratified_split(y, test_share=test_share, seed=seed)
    np.testing.assert_array_equal(again[1], test)


def test_another_seed_gives_another_split() -> None:
    y = np.repeat([0, 1], 100)
    splits = [tuple(stratified_split(y, test_share=0.5, seed=seed)[1]) for seed in range(3)]
    assert len(set(splits)) == 3


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_share_must_be_a_share(share: float) -> None:
    with pytest.raises(ValueError, match=r"test_share=.*: give a number"):
        stratified_split(np.array([0, 1]), test_share=share, seed=0)
