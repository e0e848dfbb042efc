"""Collects the events of the demo: a row for every ten iterations, and the progress of each peer."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean

import numpy as np
import numpy.typing as npt

from bristle.commands.demo import FIGURE, ROW_EVERY, Demo, Row
from bristle.commands.demo.worker import Connected, Finished, PeerIteration
from bristle.peer.record import SHOWN, Heard

RECENT = 5
"""Iterations over which the live figures of a peer are taken."""


@dataclass
class Weights:
    """Shares of new heads, summed over iterations: from benign peers and from attackers, and how many were heard."""

    iterations: int = 0
    benign: float = 0.0
    malicious: float = 0.0
    heard: int = 0

    def add(self, other: Weights) -> None:
        """Add the sums of others."""
        self.iterations += other.iterations
        self.benign += other.benign
        self.malicious += other.malicious
        self.heard += other.heard

    @property
    def attackers(self) -> float:
        """Attackers' share of all weight that received heads were given."""
        whole = self.benign + self.malicious
        return self.malicious / whole if whole else 0.0


@dataclass
class Standing:
    """Progress of one benign peer."""

    iteration: int = 0
    accuracy: float | None = None
    bytes_out: int = 0
    heard: tuple[Heard, ...] = ()
    weights: npt.NDArray[np.float32] | None = None
    decided: int = 0
    connected: Connected | None = None
    recent: list[Weights] = field(default_factory=list)
    finished: bool = False

    @property
    def lately(self) -> Weights:
        """Its last few iterations."""
        whole = Weights()
        for each in self.recent:
            whole.add(each)
        return whole


@dataclass
class _Measured:
    """Measurements of one iteration, and of those since the previous row."""

    accuracy: dict[int, float] = field(default_factory=dict)
    bytes_out: dict[int, int] = field(default_factory=dict)
    at: float = 0.0
    weights: Weights = field(default_factory=Weights)


class Tally:
    """Aggregates the events of the peers.

    Parameters
    ----------
    demo : Demo
        The demo.
    members : mapping
        The number of each member, by key id.
    samples_per_class : int
        Training samples per class of every benign peer.
    began : float, optional
        When the demo began, in seconds since 1970; now by default.
    """

    def __init__(
        self, demo: Demo, members: Mapping[str, int], *, samples_per_class: int, began: float | None = None
    ) -> None:
        self.demo = demo
        self.began = self.latest = time.time() if began is None else began
        self.peers = [Standing() for _ in range(demo.peers)]
        self.whole = Weights()
        self.rest: float | None = None
        """Bytes that a peer sends in a minute once all statements are known."""
        self.bytes_in = self.retransmissions = self.heads_in = 0
        self._members, self._samples = members, samples_per_class
        self._marks: dict[int, _Measured] = {}
        self.history: list[tuple[int, float, float, float]] = []
        self._last_row, self._last_at = 0, self.began

    def take(self, event: PeerIteration | Finished) -> Row | None:
        """Record an event; return a row once all peers have reached its iteration."""
        if isinstance(event, Finished):
            peer = self.peers[event.peer]
            peer.bytes_out = event.bytes_out
            if peer.connected is not None:
                peer.connected = replace(peer.connected, bytes_in=event.bytes_in)
            self.bytes_in += event.bytes_in
            self.retransmissions += event.retransmissions
            self.heads_in += event.heads_in
            peer.finished = True
            done = self.demo.evidence and all(one.finished for one in self.peers)
            return self._statement_row() if done else None
        weights = self._weights(event)
        peer = self.peers[event.peer]
        if self.demo.evidence:
            self._take_decision(peer, event, weights)
            return None
        self.whole.add(weights)
        peer.iteration, peer.connected = event.iteration, event.connected or peer.connected
        if event.heard:
            peer.heard, peer.weights, peer.decided = event.heard, event.weights, event.iteration
        peer.recent = [*peer.recent[1 - RECENT :], weights]
        self.latest = max(self.latest, event.at)
        if event.accuracy is not None and event.bytes_out is not None:
            peer.accuracy, peer.bytes_out = event.accuracy, event.bytes_out
        mark = min(-(-event.iteration // ROW_EVERY) * ROW_EVERY, self.demo.iterations)
        measured = self._marks.setdefault(mark, _Measured())
        measured.weights.add(weights)
        if event.iteration != mark or event.accuracy is None or event.bytes_out is None:
            return None
        measured.accuracy[event.peer], measured.bytes_out[event.peer] = event.accuracy, event.bytes_out
        measured.at = max(measured.at, event.at)
        return self._row(mark) if len(measured.accuracy) == self.demo.peers else None

    def _take_decision(self, peer: Standing, event: PeerIteration, weights: Weights) -> None:
        """Take a decision about statements: each is about all that a peer knows, so that the last one counts alone."""
        peer.iteration, peer.connected = event.iteration, event.connected or peer.connected
        peer.accuracy = peer.accuracy if event.accuracy is None else event.accuracy
        peer.bytes_out = peer.bytes_out if event.bytes_out is None else event.bytes_out
        if event.heard:
            peer.heard, peer.weights, peer.decided, peer.recent = event.heard, event.weights, event.iteration, [weights]
            self.latest = max(self.latest, event.at)
        self.whole = Weights()
        for each in self.peers:
            self.whole.add(each.lately)
        scores = [each.accuracy for each in self.peers if each.accuracy is not None]
        if len(scores) == len(self.peers):
            before = [point for point in self.history if point[0] < self.known]
            self.history = [*before, (self.known, fmean(scores), min(scores), max(scores))]

    def _statement_row(self) -> Row:
        scores = [peer.accuracy or 0.0 for peer in self.peers]
        iteration = max(peer.iteration for peer in self.peers)
        measured = {
            "iteration": iteration,
            "accuracy_mean": fmean(scores),
            "accuracy_min": min(scores),
            "bytes_sent": fmean(peer.bytes_out for peer in self.peers),
            "seconds": self.seconds,
            "round_seconds": self.seconds / iteration,
        }
        return self._described(self.whole) | measured

    def name(self, key_id: str) -> str:
        """Return the name of a member."""
        number = self._members[key_id]
        return f"peer {number}" if number < self.demo.peers else f"attacker {number - self.demo.peers + 1}"

    def named(self, words: str) -> str:
        """Return words about other members with their names in place of their key ids."""
        names = {key_id[:SHOWN]: self.name(key_id) for key_id in self._members}
        return re.sub(rf"\bpeer ([0-9a-f]{{{SHOWN}}})\b", lambda found: names.get(found[1], found[0]), words)

    @property
    def known(self) -> int:
        """Mean number of statements that a benign peer knows, rounded."""
        return round(fmean(len(peer.heard) for peer in self.peers))

    def number(self, heard: Heard) -> int:
        """Return the number of the member that sent a head."""
        return self._members[heard.sender]

    def numbers(self, key_ids: Iterable[str]) -> list[int]:
        """Return the numbers of members, by key id."""
        return sorted(self._members[key_id] for key_id in key_ids if key_id in self._members)

    @property
    def seconds(self) -> float:
        """Seconds since learning began."""
        return self.latest - self.began

    @property
    def rounds(self) -> float:
        """Mean number of iterations done."""
        return fmean(peer.iteration for peer in self.peers)

    @property
    def heard(self) -> float:
        """Mean share of the other benign peers whose heads a benign peer received in an iteration."""
        return self.heard_share(self.whole)

    def heard_share(self, weights: Weights) -> float:
        """Return the same for some iterations."""
        others = weights.iterations * (self.demo.peers - 1)
        return weights.heard / others if others else 1.0

    def _weights(self, step: PeerIteration) -> Weights:
        found = Weights(iterations=1)
        for one in step.heard:
            if self._members.get(one.sender, self.demo.peers) < self.demo.peers:
                found.benign += one.share
                found.heard += 1
            else:
                found.malicious += one.share
        return found

    def _row(self, iteration: int) -> Row:
        measured = self._marks.pop(iteration)
        scores = measured.accuracy.values()
        row = self._described(measured.weights) | {
            "iteration": iteration,
            "accuracy_mean": fmean(scores),
            "accuracy_min": min(scores),
            "bytes_sent": fmean(measured.bytes_out.values()),
            "seconds": measured.at - self.began,
            "round_seconds": (measured.at - self._last_at) / (iteration - self._last_row),
        }
        self._last_row, self._last_at = iteration, measured.at
        self.history.append((iteration, fmean(scores), min(scores), max(scores)))
        return row

    def _described(self, weights: Weights) -> Row:
        demo = self.demo
        return {
            "figure": FIGURE,
            "rule": demo.rule,
            "attack": demo.attack if demo.attackers else "none",
            "peers": demo.peers,
            "attackers": demo.attackers,
            "classes_per_peer": demo.classes_per_peer,
            "samples_per_class": self._samples,
            "seed": demo.seed,
            "attacker_weight": weights.attackers,
            "weight_benign": weights.benign / max(weights.iterations, 1),
            "weight_malicious": weights.malicious / max(weights.iterations, 1),
            "heard": self.heard_share(weights),
            "engine": "network",
        }
