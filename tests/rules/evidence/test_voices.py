"""Senders who came in by one member count together as one owner of a class."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bristle import attacks, rules
from bristle.rules import Reason
from bristle.rules.evidence import Evidence, Statement
from bristle.simulation import Scenario, World
from tests.rules.evidence.test_rule import PEOPLE, SEEDS, decide, lie, meeting
from tests.support.fashion import features_of_digits

CROWD = 30


def about_foreign_classes(lied: Statement, victim: Statement) -> Statement:
    """Return a lie about nothing that the victim can test."""
    foreign = np.asarray(victim.counts) == 0
    return replace(lied, counts=np.where(foreign, np.asarray(lied.counts), 0))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_crowd_below_one_member_does_no_more_than_one_liar(seed: int) -> None:
    town, people, said = meeting(seed)
    crowd = [about_foreign_classes(lie(town, 100 * seed + number, 1.0), said[0]) for number in range(CROWD)]
    everybody = [*said[1:], *crowd]
    voices = [*range(PEOPLE - 1), *["the same"] * CROWD]
    rule = Evidence()
    alone = town.accuracy(decide(people, said))
    each = town.accuracy(rule(said[0], everybody, evaluation=people[0]))
    together = town.accuracy(rule(said[0], everybody, evaluation=people[0], voices=voices))
    assert each < alone - 0.2
    assert together > alone - 0.04


@pytest.mark.parametrize("count", [1.0, 1e6])
def test_a_crowd_that_lies_about_counts_changes_nobody_elses(count: float) -> None:
    town, people, said = meeting(0)
    crowd = [lie(town, number, 0.5) for number in range(CROWD)]
    crowd = [replace(one, counts=np.where(np.asarray(one.counts) > 0, count, 0)) for one in crowd]
    voices = [*range(PEOPLE - 1), *[-7] * CROWD]
    decision = Evidence()(said[0], [*said[1:], *crowd], evaluation=people[0], voices=voices)
    assert town.accuracy(decision) > town.accuracy(decide(people, said)) - 0.04


def test_where_all_have_voices_of_their_own_nothing_changes() -> None:
    _, people, said = meeting(1)
    before = decide(people, said)
    after = Evidence()(said[0], said[1:], evaluation=people[0], voices=list("abcdefg"))
    np.testing.assert_allclose(np.asarray(after.head), np.asarray(before.head), rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(after.reasons, before.reasons)


def test_the_order_of_senders_decides_nothing() -> None:
    _, people, said = meeting(2)
    voices = np.array([0, 0, 1, 1, 2, 2, 2])
    order = np.random.default_rng(0).permutation(PEOPLE - 1)
    others = [said[1 + place] for place in order]
    one = Evidence()(said[0], said[1:], evaluation=people[0], voices=list(voices))
    two = Evidence()(said[0], others, evaluation=people[0], voices=list(voices[order]))
    np.testing.assert_allclose(np.asarray(one.head), np.asarray(two.head), rtol=1e-6, atol=1e-9)


def test_it_says_who_counts_together() -> None:
    _, people, said = meeting(3)
    decision = Evidence()(said[0], said[1:], evaluation=people[0], voices=["a", "a", "a", *"bcde"])
    codes = np.asarray(decision.class_reasons)
    assert (codes[:3] == int(Reason.SAME_VOICE)).any()
    assert not (codes[3:] == int(Reason.SAME_VOICE)).any()
    label = int(np.flatnonzero(codes[0] == int(Reason.SAME_VOICE))[0])
    assert "came in by the same member" in decision.explain(0, label)


def test_a_voice_for_each_statement() -> None:
    _, people, said = meeting(0)
    with pytest.raises(ValueError, match="voices has 2 values for 7 statements"):
        Evidence()(said[0], said[1:], evaluation=people[0], voices=[1, 2])


def accuracy(branches: tuple[int, ...], **options: object) -> float:
    scenario = Scenario(
        peers=6,
        attackers=12,
        rule=rules.create("evidence", **options),
        attack=attacks.create("permuted-labels"),
        samples_per_class=5,
        reuse=True,
        held_out=5,
        iterations=1,
        branches=branches,
    )
    world = World(scenario, features_of_digits())
    world.advance()
    return float(world.accuracy().mean())


def test_simulated_worlds_count_branches() -> None:
    each = accuracy(())
    assert accuracy((*range(6), *[6] * 12), one_voice=1) > each + 0.2
    # A liar of one branch is a minority; liars of many branches are not.
    assert accuracy(tuple(range(18)), one_voice=1) == pytest.approx(each, abs=0.02)


def test_branches_need_a_rule_that_counts_them_and_a_number_for_everybody() -> None:
    with pytest.raises(ValueError, match="use evidence with one_voice=1"):
        accuracy((0,) * 18)
    with pytest.raises(ValueError, match="branches has 3 numbers: give one for each of 6 peers and 12"):
        accuracy((0, 1, 2), one_voice=1)


def test_statements_are_not_changed() -> None:
    _, people, said = meeting(0)
    before = [np.asarray(one.factors).copy() for one in said]
    Evidence()(said[0], said[1:], evaluation=people[0], voices=[0] * (PEOPLE - 1))
    assert all(isinstance(one, Statement) for one in said)
    for one, copy in zip(said, before, strict=True):
        np.testing.assert_array_equal(np.asarray(one.factors), copy)
