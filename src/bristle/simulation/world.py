"""A world of peers that hear each other, and attackers that all of them hear."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from bristle.arrays import Array, Pool, keyed_uniforms
from bristle.attacks import Attack, Knowledge, View
from bristle.attacks import create as create_attack
from bristle.data import partitions
from bristle.learning.adam import HeadState, TrainingSettings
from bristle.learning.metrics import Evaluation, accuracy
from bristle.learning.training import held_labels, train_step
from bristle.peer.step import PeerState, Samples, step
from bristle.rules import Bristle, Decision, Rule
from bristle.simulation.features import FeatureData

# Streams of random numbers, one for each use, so that none depends on how much another one draws.
BATCHES, MODELS, ATTACK = 0, 1, 2


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What a world is like.

    Parameters
    ----------
    peers, attackers : int
        Benign peers, and attackers on top of them.
    rule : Rule
        What every benign peer does with received heads.
    attack : Attack
        What the attackers send. They own samples of all classes, train alone and never integrate.
    classes_per_peer : int
        Peer i holds the classes {i, ..., i + k - 1} modulo all.
    samples_per_class, held_out : int
        Training and test samples that a peer has of each of its classes.
    iterations : int
        How long the run will be.
    seed : int
        Of every random draw.
    """

    peers: int = 10
    attackers: int = 0
    rule: Rule = field(default_factory=Bristle)
    attack: Attack = field(default_factory=lambda: create_attack("none"))
    classes_per_peer: int = 4
    samples_per_class: int = 2
    held_out: int = 10
    iterations: int = 300
    seed: int = 0
    training: TrainingSettings = field(default_factory=TrainingSettings)


class World:
    """Peers in the middle of a run. `advance()` is one iteration of everybody; nothing else changes the world."""

    def __init__(self, scenario: Scenario, data: FeatureData) -> None:
        self.scenario = scenario
        self.data = data
        self.iteration = 0
        benign, attackers, classes = scenario.peers, scenario.attackers, len(data.classes)
        if benign < 1 or attackers < 0:
            raise ValueError(f"a world needs at least 1 peer and 0 attackers, not {benign} and {attackers}")
        if not 1 <= scenario.classes_per_peer <= classes:
            raise ValueError(f"classes_per_peer must lie between 1 and {classes}, not {scenario.classes_per_peer}")
        holdings = [[(peer + j) % classes for j in range(scenario.classes_per_peer)] for peer in range(benign)] + [
            list(range(classes))
        ] * attackers
        partition = partitions.create(
            "classes", lists=holdings, samples=scenario.samples_per_class, held_out=scenario.held_out
        )(data.train_labels, peers=benign + attackers, seed=scenario.seed)
        padded = partition.padded()
        self.held = self._samples(padded.train[:benign])
        self.evaluation = self._evaluation(padded.held_out[:benign])
        self.attackers_hold = self._flipped(self._samples(padded.train[benign:]))
        shape = (classes, data.train.shape[1])
        self.state = PeerState.start(HeadState.zeros((benign, *shape), like=data.train))
        self.attackers_state = HeadState.zeros((attackers, *shape), like=data.train)
        self._sent: Array | None = None
        self._stood = self.state.head
        others = np.arange(benign)
        self._neighbours = np.stack([np.delete(others, i) for i in others])

    @property
    def heads(self) -> Array:
        """The heads of the benign peers [peers, C, D]."""
        return self.state.head

    def advance(self) -> Decision:
        """Let every peer integrate, train and share once; return what the benign peers decided."""
        self.iteration += 1
        scenario, benign = self.scenario, self.scenario.peers
        received = self._inbox()
        models = received.index.shape[-1]
        self.state, decision = step(
            self.state,
            received,
            rule=scenario.rule,
            samples=self.held,
            evaluation=self.evaluation,
            batch_draws=self._draws(BATCHES, range(benign), self.held.labels.shape[-1]),
            model_draws=self._draws(MODELS, range(benign), models),
            iteration=self.iteration,
            total=scenario.iterations,
            settings=scenario.training,
        )
        if scenario.attackers and scenario.attack.trains:
            everyone = range(benign, benign + scenario.attackers)
            held = self.attackers_hold
            self.attackers_state = train_step(
                self.attackers_state,
                held.features,
                held.labels,
                self._draws(BATCHES, everyone, held.labels.shape[-1]),
                index=held.index,
                settings=scenario.training,
            )
        return decision

    def accuracy(self) -> Array:
        """Accuracy of each benign peer on the whole test set [peers]."""
        heads = self.heads
        outputs = self.data.test @ heads.reshape(-1, heads.shape[-1]).T
        outputs = outputs.reshape(len(outputs), *heads.shape[:2]).swapaxes(0, 1)
        return accuracy(outputs, self.data.test_labels[None, :])

    def _inbox(self) -> Pool:
        """The heads that benign peers hear: those of all others, then the attackers'."""
        scenario, heads = self.scenario, self.heads
        benign, attackers = scenario.peers, scenario.attackers
        index = self._neighbours
        if not attackers:
            return Pool(heads, index)
        sent = self._attack(index)
        self._sent = sent
        pooled = np.concatenate([heads, sent.reshape(-1, *heads.shape[1:])])
        theirs = benign + np.arange(len(pooled) - benign).reshape(-1, attackers)
        return Pool(pooled, np.concatenate([index, np.broadcast_to(theirs, (benign, attackers))], axis=1))

    def _attack(self, index: Array) -> Array:
        """What the attackers send to each victim [peers, K, C, D], or to all alike [K, C, D]."""
        scenario, heads, attack = self.scenario, self.heads, self.scenario.attack
        own, whom = self.attackers_state.head, range(scenario.peers)
        view = View(own=own, iteration=self.iteration, total=scenario.iterations, sent=self._sent)
        shape = own.shape
        if attack.knows != Knowledge.NOTHING:
            shape = (scenario.peers, *own.shape)
            view = replace(
                view,
                own=np.broadcast_to(own, shape),
                inbox=Pool(heads, index),
                victim=heads,
                previous=self._stood,
                testable=self._testable(),
            )
        # Each victim's neighbourhood, and where it stood: the attackers of the next round will look back.
        self._stood = (heads + heads[index].sum(axis=1)) / (index.shape[1] + 1)
        if not attack.samples:
            return attack(view)
        numbers = prod(own.shape)
        draws = self._draws(ATTACK, whom if len(shape) > 3 else range(1), numbers)
        return attack(view, rng=draws.reshape(shape))

    def _testable(self) -> Array:
        labels = self.evaluation.labels
        classes = np.arange(len(self.data.classes))
        return (labels[:, :, None] == classes).sum(axis=1) >= self.scenario.held_out

    def _samples(self, index: Array) -> Samples:
        return Samples(self.data.train, held_labels(self.data.train_labels, index), index)

    def _flipped(self, samples: Samples) -> Samples:
        return Samples(samples.features, self.scenario.attack.labels(samples.labels), samples.index)

    def _evaluation(self, index: Array) -> Evaluation:
        labels = held_labels(self.data.train_labels, index)
        return Evaluation(self.data.train[np.maximum(index, 0)], labels)

    def _draws(self, stream: int, peers: Iterable[int], size: int) -> Array:
        # Draws are 32-bit like the features, so that every library sees the same numbers.
        key = 3 * self.iteration + stream
        return keyed_uniforms(self.scenario.seed, np.fromiter(peers, dtype=np.int64), key, size).astype(np.float32)
