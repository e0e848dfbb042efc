"""Snapshots of a simulated world: recorded while it runs, assembled when somebody is watching."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from bristle._core import to_numpy
from bristle.commands.dashboard import Feed
from bristle.report.snapshot import Judgement, Member, MemberKind, Point, RunState, Snapshot, room_for
from bristle.rules.decision import Reason
from bristle.rules.evidence import EvidenceDecision
from bristle.simulation import FeatureData, Scenario
from bristle.simulation.measurement import Measurement
from bristle.simulation.population import Population, oracle_accuracy, populate
from bristle.simulation.results import Row, attack_name, rule_name
from bristle.simulation.world import Round
from bristle.wire.sizes import head_bytes

Integers = npt.NDArray[np.int64]

REFUSALS = (Reason.WRONG_SHAPE, Reason.WRONG_DTYPE, Reason.NOT_FINITE, Reason.TOO_LARGE)
MOST_POOLED = 20_000
"""Largest number of samples that an oracle is trained on: more would take too long."""


class SimulationBoard:
    """Follows a run for a page, or for the last row of its results.

    Parameters
    ----------
    scenario, data
        The world.
    feed : Feed, optional
        Where to publish snapshots; None if only the last one is needed.
    """

    def __init__(self, scenario: Scenario, data: FeatureData, feed: Feed | None = None) -> None:
        self.scenario, self.data, self.feed = scenario, data, feed
        self.history: list[Point] = []
        self._population = populate(scenario, data)
        self._shown = np.arange(min(room_for(len(data.classes)), scenario.peers + scenario.attackers))
        self._chosen = False
        self._heard = np.zeros(scenario.peers, dtype=np.int64)
        self._refused = np.zeros((scenario.peers, len(REFUSALS)), dtype=np.int64)
        self._measured: Measurement | None = None
        self._latest: Round | None = None
        self._judgements: dict[int, Judgement] = {}
        self._hears: dict[int, tuple[int, ...]] = {}
        self._iteration = 0
        self._oracle: Future[float | None] | None = None
        self.show(RunState.STARTING)

    def wants_weights(self) -> bool:
        """Return whether the next iteration's weights are needed."""
        return self.feed is not None and self.feed.wanted

    def decided(self, latest: Round) -> None:
        """Record an iteration: counts always, the rest only if somebody is watching."""
        self._iteration = latest.iteration
        if not self._chosen:
            self._shown = _chosen(latest, self.scenario, len(self._shown))
            self._chosen = True
        reasons = to_numpy(latest.decision.reasons)
        there = np.ones(reasons.shape, dtype=np.bool) if latest.mask is None else latest.mask
        self._heard[latest.receivers] += there.sum(axis=1)
        for place, reason in enumerate(REFUSALS):
            self._refused[latest.receivers, place] += (reasons == int(reason)).sum(axis=1)
        if self.wants_weights() or latest.iteration == self.scenario.iterations:
            self._latest = latest

    def measured(self, iteration: int, measured: Measurement) -> None:
        """Record an evaluation; its row comes next."""
        self._measured = measured

    def row(self, row: Row) -> None:
        """Record a row; those of a checkpoint lack the best peer."""
        best = None if self._measured is None else float(self._measured.accuracy.max())
        low = None if best is None else row["accuracy_min"]
        self.history.append((row["iteration"], row["accuracy_mean"], low, best))

    def iterated(self, iteration: int) -> None:
        """Publish a finished iteration if somebody is watching."""
        if self._latest is not None:
            self._judge(self._latest)
            self._latest = None
            self.show(RunState.RUNNING)

    def show(self, state: RunState) -> None:
        """Publish a snapshot."""
        if self.feed is not None:
            self.feed.publish(lambda: self.snapshot(state, whole=state is RunState.ENDED and self._looked_at))

    def snapshot(self, state: RunState, *, whole: bool = True) -> Snapshot:
        """Return a snapshot; unless `whole`, without the oracle while that is still being trained."""
        scenario, place = self.scenario, {int(member): at for at, member in enumerate(self._shown)}
        attackers = ", no attackers"
        if scenario.attackers:
            attackers = f" and {scenario.attackers} attackers ({attack_name(scenario.attack)})"
        return Snapshot(
            title="Simulation",
            subtitle=f"{scenario.peers} peers{attackers}, rule: {rule_name(scenario.rule)}, seed {scenario.seed}",
            rule=rule_name(scenario.rule),
            state=state,
            iteration=self._iteration,
            total=scenario.iterations,
            unit="exchanges" if scenario.rule.shares == "evidence" else "iteration",
            phrases=tuple(reason.words for reason in Reason) if scenario.rule.shares == "evidence" else (),
            classes=tuple(self.data.classes),
            members=tuple(self._member(int(member), place) for member in self._shown),
            judgements=tuple(self._judgements.values()),
            history=self.history,
            band="Mean of the benign peers on the test set; the band goes from the worst peer to the best.",
            oracle=self._oracle_accuracy(whole),
            left_out=scenario.peers + scenario.attackers - len(self._shown),
        )

    @property
    def _looked_at(self) -> bool:
        return self.feed is not None and self.feed.watched

    def _oracle_accuracy(self, whole: bool) -> float | None:
        """Return the accuracy of the oracle, which is trained beside the run once somebody is watching."""
        if self._oracle is None and (whole or self._looked_at):
            beside = ThreadPoolExecutor(1, thread_name_prefix="bristle-oracle")
            self._oracle = beside.submit(oracle_of, self._population, self.data)
            beside.shutdown(wait=False)
        return self._oracle.result() if self._oracle is not None and (whole or self._oracle.done()) else None

    def _member(self, member: int, place: dict[int, int]) -> Member:
        peers = self.scenario.peers
        if member >= peers:
            held = tuple(range(len(self.data.classes)))
            return Member(name=f"attacker {member - peers + 1}", kind=MemberKind.MALICIOUS, holds=held)
        labels = to_numpy(self._population.held.labels)[member]
        measured = self._measured
        return Member(
            name=f"peer {member}",
            kind=MemberKind.BENIGN,
            holds=tuple(int(label) for label in np.unique(labels[labels >= 0])),
            iteration=self._iteration,
            accuracy=None if measured is None else float(measured.accuracy[member]),
            bytes_in=int(self._heard[member]) * head_bytes(len(self.data.classes), int(self.data.train.shape[1])),
            bytes_out=None if measured is None else int(measured.bytes_sent[member]),
            refused={
                reason.words.removeprefix("refused: "): int(count)
                for reason, count in zip(REFUSALS, self._refused[member], strict=True)
                if count
            },
            hears=self._hears.get(member) if member in place else None,
        )

    def _judge(self, latest: Round) -> None:
        """Keep the last decision of every receiver that is shown."""
        place = {int(member): at for at, member in enumerate(self._shown)}
        reasons, weights = to_numpy(latest.decision.reasons), to_numpy(latest.decision.weights)
        for row, receiver in enumerate(latest.receivers):
            if int(receiver) not in place:
                continue
            senders = latest.senders[row]
            there = np.ones(len(senders), dtype=np.bool) if latest.mask is None else latest.mask[row]
            known = np.array([int(sender) in place for sender in senders], dtype=np.bool)
            kept = np.flatnonzero(there & known)
            self._judgements[place[int(receiver)]] = Judgement(
                receiver=place[int(receiver)],
                iteration=latest.iteration,
                senders=[place[int(sender)] for sender in senders[kept]],
                reasons=reasons[row, kept].tolist(),
                weights=np.asarray(weights[row, kept], dtype=np.float64),
                unseen=int((there & ~known).sum()),
                class_words=to_numpy(latest.decision.class_reasons)[row, kept]
                if isinstance(latest.decision, EvidenceDecision)
                else None,
            )
            self._hears[int(receiver)] = tuple(place[int(sender)] for sender in senders[known])


def oracle_of(population: Population, data: FeatureData) -> float | None:
    """Return the accuracy of one head that is trained on all benign peers' samples; None where they are too many."""
    pooled = int((to_numpy(population.held.labels) >= 0).sum())
    if not 0 < pooled <= MOST_POOLED or not isinstance(data.train, np.ndarray):
        return None
    return oracle_accuracy(population.held, data)


def _chosen(latest: Round, scenario: Scenario, room: int) -> Integers:
    """Return the members to show if there are too many: receivers together with those that they hear."""
    everybody = scenario.peers + scenario.attackers
    if everybody <= room:
        return np.arange(everybody)
    shown: set[int] = set()
    for row, receiver in enumerate(latest.receivers):
        there = slice(None) if latest.mask is None else latest.mask[row]
        more = {int(receiver), *(int(sender) for sender in latest.senders[row][there][: room + 1])}
        if len(shown | more) > room:
            break
        shown |= more
    # Whoever is left fills the room: some of the attackers, who are numbered last, and the first peers.
    others = (*range(scenario.peers, min(everybody, scenario.peers + room // 4)), *range(scenario.peers))
    for member in others:
        if len(shown) >= room:
            break
        shown.add(member)
    return np.array(sorted(shown))
