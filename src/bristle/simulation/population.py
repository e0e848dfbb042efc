"""Features of a dataset, and which peer holds which samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bristle._core import Array, namespace, to_numpy
from bristle._core.arrays import from_numpy
from bristle._core.rng import Stream, draw
from bristle.backbones import Backbone, extract
from bristle.data import Dataset, partitions
from bristle.learning import Evaluation, Samples, TrainingSettings, accuracy_on, train_oracle
from bristle.learning.baselines import ITERATIONS as ORACLE_STEPS
from bristle.learning.training import DEFAULTS, held_labels
from bristle.rules import Rule
from bristle.simulation.indexing import rows_of
from bristle.simulation.scenario import Scenario
from bristle.simulation.topology import Booleans, Integers


@dataclass(frozen=True)
class FeatureData:
    """Features and labels for training [N, D], [N] and for testing, names of the classes, and users if known.

    Make one from arrays of features to run worlds without a backbone.
    """

    train: Array
    train_labels: Array
    test: Array
    test_labels: Array
    classes: tuple[str, ...]
    user: np.ndarray[Any, Any] | None = None
    test_user: np.ndarray[Any, Any] | None = None

    @property
    def arrays(self) -> tuple[Array, Array, Array, Array]:
        """Features and labels for training, then for testing, as `FeatureData` takes them."""
        return self.train, self.train_labels, self.test, self.test_labels

    @classmethod
    def labels_only(
        cls, labels: Any, classes: tuple[str, ...], *, user: np.ndarray[Any, Any] | None = None
    ) -> FeatureData:
        """Return data with one feature that is 0: enough to assign samples to peers and to check a scenario."""
        known = np.asarray(labels, dtype=np.int64)
        nothing = np.zeros((len(known), 1), dtype=np.float32)
        return cls(nothing, known, nothing[:1], known[:1], classes, user)


def prepare(
    dataset: Dataset,
    backbone: Backbone,
    *,
    test_samples: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> FeatureData:
    """Extract the features of a dataset, or take them from the cache.

    `test_samples` limits the test set to its first samples.
    """
    return FeatureData(
        train=extract(backbone, dataset.x_train, progress=progress),
        train_labels=np.asarray(dataset.y_train, dtype=np.int64),
        test=extract(backbone, dataset.x_test[:test_samples], progress=progress),
        test_labels=np.asarray(dataset.y_test[:test_samples], dtype=np.int64),
        classes=dataset.classes,
        user=dataset.user,
        test_user=None if dataset.test_user is None else dataset.test_user[:test_samples],
    )


# Held-out features up to this many bytes are gathered once; larger ones in every iteration.
KEPT_BYTES = 3 << 29


@dataclass(frozen=True, eq=False)
class Population:
    """The samples of a world.

    Parameters
    ----------
    held : Samples [peers, S]
        Training samples of benign peers.
    held_out : Samples [peers, T]
        Held-out samples, on which they test received heads.
    attackers_hold : Samples [attackers, S']
        Training samples of attackers, with labels changed by the attack.
    offsets : array [peers, D], optional
        Offsets of each benign peer's features, if users differ.
    """

    held: Samples
    held_out: Samples
    attackers_hold: Samples
    offsets: Array | None

    def training(self, rows: Integers | None) -> Samples:
        """Return the training samples of some of the benign peers (None: all)."""
        return samples_of(self.held, rows) if self.offsets is None else self._moved(self.held, rows)

    def evaluation(self, rows: Integers | None) -> Evaluation:
        """Return the held-out samples of some of the benign peers (None: all)."""
        moved = self._moved(self.held_out, rows)
        return Evaluation(moved.features, moved.labels)

    def held_out_counts(self, classes: int) -> Integers:
        """Count the held-out samples of each benign peer and class [peers, C]."""
        return class_counts(self.held_out, classes)

    def testable(self, classes: int, rule: Rule) -> Booleans:
        """Return the classes that each benign peer can test: with enough held-out samples for a rule [peers, C]."""
        enough: Booleans = self.held_out_counts(classes) >= max(1, rule.test_samples)
        return enough

    def claims(self, classes: int, rule: Rule) -> Booleans:
        """Return the classes that each benign peer both trains and can test [peers, C]."""
        return (class_counts(self.held, classes) > 0) & self.testable(classes, rule)

    def _moved(self, samples: Samples, rows: Integers | None) -> Samples:
        samples = samples_of(samples, rows)
        xp, index = namespace(samples.features), samples.index
        found = xp.take(samples.features, xp.reshape(xp.where(index >= 0, index, xp.zeros_like(index)), (-1,)), axis=0)
        features = xp.reshape(found, (*index.shape, samples.features.shape[-1]))
        if self.offsets is not None:
            features = features + rows_of(self.offsets, rows)[:, None, :]
        return Samples(features, samples.labels)


def populate(scenario: Scenario, data: FeatureData) -> Population:
    """Distribute the samples of `data` to benign peers and attackers."""
    classes, labels = len(data.classes), to_numpy(data.train_labels)
    if scenario.partition is None:
        train, held_out, theirs = _consecutive(scenario, labels, classes)
    else:
        train, held_out, theirs = _partitioned(scenario, data, labels)
    offsets = _offsets(scenario, data.train) if scenario.user_shift else None
    attackers = _samples(data, theirs)
    flipped = Samples(attackers.features, scenario.attack.labels(attackers.labels), attackers.index)
    return Population(_samples(data, train), _samples(data, held_out), flipped, offsets)


def _consecutive(scenario: Scenario, labels: Integers, classes: int) -> tuple[Integers, Integers, Integers]:
    k, benign, attackers = scenario.classes_per_peer, scenario.peers, scenario.attackers
    if not 1 <= k <= classes:
        raise ValueError(f"classes_per_peer must lie between 1 and {classes}, not {k}")
    lists = [[(peer + j) % classes for j in range(k)] for peer in range(benign)] + [list(range(classes))] * attackers
    share = partitions.create(
        "classes", lists=lists, samples=scenario.samples_per_class, held_out=scenario.held_out, reuse=scenario.reuse
    )
    padded = share(labels, peers=benign + attackers, seed=scenario.seed).padded()
    # The attackers hold all classes; the others' rows need no padding to that length.
    return _unpadded(padded.train[:benign]), _unpadded(padded.held_out[:benign]), padded.train[benign:]


def _unpadded(index: Integers) -> Integers:
    """Drop the columns on the right that are padding in every row; keep at least one."""
    return index[:, : max(1, int((index >= 0).sum(axis=1).max(initial=0)))]


def _partitioned(scenario: Scenario, data: FeatureData, labels: Integers) -> tuple[Integers, Integers, Integers]:
    assert scenario.partition is not None
    # A partition uses labels, classes and users only.
    nothing, no_labels = np.zeros((len(labels), 1), dtype=np.uint8), np.zeros(0, dtype=np.int64)
    source = Dataset(nothing, labels, nothing[:0], no_labels, classes=data.classes, user=data.user, name="the data")
    partition = scenario.partition(source, peers=scenario.peers, seed=scenario.seed)
    padded = partition.padded()
    if not scenario.attackers:
        return padded.train, padded.held_out, np.zeros((0, 1), dtype=np.int64)
    free = np.setdiff1d(np.arange(len(labels)), np.concatenate([partition.train.flat, partition.held_out.flat]))
    # If the benign peers hold all samples of a class, attackers share some of these.
    if len(np.unique(labels[free])) < len(np.unique(labels)):
        free = np.arange(len(labels))
    everything = partitions.IID(samples=scenario.samples_per_class, held_out=0, reuse=True)
    theirs = everything(labels[free], peers=scenario.attackers, seed=scenario.seed).padded().train
    return padded.train, padded.held_out, free[theirs]


def oracle_accuracy(
    held: Samples, data: FeatureData, *, steps: int = ORACLE_STEPS, settings: TrainingSettings = DEFAULTS
) -> float:
    """Return the test accuracy of one head trained on the samples of all peers together."""
    assert held.index is not None
    index = to_numpy(held.index)
    index = index[index >= 0]
    head = train_oracle(data.train[index], data.train_labels[index], len(data.classes), steps=steps, settings=settings)
    return float(accuracy_on(head, data.test, data.test_labels))


def class_counts(samples: Samples, classes: int) -> Integers:
    """Count the samples of each peer and class [peers, C]."""
    labels = to_numpy(samples.labels)
    return np.stack([(labels == number).sum(axis=1) for number in range(classes)], axis=1)


def _samples(data: FeatureData, index: Integers) -> Samples:
    rows = from_numpy(index, like=data.train)
    return Samples(data.train, held_labels(data.train_labels, rows), rows)


def _offsets(scenario: Scenario, features: Array) -> Array:
    """Draw Gaussian offsets (Box and Muller 1958) in units of each feature's standard deviation."""
    xp, width = namespace(features), int(features.shape[-1])
    draws = draw(scenario.seed, Stream.SHIFT, np.arange(scenario.peers), 0, 2 * width)
    radius = np.sqrt(-2 * np.log1p(-draws[:, :width]))
    gaussian = from_numpy(radius * np.cos(2 * np.pi * draws[:, width:]), like=features, dtype=features.dtype)
    return gaussian * (scenario.user_shift * xp.std(features, axis=0))


def samples_of(samples: Samples, rows: Integers | None) -> Samples:
    """Return the samples of some of the peers (None: all)."""
    return Samples(samples.features, rows_of(samples.labels, rows), rows_of(samples.index, rows))
