"""What all targets share: an input is fed to one surface, and time, memory and outcome are watched.

A surface must answer any bytes with a value or with its documented refusal. Anything else is a crash: another
exception, an answer that breaks a promise, more CPU time than is allowed, or a process that grows beyond its bound.
"""

from __future__ import annotations

import atexit
import gc
import resource
import shutil
import sys
import tempfile
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

HANG = 0.1
"""Seconds of CPU time that one input may cost."""

SECOND_LOOKS = 4
"""How often an input that took longer is fed again: its fastest time counts."""

TRACED_EVERY = 1_000
"""Inputs between two whose allocations are traced, which makes a call several times as slow."""


class BrokenPromiseError(Exception):
    """A promise that an input broke: too slow, too large, or a wrong answer."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """One surface.

    Parameters
    ----------
    name : str
        What it is called on the command line and in the corpus.
    check : callable
        Feeds one input; returns in a word what came of it, e.g. a refusal. Raises only if a promise is broken.
    seeds : callable
        Returns small valid inputs by name, made by our own encoders.
    largest : int
        Bytes of an input.
    growth : int
        Bytes by which the process may grow in all.
    tokens : tuple of bytes
        Words of the format, for the mutator to put in.
    """

    name: str
    check: Callable[[bytes], str]
    seeds: Callable[[], Mapping[str, bytes]]
    largest: int
    growth: int = 64 << 20
    tokens: tuple[bytes, ...] = ()


@dataclass
class Watch:
    """Feeds inputs to a target and keeps the figures.

    Parameters
    ----------
    target : Target
        What is fed.
    """

    target: Target
    inputs: int = 0
    slowest: float = 0.0
    traced_peak: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    _size_at_start: int = 0
    growth: int = 0

    def feed(self, data: bytes) -> str:
        """Feed one input; raise whatever shows that a promise was broken."""
        if not self.inputs:
            self._warm_up()
        self.inputs += 1
        traced = self.inputs % TRACED_EVERY == 0
        if traced:
            tracemalloc.start()
        try:
            outcome, spent = self._timed(data)
        finally:
            if traced:
                self.traced_peak = max(self.traced_peak, tracemalloc.get_traced_memory()[1])
                tracemalloc.stop()
        self.outcomes[outcome] += 1
        self.growth = _resident() - self._size_at_start
        if self.growth > self.target.growth:
            raise BrokenPromiseError(
                f"the process grew by {self.growth:,} bytes, at most {self.target.growth:,} are allowed"
            )
        if not traced:
            for _ in range(SECOND_LOOKS):
                # An input that is slow is slow each time; a machine that is busy, or a first import, is not.
                spent = min(spent, self._timed(data)[1]) if spent > HANG else spent
            self.slowest = max(self.slowest, spent)
            if spent > HANG:
                raise BrokenPromiseError(
                    f"took {1000 * spent:.0f} ms of CPU time, at most {1000 * HANG:.0f} are allowed"
                )
        return outcome

    def _timed(self, data: bytes) -> tuple[str, float]:
        """Return the outcome and its CPU time, without the collection of garbage that others may have left."""
        collects = gc.isenabled()
        gc.disable()
        began = time.thread_time()
        try:
            outcome = self.target.check(data)
            return outcome, time.thread_time() - began
        finally:
            if collects:
                gc.enable()

    def _warm_up(self) -> None:
        """Load what is loaded late and grow what is grown once, before anything is measured."""
        for seed in self.target.seeds().values():
            self.target.check(seed)
        self._size_at_start = _resident()

    def figures(self) -> dict[str, object]:
        """Return what was seen, to be kept."""
        return {
            "target": self.target.name,
            "inputs": self.inputs,
            "slowest_ms": round(1000 * self.slowest, 2),
            "growth_bytes": self.growth,
            "traced_peak_bytes": self.traced_peak,
            "outcomes": dict(self.outcomes.most_common()),
        }


def refused(error: ValueError | OSError) -> str:
    """Return the outcome of a refusal by exception, which must be one line that a person can read."""
    text = str(error)
    if not text or "\n" in text:
        raise BrokenPromiseError(f"a refusal must be one line, not {text!r}") from error
    return "refused"


def scratch() -> Path:
    """Return a folder for a target's files, which goes when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="bristle-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


class Reader:
    """Numbers and byte strings out of an input; beyond its end there are zeros.

    Parameters
    ----------
    data : bytes
        The input.
    """

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    @property
    def left(self) -> bool:
        """Whether there is more."""
        return self._at < len(self._data)

    def byte(self) -> int:
        """Return the next byte as a number."""
        self._at += 1
        return self._data[self._at - 1] if self._at <= len(self._data) else 0

    def short(self) -> int:
        """Return the next two bytes as a number."""
        return self.byte() << 8 | self.byte()

    def text(self) -> bytes:
        """Return a byte string that is preceded by its length in two bytes; a length beyond the end means the rest."""
        size = self.short()
        taken = self._data[self._at : self._at + size]
        self._at += size
        return taken


def counted(data: bytes) -> bytes:
    """Return a byte string as `Reader.text` reads it."""
    return len(data).to_bytes(2, "big") + data


def _resident() -> int:
    """Return the most memory that the process has had, bytes."""
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest if sys.platform == "darwin" else 1024 * largest
