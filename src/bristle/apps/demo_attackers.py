"""The attackers of the demo: members of the group with sockets and keys of their own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bristle._core import keyed_uniforms
from bristle.attacks import Attack, Knowledge, View
from bristle.learning.optimiser import HeadState
from bristle.learning.training import train_step
from bristle.p2p import Limits, Overlay
from bristle.peer.step import Samples
from bristle.wire import Group, Identity
from bristle.wire.sizes import Encoding

Address = tuple[str, int]
_BATCHES, _CRAFT = 0, 2
_STREAMS = 3


class Attackers:
    """Attackers that work together: they train, put together what they hear, and each sends its part of the attack.

    What they know of honest peers is what those sent to them.

    Parameters
    ----------
    numbers : sequence of int
        Which members of the demo they are.
    group : Group
        What they pretend to belong to, and do.
    attack : Attack
        What they send.
    samples : Samples
        What each trains on [K, S], labels as the attack wants them.
    total, interval, seed
        How long the demo will be, seconds between what they send at least, and of every random draw.
    encoding, limits
        As benign peers have them.
    """

    def __init__(
        self,
        numbers: Sequence[int],
        *,
        group: Group,
        attack: Attack,
        samples: Samples,
        total: int,
        interval: float,
        seed: int,
        encoding: Encoding,
        limits: Limits,
    ) -> None:
        self.numbers = tuple(numbers)
        self._group, self._attack, self._samples = group, attack, samples
        self._total, self._interval, self._seed = total, interval, seed
        self._encoding, self._limits = encoding, limits
        self._identities = [Identity.generate() for _ in numbers]
        self.key_ids = frozenset(identity.key_id for identity in self._identities)
        self.overlays: list[Overlay] = []
        self.iteration = 0
        head = np.zeros((len(self.numbers), *group.shape), dtype=np.float32)
        self._trained = HeadState.zeros(head.shape, like=head)
        self._honest: dict[bytes, npt.NDArray[np.float32]] = {}
        self._sent: npt.NDArray[np.float32] | None = None

    async def start(self, known: Sequence[Sequence[Address]]) -> None:
        """Join the network, each knowing some addresses."""
        for identity, addresses in zip(self._identities, known, strict=True):
            overlay = Overlay(identity=identity, group=self._group, known=addresses, limits=self._limits)
            await overlay.start()
            self.overlays.append(overlay)

    async def stop(self) -> None:
        """Leave."""
        for overlay in self.overlays:
            await overlay.stop()

    async def run(self) -> None:
        """Attack until cancelled."""
        began = float("-inf")
        while True:
            await asyncio.gather(*(overlay.sent() for overlay in self.overlays))
            await asyncio.sleep(max(0.0, began + self._interval - time.monotonic()))
            began = time.monotonic()
            self.iteration += 1
            heads, claims = self._craft()
            for overlay, head, claimed in zip(self.overlays, heads, claims, strict=True):
                overlay.share(head, iteration=self.iteration, claims=claimed, encoding=self._encoding)
                await asyncio.sleep(0)

    def _craft(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool]]:
        """Return what each attacker sends, and which classes it claims."""
        for overlay in self.overlays:
            for received in overlay.take():
                if received.sender not in self.key_ids:
                    self._honest[received.sender] = received.head
        if self._attack.trains:
            self._train()
        inbox = None
        if self._attack.knows == Knowledge.INBOX:
            inbox = np.stack([*self._honest.values()]) if self._honest else np.zeros_like(self._trained.head[:0])
        view = View(own=self._trained.head, iteration=self.iteration, total=self._total, inbox=inbox, sent=self._sent)
        heads: npt.NDArray[np.float32] = self._attack(view, rng=self._draws(_CRAFT, view.own[0].size))
        self._sent = heads
        return heads, self._attack.claims(view.seen_by(self._attack.knows))

    def _train(self) -> None:
        samples = self._samples
        draws = self._draws(_BATCHES, samples.labels.shape[-1])
        self._trained = train_step(self._trained, samples.features, samples.labels, draws, index=samples.index)

    def _draws(self, stream: int, size: int) -> npt.NDArray[np.float32]:
        key = _STREAMS * self.iteration + stream
        drawn = keyed_uniforms(self._seed, np.array(self.numbers), key, size).astype(np.float32)
        return drawn.reshape(self._trained.head.shape) if stream == _CRAFT else drawn
