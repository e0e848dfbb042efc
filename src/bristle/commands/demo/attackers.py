"""Attackers of the demo: what members that lie send to honest peers over a real network."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bristle._core.rng import Stream, draw
from bristle.attacks import Attack, Knowledge, View
from bristle.learning.optimiser import HeadState
from bristle.learning.samples import Samples
from bristle.learning.training import train_step
from bristle.p2p import Limits, Overlay
from bristle.rules import Statement
from bristle.simulation.exchange import Exchange
from bristle.wire import Group, Identity
from bristle.wire.messages import Address

LIFETIME = 86_400
"""Seconds for which false statements count."""

LAST_WORD = 2.0
"""Seconds after which attackers who want to hear all honest peers first do without those that are missing."""


class Attackers:
    """Attackers that work together, each with an identity and a socket of its own.

    Parameters
    ----------
    numbers : sequence of int
        Their numbers among the members of the demo.
    group : Group
        Their group.
    limits
        Those of benign peers.
    """

    def __init__(self, numbers: Sequence[int], *, group: Group, limits: Limits) -> None:
        self.numbers = tuple(numbers)
        self._group, self._limits = group, limits
        self._identities = [Identity.generate() for _ in numbers]
        self.key_ids = frozenset(identity.key_id for identity in self._identities)
        self.overlays: list[Overlay] = []

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
        raise NotImplementedError


class StatementAttackers(Attackers):
    """Attackers who state something false, once, and to everybody the same: two statements would convict them.

    Parameters
    ----------
    numbers, group, limits
        As of all attackers.
    exchange : Exchange
        The same world in the simulator: what they hold, and how the attack makes statements of it.
    honest : int
        How many honest peers an attack that wants to know what they state waits for.
    """

    def __init__(
        self, numbers: Sequence[int], *, group: Group, limits: Limits, exchange: Exchange, honest: int
    ) -> None:
        super().__init__(numbers, group=group, limits=limits)
        self._exchange, self._honest = exchange, honest

    async def run(self) -> None:
        """State, once what is to be known is known."""
        heard = [] if self._exchange.tells_blindly else await self._heard()
        false = self._exchange.broadcast(heard)
        number = int(1000 * time.time())
        for overlay, statement in zip(self.overlays, false, strict=True):
            expires = number // 1000 + LIFETIME
            overlay.publish(overlay.sign_statement(statement, number=number, expires=expires, encoding="int8"))
        await asyncio.Event().wait()

    async def _heard(self) -> list[Statement]:
        """Return what honest peers state; their first overlay hears what all of them hear."""
        deadline, first = time.monotonic() + LAST_WORD, self.overlays[0]
        while True:
            found = [one.statement for one in first.statements() if one.author not in self.key_ids]
            left = deadline - time.monotonic()
            if len(found) >= self._honest or (found and left <= 0):
                return found
            first.take_statements()
            try:
                async with asyncio.timeout(max(left, 0.1)):
                    await first.statement_arrival()
            except TimeoutError:
                continue


class HeadAttackers(Attackers):
    """Attackers that train, share the heads that they receive, and send the attack after every iteration.

    They know of benign peers only what those sent to them.

    Parameters
    ----------
    numbers, group, limits
        As of all attackers.
    attack : Attack
        The attack.
    samples : Samples
        What each trains on [K, S], with labels as the attack wants them.
    total, interval, seed
        Number of iterations, minimum seconds between shared heads, and seed of all random draws.
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
        limits: Limits,
    ) -> None:
        super().__init__(numbers, group=group, limits=limits)
        self._attack, self._samples = attack, samples
        self._total, self._interval, self._seed = total, interval, seed
        self.iteration = 0
        head = np.zeros((len(self.numbers), *group.shape), dtype=np.float32)
        self._trained = HeadState.zeros(head.shape, like=head)
        self._honest: dict[bytes, npt.NDArray[np.float32]] = {}
        self._claimed: dict[bytes, npt.NDArray[np.bool]] = {}
        self._sent: npt.NDArray[np.float32] | None = None

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
                overlay.share(head, iteration=self.iteration, claims=claimed)
                await asyncio.sleep(0)

    def _craft(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool]]:
        """Return what each attacker sends, and which classes it claims."""
        for overlay in self.overlays:
            for received in overlay.take():
                if received.sender not in self.key_ids:
                    self._honest[received.sender] = received.head
                    if received.claims is not None:
                        self._claimed[received.sender] = received.claims
        if self._attack.trains:
            self._train()
        inbox = None
        if self._attack.knows == Knowledge.INBOX:
            inbox = np.stack([*self._honest.values()]) if self._honest else np.zeros_like(self._trained.head[:0])
        view = View(
            own=self._trained.head,
            iteration=self.iteration,
            total=self._total,
            inbox=inbox,
            sent=self._sent,
            claims=np.stack([*self._claimed.values()]) if self._claimed else None,
        )
        heads: npt.NDArray[np.float32] = self._attack(view, rng=self._draws(Stream.ATTACK, view.own[0].size))
        self._sent = heads
        return heads, self._attack.claimed(view)

    def _train(self) -> None:
        samples = self._samples
        draws = self._draws(Stream.BATCHES, samples.labels.shape[-1])
        self._trained = train_step(self._trained, samples.features, samples.labels, draws, index=samples.index)

    def _draws(self, stream: Stream, size: int) -> npt.NDArray[np.float32]:
        drawn = draw(self._seed, stream, self.numbers, self.iteration, size).astype(np.float32)
        return drawn.reshape(self._trained.head.shape) if stream == Stream.ATTACK else drawn
