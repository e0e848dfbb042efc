"""Accuracy of every user on its own test samples."""

from __future__ import annotations

import numpy as np

from bristle._core import to_numpy
from bristle.simulation.world import World


def accuracy_per_user(world: World) -> dict[str, float | None] | None:
    """Return, by user, the accuracy of its peer on the user's own test samples; None for a user without any.

    None instead of all if users are not known, or if peers and users do not correspond one to one.
    """
    data = world.data
    if data.user is None or data.test_user is None:
        return None
    index = to_numpy(world.held.index)
    owners = [np.unique(data.user[rows[rows >= 0]]) for rows in index]
    if any(len(owner) != 1 for owner in owners) or len({str(owner[0]) for owner in owners}) < len(owners):
        return None
    heads, test = (to_numpy(values) for values in world.scoring)
    labels, found = to_numpy(data.test_labels), dict[str, float | None]()
    for head, owner in zip(heads, owners, strict=True):
        rows = np.flatnonzero(data.test_user == owner[0])
        right = (test[rows] @ head.T).argmax(axis=1) == labels[rows]
        found[str(owner[0])] = float(right.mean()) if len(rows) else None
    return found
