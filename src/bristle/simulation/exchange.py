"""Worlds whose peers exchange statements: in each exchange, all pass on and weigh the statements they know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from bristle._core import Array, Pool, to_numpy
from bristle._core.arrays import from_numpy
from bristle._core.rng import Stream, draw_many
from bristle.attacks import Attack, Knowledge, View
from bristle.attacks.statements import Scene, StatementAttack
from bristle.learning.metrics import Evaluation
from bristle.rules.evidence import Evidence, EvidenceDecision, Statement
from bristle.rules.evidence.statement import Floats
from bristle.simulation.mailbox import Asynchrony
from bristle.simulation.population import Population
from bristle.simulation.scenario import Scenario
from bristle.simulation.topology import Booleans, Integers, Neighbourhood
from bristle.wire.sizes import raw_statement_bytes


@dataclass(frozen=True, eq=False)
class Exchanged:
    """One exchange: decisions of all benign peers, and the authors of the statements that each knows."""

    decision: EvidenceDecision
    senders: Integers
    mask: Booleans | None


class Exchange:
    """The statements of a world, and which peers know which.

    Peers pass on all statements that they know, since these are signed. Attackers may craft a different statement for
    each victim, which gets it through others too. Statements are made once: while no peer hears anything new, all keep
    their last decision.
    """

    def __init__(self, scenario: Scenario, population: Population, classes: int) -> None:
        if not isinstance(scenario.rule, Evidence):
            raise ValueError(f"{scenario.rule!r} does not exchange statements")
        if scenario.asynchrony != Asynchrony() or not scenario.sharing.plain:
            raise ValueError(
                "peers that exchange evidence act together and share no heads: leave out asynchrony and noise on "
                "heads, or choose a rule that exchanges heads"
            )
        self.rule: Evidence = scenario.rule
        self._scenario, self._classes = scenario, classes
        self._population = population
        self._attack = scenario.attack.pointed_at(scenario.rule)
        self.decided = 0
        self._latest: Exchanged | None = None
        self.known = np.zeros((scenario.peers, scenario.peers + scenario.attackers), dtype=np.bool)
        self.known[np.arange(scenario.peers), np.arange(scenario.peers)] = True

    @cached_property
    def samples(self) -> list[Evaluation]:
        """The samples of each benign peer."""
        return [self._samples_of(peer) for peer in range(self._scenario.peers)]

    @cached_property
    def statements(self) -> list[Statement]:
        """The statement of each benign peer, in 32 bits as it is sent."""
        found = []
        for peer, samples in enumerate(self.samples):
            rng = np.random.default_rng([self._scenario.seed, int(Stream.SHARING), peer])
            found.append(_narrow(self.rule.share(samples, self._classes, rng=rng)))
        return found

    @cached_property
    def _sizes(self) -> Integers:
        return np.array([_size(one) for one in self.statements], dtype=np.int64)

    def _samples_of(self, peer: int) -> Evaluation:
        rows = np.array([peer])
        held, out = self._population.training(rows), self._population.evaluation(rows)
        features = to_numpy(held.features)
        if held.index is not None:
            features = features[np.maximum(to_numpy(held.index), 0)]
        labels = to_numpy(held.labels)
        parts = [(features[0], labels[0])]
        if self.rule.held_out:
            parts.append((to_numpy(out.features)[0], to_numpy(out.labels)[0]))
        x, y = np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
        return Evaluation(x[y >= 0], y[y >= 0])

    @cached_property
    def attackers(self) -> list[Statement]:
        """Statements about the attackers' own samples, with the labels that they use."""
        held = self._population.attackers_hold
        found = []
        for place in range(self._scenario.attackers):
            index, labels = to_numpy(held.index)[place], to_numpy(held.labels)[place]
            features = to_numpy(held.features)[np.maximum(index, 0)]
            found.append(_narrow(self.rule.share(Evaluation(features, labels), self._classes)))
        return found

    @cached_property
    def scene(self) -> Scene:
        """The attackers' knowledge: all honest statements, and all victims' samples."""
        return Scene(self.statements, self.samples, self.attackers, self._classes)

    def advance(self, around: Neighbourhood, iteration: int, like: Array) -> tuple[Exchanged, Integers]:
        """Pass statements to neighbours and decide; return the decisions and the bytes that each benign peer sent."""
        peers = self._scenario.peers
        heard, before = self.known.copy(), self.known
        # Attackers ask every peer for its own statement.
        sent = (
            (around.audience - _heard_by(around, peers)) * self._sizes if iteration == 1 else np.zeros(peers, np.int64)
        )
        for peer in range(peers):
            those = around.peers.index[peer]
            if around.peers.mask is not None:
                those = those[around.peers.mask[peer]]
            heard[peer] |= before[those].any(axis=0)
            # Nothing is sent twice: the first neighbour that has a statement sends it.
            news = np.flatnonzero(heard[peer] & ~before[peer])
            carriers = those[before[np.ix_(those, news)].argmax(axis=0)] if len(news) else news
            np.add.at(sent, carriers, self._sizes_of(news))
            liars = around.attackers.index[peer]
            if around.attackers.mask is not None:
                liars = liars[around.attackers.mask[peer]]
            heard[peer, peers + liars] = True
        self.known = heard
        if not self.decided or not np.array_equal(heard, before):
            self.decided, self._latest = iteration, None
        if self._latest is None:
            self._latest = self._weighed(heard, self.decided, like)
        return self._latest, sent

    def restore(self, known: Booleans, decided: int) -> None:
        """Restore which statements each peer knows, and the last exchange that brought anything new."""
        self.known, self.decided, self._latest = known, decided, None

    def _weighed(self, heard: Booleans, iteration: int, like: Array) -> Exchanged:
        """Return all peers' decisions about the statements that they know [peers, peers + attackers]."""
        peers, attackers = self._scenario.peers, self._scenario.attackers
        width = int(heard.sum(axis=1).max()) - 1
        senders = np.full((peers, width), -1, dtype=np.int64)  # Some know fewer than others.
        mask = np.zeros((peers, width), dtype=np.bool)
        shared = self._shared(iteration) if attackers else []
        parts = []
        for peer in range(peers):
            who = np.flatnonzero(heard[peer])
            who = who[who != peer]
            senders[peer, : len(who)], mask[peer, : len(who)] = who, True
            crafted = self._crafted(peer, who[who < peers], iteration, shared) if (who >= peers).any() else []
            theirs: list[Statement | None] = [
                self.statements[one] if one < peers else crafted[one - peers] for one in who
            ]
            theirs += [None] * (width - len(who))
            rng = np.random.default_rng([self._scenario.seed, int(Stream.MODELS), peer, iteration])
            voices = self._voices(senders[peer]) if self._scenario.branches else None
            parts.append(self.rule.weigh(self.statements[peer], theirs, self.samples[peer], rng, voices).light())
        decision = EvidenceDecision(parts, (peers,), like)
        return Exchanged(decision, senders, None if mask.all() else mask)

    def _voices(self, senders: Integers) -> list[int]:
        """Return the voice of each of some senders; positions without a sender get a voice of their own."""
        return [self._scenario.branches[one] if one >= 0 else -1 for one in senders]

    def _sizes_of(self, who: Integers) -> Integers:
        """Return the size of some statements in bytes; attackers' are as large as honest ones."""
        typical = int(np.median(self._sizes))
        return np.array([self._sizes[one] if one < len(self._sizes) else typical for one in who], dtype=np.int64)

    @property
    def tells_blindly(self) -> bool:
        """Whether the attackers' statements depend on nothing that others state."""
        return not isinstance(self._attack, StatementAttack) and self._attack.knows == Knowledge.NOTHING

    def broadcast(self, honest: Sequence[Statement]) -> list[Statement]:
        """Return the attackers' statements, the same to all victims, given those of honest peers.

        On a network, an attacker that sends each victim a different statement is detected.
        """
        attack = self._attack
        if isinstance(attack, StatementAttack):
            rng = np.random.default_rng([self._scenario.seed, int(Stream.ATTACK), 0, 1])
            return attack.state(self.scene, 0, rng)
        if self.tells_blindly:
            return self._shared(1)
        own = np.stack([one.rows for one in self.attackers])[None]
        view = View(own=own, iteration=1, total=self._scenario.iterations, inbox=_complete(honest)[None])
        return self._stated(attack, view, own)

    def _shared(self, iteration: int) -> list[Statement]:
        """Return the statements of attackers who know nothing of their victims: the same for all."""
        attack = self._attack
        if not self.tells_blindly:
            return []
        own = np.stack([one.rows for one in self.attackers])
        view = View(own=own, iteration=iteration, total=self._scenario.iterations)
        return self._stated(attack, view, own)

    def _crafted(self, victim: int, honest: Integers, iteration: int, shared: list[Statement]) -> list[Statement]:
        """Return the attackers' statements for a victim."""
        attack = self._attack
        if isinstance(attack, StatementAttack):
            rng = np.random.default_rng([self._scenario.seed, int(Stream.ATTACK), victim, iteration])
            return attack.state(self.scene, victim, rng)
        if shared:
            return shared
        own = np.stack([one.rows for one in self.attackers])
        rows = self._complete
        mine = rows[victim]
        view = View(
            own=own[None],
            iteration=iteration,
            total=self._scenario.iterations,
            inbox=Pool(rows, honest[None]),
            victim=mine[None],
            # There is no training step to oppose; the direction of a class from the mean of all takes its place.
            update=(mine - mine.mean(axis=0))[None],
            testable=(to_numpy(self.statements[victim].counts) > 0)[None],
        )
        return self._stated(attack, view, own[None])

    def _stated(self, attack: Attack, view: View, own: np.ndarray) -> list[Statement]:
        rng = None
        if attack.stochastic:
            drawn = draw_many(self._scenario.seed, Stream.ATTACK, np.arange(1), view.iteration, prod(own.shape[-3:]))
            rng = drawn.reshape(own.shape)
        rows = to_numpy(attack(view, rng=rng)).reshape(own.shape[-3:])
        claims = to_numpy(attack.claims(view.seen_by(attack.knows))).reshape(own.shape[-3:-1])
        return [
            Statement(row, one.counts * claim, one.factors, one.diagonal)
            for row, claim, one in zip(rows, claims, self.attackers, strict=True)
        ]

    @cached_property
    def _complete(self) -> np.ndarray:
        return _complete(self.statements)


def _complete(statements: Sequence[Statement]) -> np.ndarray:
    """Return rows [N, C, D] in which classes that a peer does not state are copied from an owner.

    Attacks on heads take means and spreads over all senders: with copies, those of a class are its owners'.
    """
    rows = np.stack([np.asarray(one.rows, dtype=np.float32) for one in statements])
    counts = np.stack([np.asarray(one.counts) for one in statements])
    for label in range(rows.shape[1]):
        owners, others = np.flatnonzero(counts[:, label] > 0), np.flatnonzero(counts[:, label] == 0)
        if len(owners):
            rows[others, label] = rows[owners[np.arange(len(others)) % len(owners)], label]
    return rows


def _heard_by(around: Neighbourhood, peers: int) -> Integers:
    """Return the number of benign peers that hear each benign peer."""
    heard = around.peers.index if around.peers.mask is None else around.peers.index[around.peers.mask]
    return np.bincount(heard.ravel(), minlength=peers)


def _narrow(statement: Statement) -> Statement:
    parts = (statement.rows, statement.counts, statement.factors, statement.diagonal)
    return Statement(*(None if part is None else np.asarray(part, dtype=np.float32) for part in parts))


def _size(statement: Statement) -> int:
    """Return the bytes of a statement as live peers send it, before compression."""
    present, rank = int((np.asarray(statement.counts) > 0).sum()), int(np.asarray(statement.factors).shape[0])
    return raw_statement_bytes(*statement.rows.shape, present=present, rank=rank, encoding="int8")


def augmented(head: Array, bias: Array) -> Array:
    """Return heads [..., C, D + 1] whose last column is the bias, for features with a 1 at the end."""
    stacked: Floats = np.concatenate([to_numpy(head), to_numpy(bias)[..., None]], axis=-1)
    return from_numpy(stacked, like=head, dtype=head.dtype)


def with_ones(features: Array) -> Array:
    """Return features [..., D + 1] with a 1 at the end."""
    plain = to_numpy(features)
    return from_numpy(
        np.concatenate([plain, np.ones_like(plain[..., :1])], axis=-1), like=features, dtype=features.dtype
    )
