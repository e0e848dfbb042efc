"""Dirichlet: mixtures of classes, from nearly one class a peer to nearly i.i.d."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bristle.data.partitions.allocation import Cells, Pools
from bristle.data.partitions.partitioner import ReusingPartitioner, Source, hold_out_of
from bristle.data.partitions.ragged import Indices


@dataclass(frozen=True, kw_only=True)
class Dirichlet(ReusingPartitioner):
    """q_i ~ Dirichlet(alpha, .., alpha): peer i has the classes in the proportions q_i.

    With `samples=n` every peer has n * C training samples (C classes), divided by q_i, and `held_out` samples
    of each class that it trains. With `samples=None` all samples of class c are shared out, to peer i the
    part q_ic / sum_j q_jc, so that peers differ in size as well. Numbers are rounded so that they sum up
    exactly (largest remainder).

    Parameters
    ----------
    alpha
        Concentration: 0.1 is strongly uneven, 100 nearly i.i.d.

    References
    ----------
    Hsu, Qi, Brown: Measuring the Effects of Non-Identical Data Distribution for Federated Visual
    Classification. 2019.
    """

    alpha: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.alpha < np.inf:
            raise ValueError(f"alpha={self.alpha}: give a positive number, e.g. 0.5")

    def demand(self, source: Source, peers: int, rng: np.random.Generator) -> tuple[Pools, Cells]:
        """Say how many samples each peer gets, from which pools."""
        pools = source.class_pools()
        sizes = pools.sizes()
        present = np.flatnonzero(sizes)
        mixture = rng.dirichlet(np.full(len(present), self.alpha), size=peers)
        if self.samples is None:
            mixture += np.finfo(np.float64).tiny  # a small alpha rounds a class to 0 for every peer: share it evenly
            parts = mixture / mixture.sum(axis=0)
            share = np.stack([_round(part, total) for part, total in zip(parts.T, sizes[present], strict=True)], axis=1)
            peer, column = np.nonzero(share)
            train, held = hold_out_of(share[peer, column], held_out=self.held_out, samples=None)
        else:
            share = _round(mixture, self.samples * len(sizes))
            peer, column = np.nonzero(share)
            train = share[peer, column]
            held = np.full_like(train, self.held_out)
        return pools, Cells(peer, present[column], train, held)


def _round(parts: npt.NDArray[np.float64], total: int) -> Indices:
    """Integers in these proportions along the last axis, with this sum; ties go to the first."""
    exact = parts * total
    whole = np.floor(exact).astype(np.int64)
    missing = total - whole.sum(axis=-1)
    order = np.argsort(whole - exact, axis=-1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.broadcast_to(np.arange(parts.shape[-1]), parts.shape), axis=-1)
    rounded: Indices = whole + (rank < missing[..., None])
    return rounded
