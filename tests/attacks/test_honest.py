import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bristle.attacks.statistics import Honest


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.6, 1.0]))
def test_statistics_are_those_of_the_heads_that_are_there(seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    heads, present = rng.normal(size=(3, 5, 4)), rng.random((3, 5)) < share
    present[:, 0] = True
    honest = Honest(np.where(present[:, :, None], heads, 0), present)
    smallest, largest = honest.extremes()
    point = rng.normal(size=(3, 4))
    offsets = honest.about(point)
    assert (offsets[~present] == 0).all()
    for i in range(3):
        there = heads[i, present[i]]
        assert honest.count[i] == len(there)
        np.testing.assert_allclose(honest.mean[i], there.mean(axis=0), atol=1e-12)
        np.testing.assert_allclose(honest.deviation[i], there.std(axis=0), atol=1e-12)
        np.testing.assert_array_equal(smallest[i], there.min(axis=0))
        np.testing.assert_array_equal(largest[i], there.max(axis=0))
        np.testing.assert_array_equal(offsets[i, present[i]], there - point[i])


def test_one_more_head_counts_as_much_as_each() -> None:
    present = np.array([[True, True, False], [False, False, False]])
    heads = np.where(present[:, :, None], np.arange(24.0).reshape(2, 3, 4), 0)
    with_one = Honest(heads, present).mean_with(np.ones((2, 4)))
    assert np.allclose(with_one[0], (heads[0, 0] + heads[0, 1] + 1) / 3)
    assert np.allclose(with_one[1], 1)


def test_no_heads_have_a_mean_of_zero() -> None:
    honest = Honest(np.zeros((2, 3, 4)), np.zeros((2, 3), dtype=bool))
    assert (honest.mean == 0).all()
    assert (honest.deviation == 0).all()
