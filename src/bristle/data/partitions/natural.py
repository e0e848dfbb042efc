"""Natural: every sample stays with the user who made it."""

from dataclasses import dataclass

import numpy as np

from bristle.data.partitions.allocation import Cells, Pools
from bristle.data.partitions.partitioner import Partitioner, Source, hold_out_of


@dataclass(frozen=True, kw_only=True)
class Natural(Partitioner):
    """Peer i has the samples of user i, in the order of their names; needs a dataset with a `user` column.

    With fewer peers than users the users are drawn. `samples` is the most training samples per class that a
    peer keeps.
    """

    def count_peers(self, source: Source, peers: int | None) -> int:
        """As many as there are users, unless fewer are asked for."""
        if source.user is None:
            raise ValueError(
                f"{source.name}: no user column, which natural needs: give user=, or use another partition"
            )
        users = len(np.unique(source.user))
        if peers is not None and peers > users:
            raise ValueError(f"{source.name}: peers={peers}, but there are {users} users: ask for at most {users}")
        return users if peers is None else peers

    def demand(self, source: Source, peers: int, rng: np.random.Generator) -> tuple[Pools, Cells]:
        """Say how many samples each peer gets, from which pools."""
        classes = len(source.classes)
        names, user = np.unique(np.asarray(source.user), return_inverse=True)
        pair, pool, sizes = np.unique(user * classes + source.labels, return_inverse=True, return_counts=True)
        chosen = np.sort(rng.permutation(len(names))[:peers]) if peers < len(names) else np.arange(len(names))
        peer_of_user = np.full(len(names), -1)
        peer_of_user[chosen] = np.arange(peers)
        peer = peer_of_user[pair // classes]
        kept = np.flatnonzero(peer >= 0)
        train, held = hold_out_of(sizes[kept], held_out=self.held_out, samples=self.samples)
        pools = Pools(pool, len(pair), lambda at: f"{source.name}: user {names[pair[at] // classes]}")
        return pools, Cells(peer[kept], kept, train, held)
