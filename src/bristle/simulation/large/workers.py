"""Several workers that hold one world together: each has a range of the nodes, and copies of the heads these hear.

The engine is torch.distributed: start the same program once for each worker, with `torchrun --nproc-per-node 2 ...`,
and call `Workers.join()` in it.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bristle._core import Array
from bristle.simulation.large.shared_memory import open_shared, shared_zeros
from bristle.simulation.topology import Integers

LOG = logging.getLogger("bristle.simulation")


@dataclass(frozen=True)
class Workers:
    """One of `size` workers, the one of number `rank`. The only one by default.

    Parameters
    ----------
    rank, size : int
    direct : bool
        Whether their devices send to each other directly (NCCL).
    together : bool
        Whether all are processes of one machine, so that they can read each other's memory. Without either, what they
        send goes through the processor's memory (gloo).
    """

    rank: int = 0
    size: int = 1
    direct: bool = False
    together: bool = False

    @classmethod
    def join(cls) -> Workers:
        """Join the other workers, as the environment that torchrun sets says; alone where there is none.

        They talk by NCCL where every worker of the machine has a CUDA device of its own, and by gloo elsewhere. Without
        NCCL they read each other's memory where LOCAL_WORLD_SIZE says that all are on this machine.
        """
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size == 1:
            return cls()
        import torch  # noqa: PLC0415
        from torch import distributed  # noqa: PLC0415

        devices = torch.cuda.device_count() if distributed.is_nccl_available() else 0
        here = os.environ.get("LOCAL_WORLD_SIZE")
        backend = backend_of(devices, here=int(here or size))
        if not distributed.is_initialized():
            distributed.init_process_group(backend)
        together = here is not None and int(here) == size
        return cls(distributed.get_rank(), distributed.get_world_size(), "nccl" in backend, together)

    def share_of(self, count: int, rank: int | None = None) -> range:
        """Return which of `count` things belong to a worker (this one by default)."""
        rank = self.rank if rank is None else rank
        return range(count * rank // self.size, count * (rank + 1) // self.size)

    def add(self, values: Array) -> Array:
        """Return the sum of all workers' values."""
        if self.size == 1:
            return values
        from torch import distributed  # noqa: PLC0415

        total = values.clone() if self.direct else values.cpu()
        distributed.all_reduce(total)
        return total.to(values.device)

    def gather(self, message: str) -> list[str]:
        """Return every worker's message."""
        import torch  # noqa: PLC0415

        data = message.encode()
        lengths = torch.zeros(self.size, dtype=torch.int64)
        lengths[self.rank] = len(data)
        lengths = self.add(lengths)
        rows = torch.zeros((self.size, int(lengths.max())), dtype=torch.uint8)
        rows[self.rank, : len(data)] = torch.tensor(list(data), dtype=torch.uint8)
        return [bytes(row[:length].tolist()).decode() for row, length in zip(self.add(rows), lengths, strict=True)]

    def meet(self, device: Any) -> None:
        """Wait until every worker's work on its device is done."""
        import torch  # noqa: PLC0415

        if device.type == "cuda":
            torch.cuda.synchronize(device)
        # No barrier(): where there is NCCL that would need devices.
        self.add(torch.zeros(1))

    def pools(self, shape: tuple[int, int], *, like: Array) -> tuple[Array, list[Array] | None]:
        """Return zeros that the other workers can read, and theirs as vectors by rank (an empty one for its own).

        If this fails for one worker, all return None in place of the others' memory, and rank 0 logs the reason.
        """
        pool: Array | None = None
        handles: list[str] = []
        theirs: list[Array] = []
        reason = ""
        with ExitStack() as until_open:
            # Any error is reported to the others, which wait for it; heads then go by gloo.
            try:
                pool, handle = shared_zeros(shape, like=like, until_open=until_open)
                handles = ["" if rank == self.rank else handle() for rank in range(self.size)]
            except Exception as error:
                reason = _first_line(error)
            given = [json.loads(some) for some in self.gather(json.dumps(handles))]
            try:
                if all(given):
                    mine = [some[self.rank] for some in given]
                    theirs = [open_shared(some, like=like) if some else like.new_zeros(0) for some in mine]
            except Exception as error:
                reason = _first_line(error)
            reasons = [some for some in self.gather(reason) if some]
        if reasons and self.rank == 0:
            LOG.warning("workers cannot read each other's memory (%s): heads go by gloo, which is slower", reasons[0])
        return like.new_zeros(shape) if pool is None else pool, None if reasons else theirs

    def leave(self) -> None:
        """Leave the group of workers."""
        if self.size > 1:
            from torch import distributed  # noqa: PLC0415

            distributed.destroy_process_group()


def backend_of(devices: int, *, here: int) -> str:
    """Return how torch.distributed connects `here` workers of one machine with so many CUDA devices.

    NCCL refuses two workers on one device. It takes tensors of devices alone, so that gloo stays for all others.
    """
    return "cpu:gloo,cuda:nccl" if devices >= here else "gloo"


@dataclass(frozen=True, eq=False)
class Territory:
    """Which nodes a worker holds, and which of others' nodes its peers hear.

    Benign peers are the nodes below `peers`, attackers those from there on. A worker's pool holds its own benign peers,
    its attackers, and then the others' nodes that it needs, worker by worker.

    Parameters
    ----------
    workers : Workers
        Who there is.
    peers, attackers : int
        Of the whole world.
    index : integer array [peers, M]
        The senders that each benign peer of the world hears, as nodes.
    """

    workers: Workers
    peers: int
    attackers: int
    index: Integers

    @cached_property
    def own_peers(self) -> range:
        """The benign peers of this worker."""
        return self.workers.share_of(self.peers)

    @cached_property
    def own_attackers(self) -> range:
        """The attackers of this worker."""
        return self.workers.share_of(self.attackers)

    @property
    def nodes(self) -> int:
        """How many nodes this worker holds."""
        return len(self.own_peers) + len(self.own_attackers)

    @cached_property
    def needed(self) -> list[Integers]:
        """The nodes of each worker that this one needs; none of its own."""
        return self._needed_by(self.workers.rank)

    @property
    def halo(self) -> int:
        """How many of others' nodes this worker keeps copies of."""
        return sum(map(len, self.needed))

    def positions(self) -> Integers:
        """Return the senders of this worker's benign peers [own peers, M], as positions in its pool."""
        mine = self.index[self.own_peers.start : self.own_peers.stop]
        if self.workers.size == 1:
            return mine
        place, local = self._places()
        others = np.concatenate(self.needed)
        place[others] = len(local) + np.arange(len(others))
        return place[mine]

    def pool(self, width: int, *, like: Array) -> tuple[Array, Callable[[], None] | None]:
        """Return the pool [P, width] of this worker, and a function that updates the rows of other workers' peers.

        The pool is zeros with the type and device of `like`. A single worker gets None for the function. All workers
        must call this method together, and so the function.
        """
        shape, workers = (self.nodes + self.halo, width), self.workers
        if workers.size == 1:
            return like.new_zeros(shape), None
        if not workers.together or (workers.direct and like.device.type == "cuda"):
            pool = like.new_zeros(shape)
            return pool, self._by_messages(pool)
        pool, theirs = workers.pools(shape, like=like)
        return pool, self._by_messages(pool) if theirs is None else self._by_reading(pool, theirs)

    def _by_reading(self, pool: Array, theirs: list[Array]) -> Callable[[], None]:
        """Return a function that copies others' rows out of their pools."""
        import torch  # noqa: PLC0415

        copies, first = [], self.nodes
        for rank, needed in enumerate(self.needed):
            if len(needed):
                rows = torch.as_tensor(np.searchsorted(self._nodes_of(rank), needed), device=pool.device)
                copies.append((theirs[rank].view(-1, pool.shape[1]), rows, pool[first : first + len(needed)]))
            first += len(needed)

        def exchange() -> None:
            self.workers.meet(pool.device)  # Everybody has written.
            for source, rows, target in copies:
                torch.index_select(source, 0, rows, out=target)
            self.workers.meet(pool.device)  # Everybody has read.

        return exchange

    def _by_messages(self, pool: Array) -> Callable[[], None]:
        """Return a function that sends others the rows that they need, and receives theirs."""
        import torch  # noqa: PLC0415
        from torch import distributed  # noqa: PLC0415

        place, local = self._places()
        sent = [place[self._needed_by(rank)[self.workers.rank]] for rank in range(self.workers.size)]
        outgoing, incoming = [len(some) for some in sent], [len(some) for some in self.needed]
        chosen, first = torch.as_tensor(np.concatenate(sent), device=pool.device), len(local)
        way = pool.device if self.workers.direct else "cpu"

        def exchange() -> None:
            # As bytes: gloo does not know every type of number.
            gives = pool[chosen].view(torch.uint8).to(way)
            takes = torch.empty((sum(incoming), *gives.shape[1:]), dtype=torch.uint8, device=way)
            distributed.all_to_all_single(takes, gives, incoming, outgoing)
            pool[first:].view(torch.uint8).copy_(takes)

        return exchange

    def _places(self) -> tuple[Integers, Integers]:
        """Return where each node stands among this worker's own (-1: nowhere), and which these are."""
        place, local = np.full(self.peers + self.attackers, -1, dtype=np.int64), self._nodes_of(self.workers.rank)
        place[local] = np.arange(len(local))
        return place, local

    def _needed_by(self, rank: int) -> list[Integers]:
        theirs = self.workers.share_of(self.peers, rank)
        heard = np.zeros(self.peers + self.attackers, dtype=np.bool)
        heard[self.index[theirs.start : theirs.stop].ravel()] = True
        nodes = [
            np.zeros(0, dtype=np.int64) if owner == rank else self._nodes_of(owner)
            for owner in range(self.workers.size)
        ]
        return [some[heard[some]] for some in nodes]

    def _nodes_of(self, rank: int) -> Integers:
        peers, attackers = self.workers.share_of(self.peers, rank), self.workers.share_of(self.attackers, rank)
        return np.concatenate([np.arange(peers.start, peers.stop), self.peers + np.array(attackers, dtype=np.int64)])


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
