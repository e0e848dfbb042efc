"""Lies in statements: each is what its formula says, and is refused where it must be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bristle import attacks, rules
from bristle.attacks import Scene, StatementAttack, View
from bristle.attacks.statements import Target
from bristle.rules.decision import Reason
from bristle.rules.evidence import Evidence, Statement
from bristle.testing import check_attack
from bristle.testing.attacks import evidence_scene

VICTIM = 2


@pytest.fixture
def scene() -> Scene:
    return evidence_scene(3, 6)


def stated(scene: Scene, name: str, **options: Any) -> list[Statement]:
    attack = attacks.create(name, **options)
    assert isinstance(attack, StatementAttack)
    return attack.state(scene, VICTIM, np.random.default_rng(0))


VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *(("statement-edge", {"towards": towards}) for towards in ("foreign", "own", "farthest", "home")),
    *(("statement-edge", {"about": about, "split": True}) for about in ("own", "all", "one")),
    ("statement-edge", {"everybody": 2, "together": True, "count": 7}),
    ("bridge", {"between": "pairs", "bridges": 2, "bridge_claims": None}),
    *(("poisoned-scatter", {"along": along}) for along in ("nearest", "pairs", "everything", "nothing", "tiny")),
    *(("permuted-labels", {"order": order}) for order in ("nearest", "random")),
    ("laid-on", {"spread": True, "against": 1.0}),
    ("pincer", {"size": 0.0, "aside": 6.0}),
    *(("foreign-only", {"lie": lie}) for lie in ("edge", "laid-on")),
]


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_variants_conform(name: str, options: dict[str, Any]) -> None:
    check_attack(attacks.create(name, **options), seed=1)


@pytest.mark.parametrize("classes", [1, 2, 5])
@pytest.mark.parametrize("name", [n for n in attacks.names() if n not in attacks.names(shares="heads")])
def test_few_classes_are_no_mishap(name: str, classes: int) -> None:
    check_attack(attacks.create(name), classes=classes)


def test_a_push_is_so_many_standard_errors_along_a_discriminant(scene: Scene) -> None:
    ground, target = scene.ground, Target.of(scene.ground, VICTIM, 0)
    for one in stated(scene, "statement-edge", size=5, noise=0):
        for label in target.foreign:
            other = ground.nearest(int(label), ground.known)
            assert other is not None
            moved = one.rows[label] - ground.means[label]
            assert np.sqrt(moved @ ground.inverse @ moved * ground.count) == pytest.approx(5, rel=1e-4)
            assert moved @ (ground.means[other] - ground.means[label]) > 0


def test_every_second_one_pushes_the_other_way(scene: Scene) -> None:
    first, second, third = (one.rows for one in stated(scene, "statement-edge", noise=0, split=True))
    foreign = scene.ground.foreign(VICTIM)
    np.testing.assert_allclose(first[foreign], third[foreign])
    np.testing.assert_allclose(first[foreign] + second[foreign], 2 * scene.ground.means[foreign], rtol=1e-4, atol=1e-4)


def test_one_statement_for_everybody(scene: Scene) -> None:
    attack = attacks.create("statement-edge", everybody=2)
    assert isinstance(attack, StatementAttack)
    one, other = (attack.state(scene, victim, np.random.default_rng(victim)) for victim in (0, 4))
    for mine, theirs in zip(one, other, strict=True):
        np.testing.assert_array_equal(mine.rows, theirs.rows)


def test_counts_are_as_false_as_they_are_said_to_be(scene: Scene) -> None:
    assert [one.counts[0] for one in stated(scene, "false-counts", low=1)] == [1, 1e6, 1e6]
    assert [one.counts[0] for one in stated(scene, "bridge", count=9)] == [1, 9, 9]


def test_a_bridge_is_halfway_between_two_honest_owners(scene: Scene) -> None:
    ground, bridge = scene.ground, stated(scene, "bridge", between="pairs")[0]
    for label in ground.foreign(VICTIM):
        owners = ground.owners(int(label), VICTIM)
        np.testing.assert_allclose(bridge.rows[label], ground.rows[owners[:2], label].mean(axis=0), rtol=1e-5)


def test_partisans_stand_by_an_honest_owner(scene: Scene) -> None:
    ground, sent = scene.ground, stated(scene, "partisans", noise=0)[0]
    for label in ground.foreign(VICTIM):
        apart = np.abs(ground.rows[ground.owners(int(label), VICTIM), label] - sent.rows[label]).max(axis=1)
        assert apart.min() < 1e-5


def test_scatter_is_claimed_where_foreign_classes_differ(scene: Scene) -> None:
    ground = scene.ground
    one, other = ground.foreign(VICTIM)[:2]
    way = ground.means[one] - ground.means[other]

    def variance(times: float) -> float:
        sent = stated(scene, "poisoned-scatter", along="pairs", times=times)[0]
        return float(((sent.factors @ way) ** 2).sum())

    assert variance(1000) > 50 * variance(10)
    nothing = stated(scene, "poisoned-scatter", along="nothing")[0]
    assert not np.any(nothing.factors)
    assert not np.any(nothing.diagonal)


def test_labels_trade_places(scene: Scene) -> None:
    ground, sent = scene.ground, stated(scene, "permuted-labels", noise=0)[0]
    foreign = ground.foreign(VICTIM)
    np.testing.assert_allclose(sent.rows[foreign], ground.means[np.roll(foreign, -1)], rtol=1e-5)


def test_foreign_means_are_laid_on_familiar_ones(scene: Scene) -> None:
    ground, sent = scene.ground, stated(scene, "laid-on", noise=0)[0]
    for label in ground.foreign(VICTIM):
        at = ground.nearest(int(label), ground.own(VICTIM))
        np.testing.assert_allclose(sent.rows[label], ground.means[at], rtol=1e-5)


def test_foreign_only_claims_nothing_that_can_be_tested(scene: Scene) -> None:
    for one in stated(scene, "foreign-only"):
        assert np.flatnonzero(one.counts).tolist() == scene.ground.foreign(VICTIM).tolist()


def test_the_class_with_the_fewest_owners_is_pushed(scene: Scene) -> None:
    ground, sent = scene.ground, stated(scene, "sole-owner", noise=0, size=500)[0]
    moved = np.abs(sent.rows - ground.means).max(axis=1)
    owners = (ground.counts > 0).sum(axis=0)
    foreign = ground.foreign(VICTIM)
    assert moved.argmax() == foreign[owners[foreign].argmin()]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("nan", Reason.NOT_FINITE),
        ("huge", Reason.TOO_LARGE),
        ("negative", Reason.IMPOSSIBLE),
        ("many", Reason.TOO_LARGE),
        ("fraction", Reason.IMPOSSIBLE),
        ("shape", Reason.WRONG_SHAPE),
        ("indefinite", Reason.IMPOSSIBLE),
        ("empty", Reason.IMPOSSIBLE),
    ],
)
def test_garbage_is_refused_with_a_reason_and_nothing_is_lost(scene: Scene, kind: str, reason: Reason) -> None:
    rule = rules.create("evidence")
    assert isinstance(rule, Evidence)
    honest = [one for place, one in enumerate(scene.statements) if place != VICTIM]
    sent = stated(scene, "garbage", kind=kind)
    alone = rule.weigh(scene.statements[VICTIM], honest, scene.samples[VICTIM])
    found = rule.weigh(scene.statements[VICTIM], [*honest, *sent], scene.samples[VICTIM])
    assert [Reason(int(code)) for code in found.reasons[-3:]] == [reason] * 3
    np.testing.assert_array_equal(found.answer.head, alone.answer.head)


def test_peers_that_exchange_heads_are_not_lied_to_in_statements() -> None:
    own = np.zeros((1, 3, 4))
    with pytest.raises(ValueError, match="StatementEdge crafts statements: use it with the rule evidence"):
        attacks.create("statement-edge")(View(own=own))
    assert "statement-edge" not in attacks.names(shares="heads")
    assert "statement-edge" in attacks.names(shares="evidence")
