"""One process of the demo: peers and attackers with folders, identities and UDP sockets of their own."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Mapping
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
from bristle.commands.demo import APPLICATION, EVALUATE_EVERY, Demo, backbone, digits
from bristle.commands.demo.attackers import Attackers, HeadAttackers, StatementAttackers
from bristle.commands.demo.relay import Relay
from bristle.learning.samples import Samples
from bristle.p2p import Limits
from bristle.peer.pace import Pace
from bristle.peer.record import Heard, Turn
from bristle.peer.store import PeerStore
from bristle.peer.store_files import IDENTITY, STORE, make_private
from bristle.simulation.exchange import Exchange
from bristle.simulation.population import Population, populate
from bristle.simulation.scenario import Scenario
from bristle.wire import Group, Identity
from bristle.wire.messages import Address


@dataclass(frozen=True)
class Ready:
    """A process has all that its members need, and waits for the command to open their sockets."""


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
    """A benign peer has done all its iterations or, with evidence, knows what all members state."""

    peer: int
    bytes_out: int
    bytes_in: int
    retransmissions: int
    heads_in: int


@dataclass(frozen=True)
class Rested:
    """How many bytes a benign peer sent in some seconds in which nobody had anything new to say."""

    peer: int
    bytes_out: int
    seconds: float


@dataclass(frozen=True)
class Failed:
    """A process could not go on."""

    why: str


Event = Ready | Listening | Met | PeerIteration | Finished | Rested | Failed


class Command(StrEnum):
    """Commands to a worker process."""

    GO = "go"
    REST = "rest"
    STOP = "stop"


TELL_WITHIN = 0.1
"""Seconds that an event waits for others: whoever reads each at once takes a core from the peers."""

MEETING = 20.0
"""Seconds for all to find each other; then learning starts with the neighbours found."""

QUIET = 10.0
"""Seconds without a new statement after which a peer does without those that are missing."""

REST = 20.0
"""Seconds for which bytes are counted once all statements are known."""


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
        self._heard: dict[int, int] = {}
        self._decided: dict[int, asyncio.Event] = {}
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
        scenario = self.demo.scenario(self.demo.rule)
        population = populate(scenario, self.data)
        for number in self.benign:
            self._fill(self._folder(number), number, population)
        if self.malicious:
            self.attackers = self._attackers(scenario, population)
        self._send(Ready())
        await self._told[Command.GO].wait()
        async with AsyncExitStack() as exits:
            await self._open(exits)
            if not self.demo.evidence:  # Rounds count from when all can take part.
                await self._meet()
            # If one fails, all stop: without its attackers the demo would look too good.
            async with asyncio.TaskGroup() as group:
                for number in self.benign:
                    group.create_task(self._weigh(number) if self.demo.evidence else self._learn(number))
                if self.attackers is not None:
                    group.create_task(self.attackers.run())
                if self.demo.evidence:
                    await self._meet()
                    group.create_task(self._rest())
            await self._told[Command.STOP].wait()

    async def _open(self, exits: AsyncExitStack) -> None:
        if self.benign and self.benign[0] == 0 and self.demo.impairment is None:
            # The only address that the others get.
            first = await exits.enter_async_context(self._peer(0, ()))
            self.peers[0] = first
            self._send(Listening(dict.fromkeys(range(1, self.demo.members), (first.address,))))
        await self._knows.wait()
        for number in self.benign:
            if number not in self.peers:
                self.peers[number] = await exits.enter_async_context(self._peer(number, self.known[number]))
        if self.attackers is not None:
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
        await self.peers[number].run(self.demo.iterations)
        self._finish(number)

    async def _weigh(self, number: int) -> None:
        """Run a peer until the end, and say when it has decided about all members, or has waited for long enough."""
        running = asyncio.create_task(self.peers[number].run())
        try:
            while self._heard.get(number, 0) < self.demo.members - 1:
                self._decided[number] = asyncio.Event()
                async with asyncio.timeout(QUIET):
                    await self._decided[number].wait()
        except TimeoutError:
            pass
        self._finish(number)
        await running

    async def _rest(self) -> None:
        """Count what is sent when there is nothing to say."""
        await self._told[Command.REST].wait()
        began, before = time.monotonic(), self._bytes_out()
        await asyncio.sleep(REST)
        seconds = time.monotonic() - began
        for number, sent in self._bytes_out().items():
            self._send(Rested(number, sent - before[number], seconds))

    def _bytes_out(self) -> dict[int, int]:
        return {number: peer.status().counters["bytes_out"] for number, peer in self.peers.items()}

    def _finish(self, number: int) -> None:
        counters = self.peers[number].status().counters
        out, into = counters["bytes_out"], counters["bytes_in"]
        self._send(Finished(number, out, into, counters["retransmissions"], counters["heads_in"]))

    def _folder(self, number: int) -> Path:
        return self.folder / f"peer-{number}"

    def _peer(self, number: int, known: tuple[Address, ...]) -> Peer:
        return Peer(
            application=APPLICATION,
            classes=self.data.classes,
            folder=self._folder(number),
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
        if record.heard:
            self._heard[number] = len(record.heard)
            if number in self._decided:
                self._decided[number].set()
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

    def _attackers(self, scenario: Scenario, population: Population) -> Attackers:
        demo, theirs = self.demo, population.attackers_hold
        if demo.evidence:
            exchange = Exchange(scenario, population, len(self.data.classes))
            return StatementAttackers(
                self.malicious, group=self.group, limits=self.limits, exchange=exchange, honest=demo.peers
            )
        assert theirs.index is not None
        rows = np.array(self.malicious) - demo.peers
        return HeadAttackers(
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
