import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bristle.data import Dataset, partitions


def make(users: list[str], *, seed: int = 0) -> Dataset:
    labels = np.random.default_rng(seed).integers(0, 3, len(users))
    labels[:2] = [0, 1]
    samples = np.arange(len(users))[:, None]
    return Dataset(samples, labels, samples, labels, user=np.array(users), name="diary")


@given(
    users=st.lists(st.sampled_from(["ann", "bob", "eve", "joe"]), min_size=2, max_size=80),
    held_out=st.integers(0, 12),
    samples=st.none() | st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_samples_stay_with_their_users(users: list[str], held_out: int, samples: int | None, seed: int) -> None:
    data = make(users, seed=seed)
    partition = partitions.create("natural", held_out=held_out, samples=samples)(data, seed=seed)
    assert data.user is not None
    names = sorted(set(users))
    assert partition.peers == len(names)
    for peer, name in enumerate(names):
        own = np.flatnonzero(data.user == name)
        assert set(partition.train[peer].tolist()) | set(partition.held_out[peer].tolist()) <= set(own.tolist())
        have = np.bincount(data.y_train[own], minlength=len(data.classes))
        held = np.minimum(held_out, have // 2)
        np.testing.assert_array_equal(partition.held_out_counts()[peer], held)
        train = have - held if samples is None else np.minimum(samples, have - held)
        np.testing.assert_array_equal(partition.train_counts()[peer], train)


def test_some_of_the_users_are_drawn() -> None:
    users = [f"user {at % 20:02}" for at in range(400)]
    data = make(users)
    drawn = set()
    for seed in range(5):
        partition = partitions.create("natural")(data, peers=4, seed=seed)
        rows = [{users[at] for at in partition.train[peer]} for peer in range(4)]
        assert all(len(row) == 1 for row in rows)
        names = [row.pop() for row in rows]
        assert names == sorted(set(names))
        drawn.add(tuple(names))
    assert len(drawn) > 1


def test_bad_users() -> None:
    with pytest.raises(ValueError, match="diary: peers=3, but there are 2 users: ask for at most 2"):
        partitions.create("natural")(make(["ann", "bob"]), peers=3)
    with pytest.raises(ValueError, match="labels: no user column, which natural needs: give user="):
        partitions.create("natural")([0, 1], peers=1)
