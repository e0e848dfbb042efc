"""One process of the demo: peers and attackers with folders, identities and UDP sockets of their own."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bristle import Peer, attacks, rules
from bristle._core import to_numpy
from bristle._core.rng import Stream, draw
from bristle.attacks import Attack, Knowledge, View
from bristle.commands.demo import APPLICATION, EVALUATE_EVERY, Demo, backbone, digits
from bristle.commands.demo.relay import Relay
from bristle.learning.optimiser import HeadState
from bristle.learning.samples import Samples
from bristle.learning.training import train_step
from bristle.p2p import Limits, Overlay
from bristle.peer.pace import Pace
from bristle.peer.record import Heard, Turn
from bristle.peer.store import PeerStore
from bristle.peer.store_files import IDENTITY, STORE, make_private
from bristle.simulation.population import Population, populate
from bristle.wire import Group, Identity
from bristle.wire.messages import Address


@dataclass(frozen=True)
class Listening:
    """The first peer, or the relay, is listening: the addresses that each member is given."""

    known: Mapping[int, tuple[Address, ...]]


@dataclass(frozen=True)
class Met:
    """All members of a process have connected: the number of neighbours, address and key id of each."""

    neighbours: Mapping[int, int]
    addresses: Mapping[int, Address]
    key_ids: Mapping[str, int]


@dataclass(frozen=True)
class Connected:
    """Bytes received and refusals of a benign peer since the start, and the key ids of its neighbours."""

    bytes_in: int
    refused: Mapping[str, int]
    neighbours: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class PeerIteration:
    """One iteration of a benign peer; weights [heard, classes] are each sender's share of each row."""

    peer: int
    iteration: int
    at: float
    accuracy: float | None
    heard: tuple[Heard, ...]
    bytes_out: int | None
    weights: npt.NDArray[np.float32] | None = None
    connected: Connected | None = None


@dataclass(frozen=True)
class Finished:
    """A benign peer has done all its iterations."""

    peer: int
    bytes_out: int
    bytes_in: int
    retransmissions: int
    heads_in: int


@dataclass(frozen=True)
class Failed:
    """A process could not go on."""

    why: str


Event = Listening | Met | PeerIteration | Finished | Failed


class Command(StrEnum):
    """Commands to a worker process."""

    GO = "go"
    STOP = "stop"


class Attackers:
    """Attackers that work together: they train, share the heads that they receive, and send the attack.

    They know of benign peers only what those sent to them.

    Parameters
    ----------
    numbers : sequence of int
        Their numbers among the members of the demo.
    group : Group
        Their group.
    attack : Attack
        The attack.
    samples : Samples
        What each trains on [K, S], with labels as the attack wants them.
    total, interval, seed
        Number of iterations, minimum seconds between shared heads, and seed of all random draws.
    limits
        Those of benign peers.
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
        self.numbers = tuple(numbers)
        self._group, self._attack, self._samples = group, attack, samples
        self._total, self._interval, self._seed = total, interval, seed
        self._limits = limits
        self._identities = [Identity.generate() for _ in numbers]
        self.key_ids = frozenset(identity.key_id for identity in self._identities)
        self.overlays: list[Overlay] = []
        self.iteration = 0
        head = np.zeros((len(self.numbers), *group.shape), dtype=np.float32)
        self._trained = HeadState.zeros(head.shape, like=head)
        self._honest: dict[bytes, npt.NDArray[np.float32]] = {}
        self._claimed: dict[bytes, npt.NDArray[np.bool]] = {}
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


TELL_WITHIN = 0.1
"""Seconds that an event waits for others: whoever reads each at once takes a core from the peers."""

MEETING = 20.0
"""Seconds for all to find each other; then learning starts with the neighbours found."""


def work(demo: Demo, members: tuple[int, ...], folder: Path, pipe: Connection) -> None:
    """Run some members of the demo until the stop command, or the end of the parent process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the first one decides.
    try:
        asyncio.run(_Worker(demo, members, folder, pipe).run())
    except* (OSError, ValueError) as errors:
        pipe.send([Failed("; ".join(map(str, errors.exceptions)))])


def relay(demo: Demo, pipe: Connection) -> None:
    """Run the relay between the peers until the stop command."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(_relay(demo, pipe))


async def _relay(demo: Demo, pipe: Connection) -> None:
    assert demo.impairment is not None
    between = Relay(demo.members, demo.impairment, seed=demo.seed)
    pipe.send([Listening({member: tuple(between.known(member)) for member in range(demo.members)})])
    stopped = asyncio.Event()
    _on_command(pipe, lambda _: stopped.set(), stopped.set)
    await stopped.wait()
    between.close()


def _on_command(pipe: Connection, take: Callable[[object], None], gone: Callable[[], None]) -> None:
    """Call `take` with every command, and `gone` when the parent has closed the pipe."""

    def read() -> None:
        try:
            take(pipe.recv())
        except EOFError:
            loop.remove_reader(pipe.fileno())
            gone()

    loop = asyncio.get_running_loop()
    loop.add_reader(pipe.fileno(), read)


class _Worker:
    def __init__(self, demo: Demo, members: tuple[int, ...], folder: Path, pipe: Connection) -> None:
        self.demo, self.folder, self.pipe = demo, folder, pipe
        self.benign = [member for member in members if member < demo.peers]
        self.malicious = [member for member in members if member >= demo.peers]
        self.data = digits()
        self.group = Group(
            application=APPLICATION,
            backbone=backbone().digest,
            classes=self.data.classes,
            features=backbone().features,
        )
        self.limits = Limits(neighbours=max(32, demo.members))
        self.peers: dict[int, Peer] = {}
        self.attackers: Attackers | None = None
        self.known: Mapping[int, tuple[Address, ...]] = {}
        self._knows = asyncio.Event()
        self._told = {command: asyncio.Event() for command in Command}
        self._events: list[Event] = []

    async def run(self) -> None:
        _on_command(self.pipe, self._take, self._told[Command.STOP].set)
        stopped = asyncio.create_task(self._told[Command.STOP].wait())
        playing = asyncio.create_task(self._play())
        try:
            await asyncio.wait({stopped, playing}, return_when=asyncio.FIRST_COMPLETED)
            if playing.done():
                playing.result()
        finally:
            for peer in self.peers.values():
                peer.stop()
            playing.cancel()
            stopped.cancel()
            await asyncio.gather(playing, stopped, return_exceptions=True)

    def _take(self, command: object) -> None:
        if isinstance(command, Listening):
            self.known = command.known
            self._knows.set()
        else:
            self._told[Command(str(command))].set()

    async def _play(self) -> None:
        population = populate(self.demo.scenario(self.demo.rule), self.data)
        async with AsyncExitStack() as exits:
            await self._open(population, exits)
            await self._meet()
            await self._told[Command.GO].wait()
            # If one fails, all stop: without its attackers the demo would look too good.
            async with asyncio.TaskGroup() as group:
                for number in self.benign:
                    group.create_task(self._learn(number))
                if self.attackers is not None:
                    group.create_task(self.attackers.run())
            await self._told[Command.STOP].wait()

    async def _open(self, population: Population, exits: AsyncExitStack) -> None:
        if self.benign and self.benign[0] == 0 and self.demo.impairment is None:
            # The only address that the others get.
            first = await exits.enter_async_context(self._peer(0, population, ()))
            self.peers[0] = first
            self._send(Listening(dict.fromkeys(range(1, self.demo.members), (first.address,))))
        await self._knows.wait()
        for number in self.benign:
            if number not in self.peers:
                peer = self._peer(number, population, self.known[number])
                self.peers[number] = await exits.enter_async_context(peer)
        if self.malicious:
            self.attackers = self._attackers(population)
            exits.push_async_callback(self.attackers.stop)
            await self.attackers.start([self.known[number] for number in self.malicious])

    async def _meet(self) -> None:
        """Wait until all have connected, at most `MEETING` seconds."""
        deadline = time.monotonic() + MEETING
        while True:
            found = {number: len(peer.status().neighbours) for number, peer in self.peers.items()}
            overlays = [] if self.attackers is None else self.attackers.overlays
            found |= {
                number: len(overlay.neighbours()) for number, overlay in zip(self.malicious, overlays, strict=True)
            }
            if min(found.values()) >= self.demo.members - 1 or time.monotonic() > deadline:
                break
            await asyncio.sleep(0.05)
        key_ids = {peer.key_id: number for number, peer in self.peers.items()}
        key_ids |= {
            overlay.identity.key_id.hex(): number for number, overlay in zip(self.malicious, overlays, strict=True)
        }
        addresses = {number: peer.address for number, peer in self.peers.items()}
        addresses |= {number: overlay.address for number, overlay in zip(self.malicious, overlays, strict=True)}
        self._send(Met(found, addresses, key_ids))

    async def _learn(self, number: int) -> None:
        peer = self.peers[number]
        await peer.run(self.demo.iterations)
        counters = peer.status().counters
        out, into = counters["bytes_out"], counters["bytes_in"]
        self._send(Finished(number, out, into, counters["retransmissions"], counters["heads_in"]))

    def _peer(self, number: int, population: Population, known: tuple[Address, ...]) -> Peer:
        folder = self.folder / f"peer-{number}"
        self._fill(folder, number, population)
        return Peer(
            application=APPLICATION,
            classes=self.data.classes,
            folder=folder,
            backbone=backbone(),
            known=known,
            rule=rules.create(self.demo.rule),
            pace=Pace(interval=self.demo.interval),
            limits=self.limits,
            seed=1000 * self.demo.seed + number,
            test=(self.data.test, self.data.test_labels),
            test_every=EVALUATE_EVERY,
            on_iteration=partial(self._tell, number),
        )

    def _fill(self, folder: Path, number: int, population: Population) -> None:
        """Put a peer's samples into its store, split into those for training and for testing as in the simulator."""
        make_private(folder)
        identity = Identity.load_or_create(folder / IDENTITY)
        store = PeerStore(folder / STORE, identity=identity.key_id.hex(), group=self.group)
        try:
            store.add_samples(_held(population.held, number), _held(population.held_out, number))
        finally:
            store.close()

    def _tell(self, number: int, turn: Turn) -> None:
        record = turn.record
        bytes_out = connected = None
        if record.accuracy is not None:
            status = self.peers[number].status()
            bytes_out = status.counters["bytes_out"]
            connected = Connected(
                status.counters["bytes_in"], status.refused, tuple(one.key_id for one in status.neighbours)
            )
        weights = to_numpy(turn.decision.weights).astype(np.float32)
        step = PeerIteration(
            number, record.iteration, record.at, record.accuracy, record.heard, bytes_out, weights, connected
        )
        if record.accuracy is not None:
            self._send(step)
            return
        if not self._events:
            asyncio.get_running_loop().call_later(TELL_WITHIN, self._send)
        self._events.append(step)

    def _send(self, *events: Event) -> None:
        """Send events, after those that wait."""
        waiting, self._events = self._events, []
        if waiting or events:
            self.pipe.send([*waiting, *events])

    def _attackers(self, population: Population) -> Attackers:
        demo, theirs = self.demo, population.attackers_hold
        assert theirs.index is not None
        rows = np.array(self.malicious) - demo.peers
        return Attackers(
            self.malicious,
            group=self.group,
            attack=attacks.create(demo.attack),
            samples=Samples(theirs.features, theirs.labels[rows], theirs.index[rows]),
            total=demo.iterations,
            interval=demo.interval,
            seed=demo.seed,
            limits=self.limits,
        )


def _held(samples: Samples, number: int) -> Samples:
    """Return the samples of one benign peer."""
    assert samples.index is not None
    labels, index = to_numpy(samples.labels[number]), to_numpy(samples.index[number])
    there = labels >= 0
    return Samples(to_numpy(samples.features)[index[there]], labels[there].astype(np.int64))
