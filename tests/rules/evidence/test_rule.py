"""The rule end to end: better than alone, unharmed by liars in the minority, and able to say why."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bristle import rules
from bristle.learning.metrics import Evaluation
from bristle.rules import Reason
from bristle.rules.evidence import Evidence, EvidenceDecision, Statement
from tests.support.evidence import Town, stated

SEEDS = range(4)
PEOPLE = 8


def meeting(seed: int, **options: int) -> tuple[Town, list[Evaluation], list[Statement]]:
    town = Town.of(seed)
    people = town.people(seed, PEOPLE, **options)
    return town, people, stated(people, town.classes)


def decide(people: list[Evaluation], said: list[Statement], rule: Evidence | None = None) -> EvidenceDecision:
    """Let the first one decide about the others."""
    return (rule or Evidence())(said[0], said[1:], evaluation=people[0])


@pytest.mark.parametrize("seed", SEEDS)
def test_better_than_alone(seed: int) -> None:
    town, people, said = meeting(seed)
    rule = Evidence()
    alone, together = rule(said[0], [], evaluation=people[0]), decide(people, said)
    assert town.accuracy(together) > town.accuracy(alone) + 0.3
    pooled = Evaluation(
        np.concatenate([one.features for one in people]), np.concatenate([one.labels for one in people])
    )
    whole = rule(rule.share(pooled, town.classes), [], evaluation=pooled)
    assert town.accuracy(together) > town.accuracy(whole) - 0.03


def lie(town: Town, seed: int, size: float, *, to_class: int = 1) -> Statement:
    """Return the statement of somebody who pushes every class towards another by its own samples."""
    honest = town.samples(500 + seed, list(range(town.classes)))
    said = Evidence().share(honest, town.classes)
    return replace(said, rows=said.rows + size * (np.roll(town.centres, -to_class, axis=0) - town.centres))


@pytest.mark.parametrize("size", [0.2, 0.5, 1.0, 1e3])
@pytest.mark.parametrize("seed", SEEDS)
def test_unharmed_by_three_liars_of_four_owners(seed: int, size: float) -> None:
    town, people, said = meeting(seed)
    before = decide(people, said)
    after = decide(people, [*said, *(lie(town, 10 * seed + n, size) for n in range(3))])
    assert town.accuracy(after) > town.accuracy(before) - 0.04


@pytest.mark.parametrize("seed", SEEDS)
def test_unharmed_by_a_hundred_names_of_one_liar(seed: int) -> None:
    town, people, said = meeting(seed)
    before = decide(people, said)
    after = decide(people, [*said, *[lie(town, seed, 0.5)] * 100])
    assert town.accuracy(after) > town.accuracy(before) - 0.04


@pytest.mark.parametrize("cautious", [False, True])
def test_outnumbered_it_keeps_its_own_classes(cautious: bool) -> None:
    town, people, said = meeting(0)
    liars = [lie(town, n, 1.0) for n in range(24)]
    rule = Evidence(cautious=cautious)
    alone, after = rule(said[0], [], evaluation=people[0]), decide(people, [*said, *liars], rule)
    held = people[0].labels
    fresh = town.samples(9, sorted(set(held.tolist())), 60)

    def right(found: EvidenceDecision) -> float:
        scores = fresh.features @ found.head.T + found.bias
        return float((scores.argmax(axis=1) == fresh.labels).mean())

    assert right(after) > right(alone) - 0.1


def outvoted(seed: int, *, honest: int) -> tuple[Town, list[Evaluation], list[Statement]]:
    """Return people with two classes each, and what they and five liars state, who put all classes elsewhere."""
    town = Town.of(seed, features=60, apart=0.9)
    people = [town.samples(seed + who, [who % 6, (who + 1) % 6]) for who in range(honest)]
    moved = replace(town, centres=np.roll(town.centres, 2, axis=0))
    liars = [moved.samples(900 + 10 * seed + n, list(range(6))) for n in range(5)]
    return town, people, stated([*people, *liars], town.classes)


def test_outvoted_about_its_own_classes_it_refuses_who_is_far_from_them_and_says_so() -> None:
    recovered = 0
    for seed in SEEDS:
        town, people, said = outvoted(seed, honest=6)
        decision, without, alone = (decide(people, some) for some in (said, said[:6], said[:1]))
        assert town.accuracy(decision) > town.accuracy(alone) - 0.02
        if town.accuracy(decision) > town.accuracy(without) - 0.02:
            recovered += 1
            assert all("standard errors from mine" in decision.explain(place) for place in range(5, 10))
            assert (decision.weights[:5] > 0).any(axis=1).all()
    assert recovered >= len(SEEDS) - 1


@pytest.mark.parametrize("seed", SEEDS)
def test_where_all_others_are_against_its_own_samples_it_answers_alone(seed: int) -> None:
    town, people, said = outvoted(seed, honest=1)
    alone, after = decide(people, said[:1]), decide(people, said)
    assert town.accuracy(after) >= town.accuracy(alone) - 0.02
    assert not after.weights.any()


def test_words_for_a_sender_that_is_refused() -> None:
    town, people, said = meeting(1)
    decision = decide(people, [*said, lie(town, 1, 1.0)])
    place = len(said) - 1
    assert Reason(int(decision.reasons[place])) is Reason.TOO_DIFFERENT
    words = decision.explain(place)
    assert words.startswith("refused: its mean of class ")
    assert "standard errors from mine" in words
    assert not decision.weights[place].any()
    assert (decision.class_reasons[place] == int(Reason.TOO_DIFFERENT)).all()
    assert "standard errors from mine" in decision.explain(place, 0)
    assert decision.errors[place].max() > 8


def test_words_for_copies_and_silence() -> None:
    _, people, said = meeting(2)
    decision = decide(people, [*said, said[3]])
    place = len(said) - 1
    assert decision.explain(place) == "counted once: too much like sender 2 to be independent"
    assert decision.explain(2) == f"counted once: too much like sender {place} to be independent"
    silent = int(np.flatnonzero(said[3].counts == 0)[0])
    assert decision.explain(place, silent) == "says nothing about the class"
    held = int(np.flatnonzero(said[3].counts)[0])
    assert "too much like sender" in decision.explain(place, held)
    assert decision.explain(0).startswith("kept: ")
    with pytest.raises(ValueError, match="there is no model"):
        decision.explain(99)


def test_reasons_are_given_for_each_class() -> None:
    _, people, said = meeting(3)
    decision = decide(people, said)
    for place, one in enumerate(said[1:]):
        quiet = decision.class_reasons[place] == int(Reason.SILENT)
        np.testing.assert_array_equal(quiet, one.counts == 0)
    assert set(np.unique(decision.class_reasons)) <= {int(code) for code in Reason}
    np.testing.assert_array_equal(decision.errors[decision.class_reasons == int(Reason.SILENT)], 0)


def test_classes_that_nobody_states_are_never_answered() -> None:
    town, people, said = meeting(0)
    rule = Evidence()
    decision = rule(said[0], [], evaluation=people[0])
    (answer,) = decision.answers
    assert set(answer.known.tolist()) == set(people[0].labels.tolist())
    fresh = town.samples(4, list(range(town.classes)), 50)
    guess = (fresh.features @ decision.head.T + decision.bias).argmax(axis=1)
    assert set(guess.tolist()) <= set(answer.known.tolist())


def split() -> tuple[Town, list[Evaluation], list[Statement]]:
    """Return people of whom half put class 4, which the first one does not hold, where class 3 is."""
    town = Town.of(5)
    people = [town.samples(1, [0, 1, 2]), *(town.samples(who, [2, 3, 4]) for who in range(2, 8))]
    said = stated(people, town.classes)
    fourth = np.arange(6)[:, None] == 4
    moved = [
        replace(one, rows=np.where(fourth, town.centres[3] + one.rows - town.centres, one.rows)) for one in said[4:]
    ]
    return town, people, [*said[:4], *moved]


def test_the_cautious_do_not_answer_disputed_classes_and_the_words_say_so() -> None:
    """Owners of a foreign class who are split in halves cannot be told apart."""
    _, people, said = split()
    decision = decide(people, said, Evidence(cautious=True))
    (answer,) = decision.answers
    assert 4 not in answer.known
    assert 3 in answer.known
    assert (decision.class_reasons[:, 4] == int(Reason.DISPUTED)).all()
    assert "disagree" in decision.explain(0, 4)
    assert not decision.weights[:, 4].any()


def test_others_answer_disputed_classes_where_no_own_sample_is_lost() -> None:
    town, people, said = split()
    plain, alone = decide(people, said), Evidence()(said[0], [], evaluation=people[0])
    fresh = town.samples(8, [0, 1, 2], 80)

    def right(decision: EvidenceDecision) -> float:
        scores = fresh.features @ decision.head.T + decision.bias
        return float((scores.argmax(axis=1) == fresh.labels).mean())

    assert 4 in plain.answers[0].known
    assert right(plain) > right(alone) - 0.05


def test_without_disputes_the_cautious_answer_nearly_the_same() -> None:
    town, people, said = meeting(0)
    plain, cautious = decide(people, said), decide(people, said, Evidence(cautious=True))
    np.testing.assert_array_equal(plain.answers[0].known, cautious.answers[0].known)
    np.testing.assert_array_equal(plain.class_reasons, cautious.class_reasons)
    # They differ only in how much scatter they believe.
    assert abs(town.accuracy(plain) - town.accuracy(cautious)) < 0.02


@pytest.mark.parametrize("seed", SEEDS)
def test_probabilities_are_calibrated(seed: int) -> None:
    town = Town.of(seed, apart=0.6)
    people = town.people(seed, PEOPLE)
    (answer,) = decide(people, stated(people, town.classes)).answers
    fresh = town.samples(3, list(range(town.classes)), 60)
    found = answer.probabilities(fresh.features)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    assert found.min() >= 0
    sure = found.max(axis=1)
    right = found.argmax(axis=1) == fresh.labels
    assert sure.mean() == pytest.approx(right.mean(), abs=0.12)
    assert right[sure > 0.9].mean() > right.mean()


@pytest.mark.parametrize("seed", SEEDS)
def test_it_abstains_far_from_all_classes(seed: int) -> None:
    town, people, said = meeting(seed)
    (answer,) = decide(people, said).answers
    fresh = town.samples(3, list(range(town.classes)), 60)
    assert answer.abstains(fresh.features).mean() < 0.15
    rng = np.random.default_rng(seed)
    strange = 10 * rng.standard_normal((50, 20))
    assert answer.abstains(strange).mean() > 0.95
    assert (answer.distances(strange) > 0).all()


def test_without_own_samples_others_are_enough() -> None:
    town, _, said = meeting(0)
    rule = Evidence()
    nothing = Evaluation(np.zeros((0, 20)), np.zeros(0, dtype=np.int64))
    decision = rule(rule.share(nothing, town.classes), said, evaluation=nothing)
    assert town.accuracy(decision) > 0.8


def test_unequal_amounts_leave_nobody_alone() -> None:
    town = Town.of(4)
    people = [town.samples(who, [who % 6, (who + 1) % 6, (who + 2) % 6], (4, 160, 30)[who % 3]) for who in range(9)]
    said = stated(people, town.classes)
    for who in range(3):
        others = [*said[:who], *said[who + 1 :]]
        decision = Evidence()(said[who], others, evaluation=people[who])
        assert town.accuracy(decision) > 0.8


def test_poisoned_scatter_with_honest_means_costs_little() -> None:
    town, people, said = meeting(0)
    before = decide(people, said)
    towards = (town.centres[4] - town.centres[5])[None]
    liars = [replace(one, factors=1e4 * towards / np.linalg.norm(towards)) for one in said[1:4]]
    after = decide(people, [*said, *liars])
    assert town.accuracy(after) > town.accuracy(before) - 0.04


def test_torch_in_torch_out() -> None:
    torch = pytest.importorskip("torch")
    _, people, said = meeting(0)

    def tensors(one: Statement) -> Statement:
        return Statement(*(torch.asarray(part) for part in (one.rows, one.counts, one.factors, one.diagonal)))

    samples = Evaluation(torch.asarray(people[0].features), torch.asarray(people[0].labels))
    found = Evidence()(tensors(said[0]), [tensors(one) for one in said[1:]], evaluation=samples)
    expected = decide(people, said)
    assert isinstance(found.head, torch.Tensor)
    assert isinstance(found.bias, torch.Tensor)
    np.testing.assert_allclose(found.head.numpy(), expected.head, atol=1e-12)
    np.testing.assert_allclose(found.bias.numpy(), np.asarray(expected.bias), atol=1e-12)
    assert [found.explain(n) for n in range(7)] == [expected.explain(n) for n in range(7)]


@pytest.mark.parametrize("options", [{"rank": 0}, {"cap": -1}, {"refuse": float("nan")}, {"quorum": 0}])
def test_options_that_cannot_be_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        rules.create("evidence", **options)


def test_it_shares_evidence_and_refuses_heads() -> None:
    rule = rules.create("evidence")
    assert rule.shares == "evidence"
    assert "evidence" in rules.names()
    assert rules.names(shares="evidence") == ("evidence",)
    assert "evidence" not in rules.names(shares="heads")
    assert set(rules.names(shares="heads")) | {"evidence"} == set(rules.names())
    heads = np.zeros((3, 4))
    with pytest.raises(ValueError, match="evidence exchanges statements, not heads"):
        rule(heads, heads[None])
    with pytest.raises(ValueError, match="steps mix heads"):
        rules.chain(rules.Bucketing(s=2), rule)
    assert rules.chain(rule).decide is not None


@pytest.mark.parametrize("seed", range(4))
def test_honest_peers_use_each_other_where_classes_are_hard_to_tell_apart(seed: int) -> None:
    town = Town.of(seed, features=40, apart=0.15)
    people = town.people(seed, 10, samples=8)
    said = stated(people, town.classes)
    decisions = [Evidence()(said[who], said[:who] + said[who + 1 :], evaluation=one) for who, one in enumerate(people)]
    assert all(np.asarray(one.weights).any() for one in decisions)
    assert 0.25 < np.mean([town.accuracy(one) for one in decisions]) < 0.5
