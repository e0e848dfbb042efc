"""State of a running peer: samples, head and store, for use from any thread."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from bristle.backbones.base import Backbone
from bristle.backbones.features import extract
from bristle.learning.metrics import accuracy
from bristle.learning.optimiser import HeadState, TrainingSettings
from bristle.learning.samples import Samples, SampleStore
from bristle.p2p.inbox import ReceivedHead
from bristle.p2p.overlay import Overlay
from bristle.p2p.statements import ReceivedStatement
from bristle.peer.evidence import EvidenceLearner, StatedSamples
from bristle.peer.learner import Draws, Learner
from bristle.peer.pace import Traffic
from bristle.peer.record import Iteration, heard_of, senders_of
from bristle.peer.status import RECENT, ClassCount, NeighbourStatus, Status
from bristle.peer.step import StepState
from bristle.peer.store import OwnStatement, PeerStore
from bristle.peer.store_files import StoreError
from bristle.rules import Decision, Rule, learns_alone
from bristle.rules.evidence import Evidence, Statement
from bristle.wire.group import Group
from bristle.wire.statements import SignedStatement

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

WORKER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="bristle")
"""Runs iterations outside the event loop, so that the network waits neither for them nor for the disk.

One thread for all peers of a process: several would only compete for the interpreter.
"""

SAME = 1e-4
"""Largest difference, beside the largest value of a sample, of features that are taken for those of one sample.

A backbone may round differently where other samples go through it at the same time.
"""


class PeerState:
    """A learner, its samples and its store, kept consistent under one lock.

    Parameters
    ----------
    path : Path
        The store.
    identity : str
        Key id of the peer, in hexadecimal.
    group : Group
        The group it belongs to.
    backbone : Backbone
        What makes features of raw inputs.
    rule, training, seed, kappa
        As `Peer` takes them.
    start : array [C, D], optional
        The head to start from where the store holds none.
    """

    def __init__(
        self,
        path: Path,
        *,
        identity: str,
        group: Group,
        backbone: Backbone,
        rule: Rule,
        training: TrainingSettings,
        seed: int,
        kappa: int,
        start: Floats | None = None,
    ) -> None:
        self.identity = identity
        self.group = group
        self.backbone = backbone
        self.store = PeerStore(path, identity=identity, group=group)
        self._seed = seed
        self._lock = threading.Lock()
        train, held_out = self.store.samples()
        samples = SampleStore.restore(train, held_out, classes=len(group.classes), kappa=kappa)
        self._known = {*_digests(train.features, train.labels), *_digests(held_out.features, held_out.labels)}
        removed = self.store.removed()
        self._known |= removed
        self.removals = 0
        """How often samples were removed since the start; rises after all else that a removal changes."""
        records = self.store.decisions(RECENT)
        self.last = records[-1] if records else None
        self.decided = next((record for record in reversed(records) if record.heard), None)
        self.accuracy = next((one.accuracy for one in reversed(records) if one.accuracy is not None), None)
        saved = self.store.load()
        kept, iteration = (saved.state, saved.iteration) if saved else (None, 0)
        self.evidence: EvidenceLearner | None = None
        """The learner, if its peers exchange evidence."""
        self.learner: Learner | EvidenceLearner
        if isinstance(rule, Evidence):
            evidence = EvidenceLearner(samples=samples, rule=rule, seed=seed, state=kept, iteration=iteration)
            if removed and not (len(train.labels) or len(held_out.labels)):
                evidence.keep_only(samples)  # What it decided last may be of samples that have been removed since.
            self.learner = self.evidence = evidence
        else:
            begun = None if start is None else StepState.start(HeadState.start(start), rule)
            self.learner = Learner(
                samples=samples,
                rule=rule,
                draws=Draws(seed),
                training=training,
                state=kept or begun,
                iteration=iteration,
            )
        self.own = self.store.own_statement()
        """The own statement as it was signed last, and of which samples it was made; None before the first."""
        self.releases = self.store.releases()
        """How many statements with noise were drawn; the proof of privacy covers so many and no more."""
        self._kept = {one.author: one for one in self.store.statements()}
        self.iteration = self.learner.iteration
        """The last saved iteration; no later one is ever shared."""

    def features_of(self, x: npt.ArrayLike, *, features: bool) -> Floats:
        """Return features [n, D] of raw inputs, or of features once they are checked."""
        if not features:
            return extract(self.backbone, np.asarray(x), cache=False)
        values = np.asarray(x, dtype=np.float32)
        if values.ndim != 2 or values.shape[1] != self.group.features:
            raise ValueError(f"features have the shape {list(values.shape)}: give [samples, {self.group.features}]")
        if not np.isfinite(values).all():
            raise ValueError("features must be finite numbers")
        return values

    def labels_of(self, y: npt.ArrayLike) -> Integers:
        """Return class numbers [n] of class numbers or names."""
        given = np.asarray(y)
        if given.dtype.kind in "US" and given.ndim == 1:
            number = {name: place for place, name in enumerate(self.group.classes)}
            unknown = sorted(set(given.ravel().tolist()) - set(number))
            if unknown:
                raise ValueError(f"there is no class {unknown[0]!r}: the group has {', '.join(number)}")
            return np.array([number[name] for name in given.tolist()], dtype=np.int64)
        if not given.size:
            return np.zeros(0, dtype=np.int64)
        if given.ndim != 1 or given.dtype.kind not in "iu":
            raise ValueError(f"labels are {given.dtype} {list(given.shape)}: give a class number or a name for each")
        if not 0 <= given.min() <= given.max() < len(self.group.classes):
            wrong = int(given.min()) if given.min() < 0 else int(given.max())
            raise ValueError(f"there is no class {wrong}: give 0 to {len(self.group.classes) - 1}, or a name")
        return given.astype(np.int64)

    def add(self, features: Floats, labels: Integers) -> int:
        """Add new samples to memory and disk; return how many there were.

        Duplicates are skipped: one might be held out, and training on it would spoil the test. So is what was removed.
        """
        if labels.shape != features.shape[:1]:
            raise ValueError(f"{len(features)} samples came with labels of shape {list(labels.shape)}: give one each")
        with self._lock:
            new, digests = list[int](), set[bytes]()
            for place, digest in enumerate(_digests(features, labels)):
                if digest not in self._known and digest not in digests:
                    new.append(place)
                    digests.add(digest)
            if not new:
                return 0
            samples = self.learner.samples
            train, held_out = len(samples.training.labels), len(samples.evaluation.labels)
            samples.add(features[new], labels[new], rng=np.random.default_rng([self._seed, len(self._known)]))
            added, tested = samples.training, samples.evaluation
            try:
                self.store.add_samples(
                    Samples(added.features[train:], added.labels[train:]),
                    Samples(tested.features[held_out:], tested.labels[held_out:]),
                )
            except StoreError:
                # Not on the disk means not added: another try must not find it as a duplicate.
                self.learner.samples = SampleStore.restore(
                    Samples(added.features[:train], added.labels[:train]),
                    Samples(tested.features[:held_out], tested.labels[:held_out]),
                    classes=samples.classes,
                    kappa=samples.kappa,
                )
                raise
            self._known |= digests
            return len(new)

    def remove(self, features: Floats, labels: Integers) -> int:
        """Remove samples from memory and disk; return how many were found. Features may differ by rounding."""
        if labels.shape != features.shape[:1]:
            raise ValueError(f"{len(features)} samples came with labels of shape {list(labels.shape)}: give one each")
        with self._lock:
            parts: list[Any] = [self.learner.samples.training, self.learner.samples.evaluation]
            gone = [np.zeros(len(part.labels), dtype=np.bool) for part in parts]
            for row, label in zip(features, labels, strict=True):
                nearby = SAME * float(np.abs(row).max(initial=0))
                for mask, part in zip(gone, parts, strict=True):
                    places = np.flatnonzero(part.labels == label)
                    mask[places[np.abs(part.features[places] - row).max(axis=1, initial=0) <= nearby]] = True
            return self._remove(gone)

    def remove_classes(self, labels: Integers) -> int:
        """Remove all samples of some classes from memory and disk; return how many there were."""
        with self._lock:
            samples = self.learner.samples
            return self._remove([np.isin(part.labels, labels) for part in (samples.training, samples.evaluation)])

    def _remove(self, gone: Sequence[npt.NDArray[np.bool]]) -> int:
        removed = sum(int(mask.sum()) for mask in gone)
        if not removed:
            return 0
        samples, own = self.learner.samples, self.own
        parts: list[Any] = [samples.training, samples.evaluation]
        digests = [
            digest
            for part, mask in zip(parts, gone, strict=True)
            for digest in _digests(part.features[mask], part.labels[mask])
        ]
        if own is not None:
            own = OwnStatement(own.signed, own.stated.without(gone, samples))
        self.store.remove_samples(*gone, digests=digests, own=own)
        rest = [
            Samples(part.features[~mask].copy(), part.labels[~mask].copy())
            for part, mask in zip(parts, gone, strict=True)
        ]
        self.learner.keep_only(SampleStore.restore(*rest, classes=samples.classes, kappa=samples.kappa))
        self.own = own
        self.removals += 1
        return removed

    def iterate(
        self,
        messages: Sequence[ReceivedHead] | Sequence[ReceivedStatement],
        *,
        total: int | None,
        test: tuple[Floats, Integers] | None,
        measure: bool,
        counters: Mapping[str, int],
        spending: Mapping[int, int],
    ) -> tuple[Iteration, Decision, tuple[bytes, ...]]:
        """Run one iteration and save it; measure the accuracy on `test` if asked to, and after a decision on evidence.

        Returns the record, the decision, and the senders that it is about. Peers that exchange evidence pass all
        statements that they know; where nothing has changed, the decision is about nobody. If the iteration cannot be
        saved, it is undone: the next one starts from the same state.
        """
        began = time.perf_counter()
        with self._lock:
            learner: Any = self.learner  # Each takes messages of its own kind.
            before = learner.state
            trained = bool(learner.samples.trained.any())
            decision: Decision
            known = self._kept
            if self.evidence is not None:
                known = {one.author: one.signed for one in cast("Sequence[ReceivedStatement]", messages)}
            if self.evidence is not None and not learner.is_news(messages):
                decision, messages = self.evidence.rest(), ()
            else:
                measure = measure or self.evidence is not None
                decision = learner.iterate(messages, total=total)
            senders = senders_of(messages)
            took = time.perf_counter() - began
            record = Iteration(
                iteration=learner.iteration,
                at=time.time(),
                seconds=round(took, 6),
                heard=heard_of(decision, messages),
                trained=trained,
                accuracy=float(accuracy(learner.scores(test[0]), test[1])) if measure and test is not None else None,
            )
            try:
                self.store.save(
                    learner.iteration,
                    learner.state,
                    record,
                    counters=counters,
                    spending=spending,
                    statements=[one for one in known.values() if self._kept.get(one.author) != one],
                    forgotten=[author for author in self._kept if author not in known],
                )
            except StoreError:
                learner.go_back(before, self.iteration)
                raise
            self.iteration, self._kept = learner.iteration, known
            self.last, self.decided = record, record if record.heard else self.decided
            self.accuracy = self.accuracy if record.accuracy is None else record.accuracy
        return record, decision, senders

    def count_release(self) -> None:
        """Count a statement with noise, before it is drawn."""
        self.store.count_release()
        self.releases += 1

    def own_statement(self, wanted: StatedSamples, *, removals: int) -> Statement | None:
        """Return the statement of samples that were chosen after so many removals; None if there were more since."""
        with self._lock:
            assert self.evidence is not None
            return self.evidence.own_statement(wanted) if removals == self.removals else None

    def keep_own(self, own: OwnStatement, *, removals: int) -> bool:
        """Keep the own statement, unless there were more removals since; it is on the disk when this returns."""
        with self._lock:
            if removals != self.removals:
                return False
            self.store.keep_own_statement(own)
            self.own = own
            return True

    @property
    def kept_statements(self) -> list[SignedStatement]:
        """What others stated, as it was kept last."""
        return list(self._kept.values())

    def learns_alone(self) -> str | None:
        """Return why the rule can test no received head, as a sentence; None if it can."""
        counts = np.bincount(self.learner.samples.evaluation.labels, minlength=len(self.group.classes))
        return learns_alone(self.learner.rule, counts)

    def probabilities(self, features: Floats) -> Floats:
        """Return the softmax of the scores, the probability of each class [n, C]."""
        outputs = self.learner.scores(features)
        outputs = np.exp(outputs - outputs.max(axis=1, keepdims=True, initial=-np.inf))
        shares: Floats = outputs / outputs.sum(axis=1, keepdims=True)
        return shares

    def class_counts(self) -> tuple[ClassCount, ...]:
        """Return the number of samples of each class."""
        with self._lock:
            parts: list[Any] = [self.learner.samples.training.labels, self.learner.samples.evaluation.labels]
        training, held_out = (np.bincount(labels, minlength=len(self.group.classes)) for labels in parts)
        return tuple(
            ClassCount(name=name, training=int(training[label]), held_out=int(held_out[label]))
            for label, name in enumerate(self.group.classes)
        )

    def close(self) -> None:
        """Close the store when no other thread uses it."""
        with self._lock:
            self.store.close()


def checked_classes(classes: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the classes; raise ValueError unless they are distinct."""
    if isinstance(classes, str):
        raise ValueError(f"classes must be a list of names, not the text {classes!r}")
    if len(classes) < 2 or len(set(classes)) < len(classes):
        raise ValueError(f"classes {tuple(classes)}: give at least two different names, the same for all peers")
    return tuple(classes)


def checked_test(features: npt.ArrayLike, labels: npt.ArrayLike, *, depth: int, every: int) -> tuple[Floats, Integers]:
    """Return a test set as arrays, features [n, depth] and labels [n]; raise ValueError if it is malformed."""
    if every < 1:
        raise ValueError(f"test_every={every}: give at least 1 iteration")
    values, numbers = np.asarray(features, dtype=np.float32), np.asarray(labels, dtype=np.int64)
    if values.ndim != 2 or values.shape[1] != depth or numbers.shape != values.shape[:1]:
        raise ValueError(
            f"the test set has features {list(values.shape)} and labels {list(numbers.shape)}: "
            f"give [n, {depth}] and [n]"
        )
    return values, numbers


def _digests(features: npt.NDArray[Any], labels: npt.NDArray[Any]) -> list[bytes]:
    """Return one digest per sample."""
    rows = np.ascontiguousarray(features, dtype="<f4")
    return [
        hashlib.blake2b(int(label).to_bytes(8, "little", signed=True) + row.tobytes(), digest_size=16).digest()
        for row, label in zip(rows, labels, strict=True)
    ]


def status_of(overlay: Overlay, state: PeerState, traffic: Traffic, *, waiting: str | None) -> Status:
    """Return the status of a running peer."""
    return Status(
        running=True,
        key_id=state.identity,
        application=state.group.application,
        iteration=state.iteration,
        samples=state.class_counts(),
        counters=traffic.totals(),
        bytes_last_day=traffic.budget.last_day,
        last=state.last,
        decided=state.decided,
        accuracy=state.accuracy,
        address="{}:{}".format(*overlay.address),
        neighbours=tuple(
            NeighbourStatus(
                key_id=one.key_id.hex(),
                address=None if one.address is None else "{}:{}".format(*one.address),
                silent=round(one.last_heard, 1),
                reached=one.reached,
                forwarder=None if one.forwarder is None else one.forwarder.hex(),
                difference=one.difference,
            )
            for one in overlay.neighbours()
        ),
        waiting=waiting,
    )
