"""Ways to share out training samples to peers, each seeded, each able to print who holds what.

>>> from bristle.data import mnist, partitions
>>> partition = partitions.create("consecutive", classes_per_peer=4, samples=2)(mnist(), peers=10, seed=0)
>>> print(partition.table())  # doctest: +SKIP
>>> partition.padded().train.shape
(10, 8)
"""

from dataclasses import MISSING, fields
from typing import Any

from bristle.data.partitions.allocation import Ragged
from bristle.data.partitions.base import PaddedIndices, Partition, Partitioner
from bristle.data.partitions.schemes import IID, Classes, Consecutive, Dirichlet, Natural, Shards

__all__ = [
    "IID",
    "Classes",
    "Consecutive",
    "Dirichlet",
    "Natural",
    "PaddedIndices",
    "Partition",
    "Partitioner",
    "Ragged",
    "Shards",
    "create",
    "names",
]

_BY_NAME: dict[str, type[Partitioner]] = {
    "iid": IID,
    "consecutive": Consecutive,
    "shards": Shards,
    "dirichlet": Dirichlet,
    "classes": Classes,
    "natural": Natural,
}


def names() -> tuple[str, ...]:
    """Names that `create` knows."""
    return tuple(_BY_NAME)


def create(name: str, **options: Any) -> Partitioner:
    """Make a partitioner by name, with its options, e.g. `create("dirichlet", alpha=0.1, samples=2)`."""
    if name not in _BY_NAME:
        raise ValueError(f"no partition is called {name!r}: use one of {', '.join(_BY_NAME)}")
    kind = _BY_NAME[name]
    known = {field.name: field.default is MISSING for field in fields(kind)}
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ValueError(f"partition {name!r} has no option {unknown[0]!r}: its options are {', '.join(known)}")
    missing = [option for option, required in known.items() if required and option not in options]
    if missing:
        raise ValueError(f"partition {name!r} needs the option {missing[0]!r}")
    return kind(**options)
