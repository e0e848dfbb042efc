import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bristle.data import partitions


@given(
    sizes=st.lists(st.integers(0, 60), min_size=2, max_size=6).filter(lambda sizes: sum(sizes) >= 60),
    peers=st.integers(1, 12),
    per_peer=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_shards_are_equal_and_use_everything(sizes: list[int], peers: int, per_peer: int, seed: int) -> None:
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    partition = partitions.create("shards", shards_per_peer=per_peer)(labels, peers=peers, seed=seed)
    train, held_out = partition.train_counts(), partition.held_out_counts()
    share = train + held_out
    np.testing.assert_array_equal(held_out, np.minimum(10, share // 2))
    assert share.sum() == len(labels)
    size, rest = divmod(len(labels), peers * per_peer)
    assert (share.sum(axis=1) >= size * per_peer).all()
    assert (share.sum(axis=1) <= (size + (rest > 0)) * per_peer).all()


def test_a_peer_has_few_classes() -> None:
    labels = np.arange(60_000) % 10
    partition = partitions.create("shards")(labels, peers=100)
    assert (partition.train_counts() > 0).sum(axis=1).max() == 2
    assert (partition.train.lengths + partition.held_out.lengths == 600).all()


def test_samples_are_a_most() -> None:
    partition = partitions.create("shards", samples=3)(np.arange(1_000) % 10, peers=5)
    held = partition.train_counts()
    assert set(np.unique(held)) == {0, 3}


def test_size_of_a_shard() -> None:
    partition = partitions.create("shards", shard_size=10, held_out=0)(np.arange(1_000) % 10, peers=50)
    assert partition.train.lengths.tolist() == [20] * 50
    assert not partition.reused


def test_bad_shards() -> None:
    labels = np.arange(100) % 10
    with pytest.raises(
        ValueError, match="labels: 100 samples make 100 shards, but 60 peers with 2 each need 120: lower"
    ):
        partitions.create("shards")(labels, peers=60)
    with pytest.raises(ValueError, match=r"100 samples make 10 shards, but 6 peers .* shard_size and reuse=True"):
        partitions.create("shards", shard_size=10)(labels, peers=6)
    with pytest.raises(ValueError, match="100 samples make 0 shards"):
        partitions.create("shards", shard_size=101, reuse=True)(labels, peers=6)
    with pytest.raises(ValueError, match="shards_per_peer=0: give at least 1"):
        partitions.create("shards", shards_per_peer=0)
    with pytest.raises(ValueError, match="shard_size=0: give at least 1, or None"):
        partitions.create("shards", shard_size=0)
