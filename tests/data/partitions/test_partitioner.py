"""What holds for every partition."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bristle.data import Dataset, Partition, partitions

LISTS = [[0, 1], [2], [3, 4, 0], [1], [4, 2]]
OPTIONS: dict[str, dict[str, Any]] = {
    "iid": {},
    "consecutive": {"classes_per_peer": 3},
    "shards": {},
    "dirichlet": {"alpha": 0.5},
    "classes": {"lists": LISTS},
    "natural": {},
    "indices": {"lists": [range(200 * peer, 200 * (peer + 1)) for peer in range(5)]},
}


def world(seed: int, *, size: int = 1_000) -> Dataset:
    """Five classes of different sizes, five users."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(5, p=[0.3, 0.25, 0.2, 0.15, 0.1], size=size)
    labels[:5] = range(5)
    samples = np.arange(size)[:, None]
    return Dataset(samples, labels, samples[:1], labels[:1], user=rng.permutation(np.arange(size) % 5), name="toy")


def check(partition: Partition) -> None:
    train, held_out = partition.train.flat.tolist(), partition.held_out.flat.tolist()
    assert not set(train) & set(held_out)
    if not partition.reused:
        assert len(set(train + held_out)) == len(train) + len(held_out)
    for peer in range(partition.peers):
        assert len(set(partition.train[peer].tolist())) == len(partition.train[peer]) > 0


def test_every_name_is_tried_here() -> None:
    assert set(OPTIONS) == set(partitions.names())


@settings(deadline=None)
@given(
    name=st.sampled_from(sorted(OPTIONS)),
    samples=st.none() | st.integers(1, 5),
    held_out=st.integers(0, 10),
    seed=st.integers(0, 2**32),
)
def test_training_and_held_out_samples_never_meet(name: str, samples: int | None, held_out: int, seed: int) -> None:
    data = world(seed)
    partitioner = partitions.create(name, samples=samples, held_out=held_out, **OPTIONS[name])
    partition = partitioner(data, peers=5, seed=seed)
    check(partition)
    assert partition.peers == 5
    assert partition.classes == data.classes
    assert not partition.reused
    if samples is not None and name != "dirichlet":
        assert partition.train_counts().max() <= samples
    assert partition.held_out_counts().max() <= held_out
    # Nobody tests a class that it does not train, and hence knows nothing about.
    assert ((partition.held_out_counts() > 0) <= (partition.train_counts() > 0)).all()
    again = partitioner(data, peers=5, seed=seed)
    np.testing.assert_array_equal(again.train.flat, partition.train.flat)
    np.testing.assert_array_equal(again.held_out.flat, partition.held_out.flat)


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_another_seed_gives_other_samples(name: str) -> None:
    partitioner = partitions.create(name, samples=2, **OPTIONS[name])
    rows = {tuple(partitioner(world(0), peers=5, seed=seed).train[0].tolist()) for seed in range(4)}
    assert len(rows) == 4


@pytest.mark.parametrize("name", ["iid", "classes", "natural", "indices"])
def test_without_a_number_of_samples_all_are_shared_out(name: str) -> None:
    data = world(3)
    partition = partitions.create(name, **OPTIONS[name])(data, peers=5)
    dealt = np.concatenate([partition.train.flat, partition.held_out.flat])
    np.testing.assert_array_equal(np.sort(dealt), np.arange(len(data.y_train)))


@settings(deadline=None)
@given(
    name=st.sampled_from(["iid", "consecutive", "dirichlet", "shards"]),
    peers=st.integers(60, 200),
    seed=st.integers(0, 99),
)
def test_reuse_serves_any_number_of_peers(name: str, peers: int, seed: int) -> None:
    options = OPTIONS[name] | ({"shard_size": 20} if name == "shards" else {"samples": 3})
    with pytest.raises(ValueError, match="reuse=True"):
        partitions.create(name, **options)(world(seed, size=400), peers=peers, seed=seed)
    partition = partitions.create(name, reuse=True, **options)(world(seed, size=400), peers=peers, seed=seed)
    check(partition)
    assert partition.reused
    assert partition.table().endswith("some samples belong to several peers")


@pytest.mark.parametrize("name", ["iid", "consecutive", "dirichlet", "shards"])
def test_a_hundred_thousand_peers(name: str) -> None:
    options = OPTIONS[name] | ({"shard_size": 24} if name == "shards" else {"samples": 2})
    labels = np.arange(20_000) % 10
    partition = partitions.create(name, reuse=True, **options)(labels, peers=100_000, seed=1)
    batch = partition.padded()
    assert len(batch.train) == len(batch.held_out) == 100_000
    assert (batch.train >= 0).any(axis=1).all()
    in_training, in_held_out = np.zeros((2, len(labels)), dtype=bool)
    in_training[partition.train.flat] = True
    in_held_out[partition.held_out.flat] = True
    assert not (in_training & in_held_out).any()


def test_too_many_peers_for_the_samples() -> None:
    with pytest.raises(ValueError, match=r"toy: .* of 2,000 peers .* would get no training samples: .* reuse=True"):
        partitions.create("iid")(world(0), peers=2_000)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 0}, "samples=0: give at least 1 per class and peer, or None"),
        ({"held_out": -1}, "held_out=-1: give 0 or more"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        partitions.create("iid", **options)


def test_bad_numbers_of_peers() -> None:
    with pytest.raises(ValueError, match="peers=0: give at least one peer"):
        partitions.create("iid")(world(0), peers=0)
    with pytest.raises(ValueError, match=r"IID needs a number of peers, e\.g\. peers=10"):
        partitions.create("iid")(world(0))


def test_bad_labels() -> None:
    with pytest.raises(ValueError, match="labels holds the negative label -1"):
        partitions.create("iid")([0, -1], peers=1)
    with pytest.raises(ValueError, match="labels are empty"):
        partitions.create("iid")([], peers=1)


def test_the_error_names_the_class_and_the_remedy() -> None:
    with pytest.raises(ValueError, match="labels: class '1' has 20 samples, but its 2 peers need 4 to train on and 20"):
        partitions.create("iid", samples=2)([0] * 50 + [1] * 20, peers=2)
    with pytest.raises(ValueError, match="class '1' has 9 samples, but one peer alone needs 2 to train on and 10 held"):
        partitions.create("iid", samples=2, reuse=True)([0] * 50 + [1] * 9, peers=2)
