from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bristle import rules
from bristle.attacks import create as create_attack
from bristle.learning.metrics import Evaluation
from bristle.learning.samples import Samples, SampleStore
from bristle.p2p.statements import ReceivedStatement
from bristle.peer.evidence import FLOOR, EvidenceLearner, StatedSamples, hides, stated_counts
from bristle.peer.record import Iteration, heard_of
from bristle.peer.store import _packed_counts, _unpacked_counts
from bristle.rules.evidence import Evidence, Statement, state
from bristle.simulation import Scenario, World
from bristle.simulation.population import FeatureData
from bristle.wire import Group, Identity
from bristle.wire.statements import sign_statement

CLASSES, FEATURES = 5, 12


def make_data() -> FeatureData:
    rng = np.random.default_rng(3)
    centres = rng.normal(size=(CLASSES, FEATURES))
    labels = np.arange(400) % CLASSES
    features = (centres[labels] + rng.normal(scale=0.7, size=(400, FEATURES))).astype(np.float32)
    names = tuple(str(number) for number in range(CLASSES))
    return FeatureData(features[:300], labels[:300], features[300:], labels[300:], names)


def samples_of(labels: list[int], seed: int = 0) -> SampleStore:
    rng = np.random.default_rng(seed)
    store = SampleStore(CLASSES, FEATURES)
    centres = np.random.default_rng(9).normal(size=(CLASSES, FEATURES))
    store.add(centres[labels] + rng.normal(scale=0.5, size=(len(labels), FEATURES)), np.array(labels), rng=rng)
    return store


GROUP = Group(application="evidence", backbone="0" * 64, classes=tuple("abcde"), features=FEATURES)
AUTHORS = [Identity.generate() for _ in range(5)]


def received(author: int, statement: Statement, number: int = 1) -> ReceivedStatement:
    identity = AUTHORS[author]
    signed = sign_statement(statement, number=number, expires=2**31, identity=identity, group=GROUP)
    return ReceivedStatement(
        author=identity.key_id, statement=statement, number=number, expires=signed.expires, signed=signed, source=b""
    )


def stated_by(store: SampleStore) -> Statement:
    return state(Evaluation(store.training.features, store.training.labels), CLASSES)


def test_live_peers_decide_what_simulated_ones_do() -> None:
    scenario = Scenario(
        peers=4, attackers=0, rule=rules.create("evidence"), attack=create_attack("none"), classes_per_peer=2,
        samples_per_class=6, held_out=4, iterations=1, seed=11,
    )  # fmt: skip
    world = World(scenario, make_data())
    world.advance()
    assert world.exchange is not None
    assert world.bias is not None
    held, held_out = world.held, world.population.held_out
    for number in range(4):
        parts = []
        for samples in (held, held_out):
            assert samples.index is not None
            rows = samples.index[number][samples.labels[number] >= 0]
            parts.append(Samples(samples.features[rows], samples.labels[number][samples.labels[number] >= 0]))
        store = SampleStore.restore(*parts, classes=CLASSES)
        learner = EvidenceLearner(samples=store, rule=Evidence(), seed=0)
        others = [received(one, world.exchange.statements[one]) for one in range(4) if one != number]
        learner.iterate(others)
        np.testing.assert_allclose(learner.head, world.heads[number], rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(learner.bias, world.bias[number], rtol=1e-3, atol=1e-3)


def test_it_decides_when_something_has_changed() -> None:
    store = samples_of([0, 1] * 10)
    learner = EvidenceLearner(samples=store, rule=Evidence(), seed=0)
    other = received(1, stated_by(samples_of([2, 3] * 10, seed=1)))
    assert learner.is_news([])
    learner.iterate([])
    assert not learner.is_news([])
    assert learner.is_news([other])
    decision = learner.iterate([other])
    assert not learner.is_news([other])
    (heard,) = heard_of(decision, [other])
    assert (heard.reason, heard.number, heard.iteration) == ("kept", 1, None)
    assert [(one.label, one.reason) for one in heard.classes] == [(2, "kept"), (3, "kept")]
    record = Iteration(iteration=2, at=1.0, seconds=0.1, heard=(heard,))
    assert Iteration.from_json(record.to_json()) == record
    # A rest is counted, and says nothing about anybody.
    assert learner.rest().reasons.shape == (0,)
    assert learner.iteration == 3
    assert learner.is_news([received(1, other.statement, number=2)]), "a newer statement"
    assert learner.is_news([]), "a statement has expired"
    store.add(np.ones((1, FEATURES)), np.array([0]), rng=np.random.default_rng(0))
    assert learner.is_news([other]), "a sample has come"


def test_it_learns_classes_that_it_has_no_samples_of() -> None:
    learner = EvidenceLearner(samples=samples_of([0, 1] * 10), rule=Evidence(), seed=0)
    learner.iterate([received(1, stated_by(samples_of([2, 3] * 10, seed=1)))])
    test = samples_of([0, 1, 2, 3] * 25, seed=2).training
    assert (learner.scores(test.features).argmax(axis=1) == test.labels).mean() > 0.9


def test_a_peer_without_samples_learns_from_others() -> None:
    learner = EvidenceLearner(samples=SampleStore(CLASSES, FEATURES), rule=Evidence(), seed=0)
    assert not learner.is_news([])
    others = [received(one, stated_by(samples_of([0, 1, 2] * 10, seed=one))) for one in (1, 2, 3)]
    assert learner.is_news(others)
    learner.iterate(others)
    test = samples_of([0, 1, 2] * 25, seed=5).training
    assert (learner.scores(test.features).argmax(axis=1) == test.labels).mean() > 0.9


def test_what_could_not_be_kept_is_decided_once_more() -> None:
    learner = EvidenceLearner(samples=samples_of([0, 1] * 10), rule=Evidence(), seed=0)
    before = learner.state
    learner.iterate([])
    learner.go_back(before, 0)
    assert learner.is_news([])
    assert not learner.head.any()


@pytest.mark.parametrize(
    ("held", "before", "stated"),
    [
        (FLOOR - 1, None, 0),
        (FLOOR, None, FLOOR),
        (25, 0, 25),
        (26, 25, 25),  # The 26th would be the difference of the two.
        (37, 25, 25),
        (38, 25, 38),
        (9, 5, 5),  # Half of five is fewer than the floor.
        (10, 5, 10),
    ],
)
def test_a_class_is_stated_anew_when_it_has_grown_enough(held: int, before: int | None, stated: int) -> None:
    last = None if before is None else np.array([before])
    assert stated_counts(np.array([held]), last).tolist() == [stated]


def test_a_statement_is_of_the_same_samples_until_a_class_has_grown_enough() -> None:
    store = samples_of([0] * 20 + [1] * 10)
    first = StatedSamples.of(store, held_out=True)
    assert first.counts.sum(axis=0).tolist() == [20, 10, 0, 0, 0]
    stated = first.chosen(store)
    rng = np.random.default_rng(1)
    store.add(rng.normal(size=(18, FEATURES)), np.array([0] * 4 + [1] * 10 + [2] * 4), rng=rng)
    second = StatedSamples.of(store, held_out=True, before=first)
    assert second.counts.sum(axis=0).tolist() == [20, 20, 0, 0, 0]
    again = second.chosen(store)
    for label, same in ((0, True), (1, False)):
        one, other = (np.sort(part.features[part.labels == label], axis=0) for part in (stated, again))
        assert (one.shape == other.shape and bool((one == other).all())) is same
    assert StatedSamples.of(store, held_out=False).counts[1].sum() == 0


@pytest.mark.parametrize(
    ("held", "before", "left", "stated"),
    [
        (20, 20, 20, 20),
        (19, 20, 19, 0),  # The one that is gone would be the difference of the two.
        (11, 20, 11, 0),
        (10, 20, 10, 10),
        (4, 20, 4, 0),  # The mean of four says too much of each.
        (28, 20, 19, 28),  # One has gone and nine have come.
        (27, 20, 19, 0),
        (5, 20, 0, 5),
        (5, 8, 5, 0),  # Fewer than the floor have gone.
    ],
)
def test_a_class_of_which_samples_are_removed_is_stated_when_the_difference_hides_them(
    held: int, before: int, left: int, stated: int
) -> None:
    assert stated_counts(np.array([held]), np.array([before]), np.array([left])).tolist() == [stated]


def without(store: SampleStore, label: int, number: int) -> tuple[SampleStore, list[Any]]:
    """Return a store without the first samples of a class, and masks of what is gone."""
    gone = []
    parts: list[Any] = [store.training, store.evaluation]
    for part in parts:
        mask = np.zeros(len(part.labels), dtype=bool)
        mask[np.flatnonzero(part.labels == label)[:number]] = True
        number -= int(mask.sum())
        gone.append(mask)
    rest = [Samples(part.features[~mask], part.labels[~mask]) for part, mask in zip(parts, gone, strict=True)]
    return SampleStore.restore(*rest, classes=CLASSES), gone


def test_a_removed_sample_is_in_no_later_statement() -> None:
    store = samples_of([0] * 20 + [1] * 10)
    first = StatedSamples.of(store, held_out=True)
    rest, gone = without(store, 0, 3)
    left = first.without(gone, store)
    assert (left.removed.tolist(), left.total) == ([True] + [False] * 4, 30)
    assert not left.same(left), "what holds removed samples cannot stay"
    second = StatedSamples.of(rest, held_out=True, before=left)
    assert (second.withdrawn.tolist(), second.total) == ([True] + [False] * 4, 10)
    assert set(second.chosen(rest).labels.tolist()) == {1}
    assert second.same(StatedSamples.of(rest, held_out=True, before=second)), "it is not stated twice"
    # What has come since, and was never stated, can go without a trace.
    rng = np.random.default_rng(2)
    rest.add(rng.normal(size=(2, FEATURES)), np.array([1, 1]), rng=rng)
    newest = [np.arange(len(part.labels)) >= len(part.labels) - 1 for part in (rest.training, rest.evaluation)]
    newest[1][:] = False
    assert second.without(newest, rest).same(second)
    # Three have gone of twenty: with seven more to come, the difference is of ten.
    for more, stated in ((6, 0), (1, 24)):
        rest.add(rng.normal(size=(more, FEATURES)), np.zeros(more, dtype=int), rng=rng)
        third = StatedSamples.of(rest, held_out=True, before=second)
        assert int(np.where(third.withdrawn, 0, third.sizes)[0]) == stated
        assert int((third.chosen(rest).labels == 0).sum()) == stated


def test_what_comes_and_goes_again_does_not_give_a_sample_away() -> None:
    rng = np.random.default_rng(4)
    store = samples_of([0] * 20)
    first = StatedSamples.of(store, held_out=False)
    stated = first.counts.sum()
    store.add(rng.normal(size=(2 * stated, FEATURES)), np.zeros(2 * stated, dtype=int), rng=rng)
    second = StatedSamples.of(store, held_out=False, before=first)
    assert second.counts.sum() >= 2 * stated
    # All that came goes, and one more: without that one, the third statement would be the first.
    gone = [np.arange(len(store.training.labels)) >= stated - 1, np.zeros(len(store.evaluation.labels), dtype=bool)]
    parts: list[Any] = [store.training, store.evaluation]
    rest = SampleStore.restore(
        *(Samples(part.features[~mask], part.labels[~mask]) for part, mask in zip(parts, gone, strict=True)),
        classes=CLASSES,
    )
    left = second.without(gone, store)
    assert hides(rest_counts(rest), left.sizes, left.counts.sum(axis=0))[0], "beside the second it would do"
    third = StatedSamples.of(rest, held_out=False, before=left)
    assert third.withdrawn[0]
    again = _unpacked_counts(_packed_counts(third), CLASSES)
    assert again.same(third)
    assert [part.tolist() for pair in again.earlier for part in pair] == [
        part.tolist() for pair in third.earlier for part in pair
    ]


def rest_counts(store: SampleStore) -> Any:
    return np.bincount(store.training.labels, minlength=CLASSES)


def test_all_samples_of_a_class_can_go() -> None:
    store = samples_of([0] * 20 + [1] * 10)
    first = StatedSamples.of(store, held_out=True)
    rest, gone = without(store, 0, 20)
    second = StatedSamples.of(rest, held_out=True, before=first.without(gone, store))
    assert (second.withdrawn[0], second.counts[:, 0].sum(), second.total) == (True, 0, 10)
    rng = np.random.default_rng(3)
    rest.add(rng.normal(size=(10, FEATURES)), np.zeros(10, dtype=int), rng=rng)
    third = StatedSamples.of(rest, held_out=True, before=second)
    assert (third.withdrawn[0], third.sizes[0]) == (False, 10)


def test_a_head_of_samples_that_are_gone_is_given_up() -> None:
    learner = EvidenceLearner(samples=samples_of([0, 1] * 10), rule=Evidence(), seed=0)
    learner.iterate([])
    assert learner.head.any()
    learner.keep_only(SampleStore(CLASSES, FEATURES))
    assert learner.is_news([])
    learner.iterate([])
    assert not learner.head.any()
    assert not learner.is_news([])


@given(
    steps=st.lists(st.tuples(st.integers(0, 25), st.floats(0, 1), st.sampled_from(["old", "new", "any"])), max_size=12)
)
def test_no_two_statements_differ_by_a_few_whatever_comes_and_goes(steps: list[tuple[int, float, str]]) -> None:
    rng = np.random.default_rng(0)
    store, stated, number = SampleStore(1, 1), None, 0
    published: list[set[float]] = []
    for come, share, which in steps:
        store.add(np.arange(number, number + come)[:, None], np.zeros(come, dtype=int), rng=rng)
        number += come
        parts: list[Any] = [store.training, store.evaluation]
        held = np.sort(np.concatenate([part.features[:, 0] for part in parts]))
        order = {"old": held, "new": held[::-1], "any": rng.permutation(held)}[which]
        going = order[: int(share * len(order))]
        gone = [np.isin(part.features[:, 0], going) for part in parts]
        if stated is not None:
            stated = stated.without(gone, store)
        rest = [Samples(part.features[~mask], part.labels[~mask]) for part, mask in zip(parts, gone, strict=True)]
        store = SampleStore.restore(*rest, classes=1)
        stated = StatedSamples.of(store, held_out=True, before=stated)
        now = set(stated.chosen(store).features[:, 0].tolist())
        assert stated.total == len(now), "nothing that was removed is stated"
        if now and now not in published:
            published.append(now)
    for place, later in enumerate(published):
        assert len(later) >= FLOOR
        for earlier in published[:place]:
            assert len(earlier ^ later) >= max(FLOOR, len(earlier) / 2)
