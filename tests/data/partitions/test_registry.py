import pytest

from bristle.data import partitions


def test_names() -> None:
    assert partitions.names() == ("iid", "consecutive", "shards", "dirichlet", "classes", "natural", "indices")


def test_options_reach_the_partition() -> None:
    assert partitions.create("dirichlet", alpha=0.1, samples=3) == partitions.Dirichlet(alpha=0.1, samples=3)
    assert partitions.create("iid") != partitions.create("iid", held_out=9)


def test_unknown_name() -> None:
    with pytest.raises(ValueError, match="there is no partition 'random'; there are: iid, consecutive, shards"):
        partitions.create("random")


def test_unknown_option() -> None:
    with pytest.raises(ValueError, match="partition 'iid' has no option 'alpha'; it takes samples, held_out, reuse"):
        partitions.create("iid", alpha=1)


def test_missing_option() -> None:
    with pytest.raises(ValueError, match="partition 'classes' needs the option 'lists'"):
        partitions.create("classes")
