"""Runs the demo: starts the worker processes and yields their events."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

import psutil

from bristle.commands.demo import Demo
from bristle.commands.demo.worker import (
    Command,
    Event,
    Failed,
    Finished,
    Listening,
    Met,
    PeerIteration,
    Ready,
    Rested,
    relay,
    work,
)

STOPPING = 10.0
"""Seconds before a process that does not stop is killed."""


class DemoProcesses:
    """The worker processes of a demo, started and waiting for a command.

    Use `running`. Iterating `meeting` and then `learning` yields what happens.

    Parameters
    ----------
    demo : Demo
        What to run.
    folder : Path
        Folder for the peers' stores.
    """

    def __init__(self, demo: Demo, folder: Path) -> None:
        self.demo = demo
        self.members: dict[str, int] = {}
        self.addresses: dict[int, tuple[str, int]] = {}
        self.began = 0.0
        """When the first socket was opened, in seconds since 1970: before the first datagram."""
        self._early: list[PeerIteration | Finished] = []
        # Heads are small: with one thread each, processes run side by side instead of waiting for each other.
        os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
        context = multiprocessing.get_context("spawn")
        self._processes: list[SpawnProcess] = []
        self._pipes: list[Connection] = []
        self._relay: list[Connection] = []
        for members in shares(demo):
            near, far = context.Pipe()
            self._start(context.Process(target=work, args=(demo, members, folder, far), daemon=True), far)
            self._pipes.append(near)
        if demo.impairment is not None:
            near, far = context.Pipe()
            self._start(context.Process(target=relay, args=(demo, far), daemon=True), far)
            self._relay.append(near)

    def _start(self, process: SpawnProcess, far: Connection) -> None:
        process.start()
        far.close()  # So that the end of a process is the end of its pipe.
        self._processes.append(process)

    def meet(self) -> dict[int, int]:
        """Start the peers and wait until they have found each other; return the number of neighbours of each."""
        neighbours: dict[int, int] = {}
        waiting = len(self._pipes)
        while len(neighbours) < self.demo.members:
            for event in self._events():
                match event:
                    case Ready():
                        waiting -= 1
                        if not waiting:
                            self.began = time.time()
                            self._tell(Command.GO)
                    case Listening():
                        self._tell(event)
                    case Met():
                        neighbours |= event.neighbours
                        self.members |= event.key_ids
                        self.addresses |= event.addresses
                    case PeerIteration() | Finished():
                        self._early.append(event)
                    case Rested() | Failed():
                        raise RuntimeError(f"unexpected while peers look for each other: {event}")
        return neighbours

    def learn(self) -> Iterator[PeerIteration | Finished]:
        """Yield events until every benign peer has finished."""
        finished: set[int] = set()
        for event in self._until(lambda: len(finished) >= self.demo.peers):
            if isinstance(event, PeerIteration | Finished):
                if isinstance(event, Finished):
                    finished.add(event.peer)
                yield event

    def rest(self) -> float:
        """Run peers that know all statements a while longer; return the bytes that each sends in a minute."""
        self._tell(Command.REST)
        rates: list[float] = []
        for event in self._until(lambda: len(rates) >= self.demo.peers):
            if isinstance(event, Rested):
                rates.append(60 * event.bytes_out / event.seconds)
        return sum(rates) / len(rates)

    def _until(self, done: Callable[[], bool]) -> Iterator[Event]:
        early, self._early = self._early, []
        yield from early
        while not done():
            yield from self._events()

    @property
    def processor_seconds(self) -> float:
        """Processor time that all processes have used."""
        pids = [process.pid for process in self._processes if process.pid is not None]
        return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids)

    def stop(self) -> None:
        """Stop the peers; kill processes that do not end in time."""
        deadline = time.monotonic() + STOPPING
        for pipe in (*self._pipes, *self._relay):
            try:
                pipe.send(Command.STOP)
            except OSError:  # It has ended already.
                continue
        for process in self._processes:
            while process.is_alive() and time.monotonic() < deadline:
                # What it still has to say must not keep it from ending.
                for ready in wait(self._pipes, timeout=0.05):
                    self._drain(ready)
            if process.is_alive():
                process.kill()
            process.join()

    def _drain(self, pipe: object) -> None:
        assert isinstance(pipe, Connection)
        try:
            pipe.recv()
        except (EOFError, OSError):
            self._pipes.remove(pipe)

    def _tell(self, what: object) -> None:
        for pipe in self._pipes:
            pipe.send(what)

    def _events(self) -> Iterator[Event]:
        for pipe in wait([*self._pipes, *self._relay], timeout=0.5):
            assert isinstance(pipe, Connection)
            try:
                events = pipe.recv()
            except (EOFError, ConnectionResetError):
                raise RuntimeError("a process of the demo ended unexpectedly") from None
            for event in events:
                if isinstance(event, Failed):
                    raise ValueError(event.why)
                yield event


@contextmanager
def running(demo: Demo) -> Iterator[DemoProcesses]:
    """Start the processes of a demo; stop them and clean up in the end."""
    with tempfile.TemporaryDirectory(prefix="bristle-demo-", ignore_cleanup_errors=True) as folder:
        network = DemoProcesses(demo, Path(folder))
        try:
            yield network
        finally:
            network.stop()


def shares(demo: Demo) -> list[tuple[int, ...]]:
    """Spread the members evenly over processes; all attackers, who work together, are in the last."""
    benign, count = list(range(demo.peers)), demo.processes
    malicious = tuple(range(demo.peers, demo.members))
    if count == 1:
        return [(*benign, *malicious)]
    last = max(0, round(demo.members / count) - demo.attackers)
    if not last and not malicious:
        last = 1
    first = demo.peers - last
    cuts = [round(first * place / (count - 1)) for place in range(count)]
    spread = [tuple(benign[start:end]) for start, end in pairwise(cuts)]
    return [share for share in [*spread, (*benign[first:], *malicious)] if share]
