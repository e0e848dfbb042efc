"""bristle-plus: what claims and votes do to rows that cannot be tested."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bristle import Bristle, Evaluation, rules
from bristle.rules import BristlePlus, PlusIntegrator, Reason
from bristle.rules.bristle_plus import _foreign_weights as foreign_weights

CLASSES, FEATURES, FOREIGN = 5, 40, 4


class Scene:
    """A receiver that can test classes 0..3, and honest senders who know all rows but for a little noise."""

    def __init__(self, seed: int = 0, senders: int = 7) -> None:
        rng = np.random.default_rng(seed)
        self.truth = rng.standard_normal((CLASSES, FEATURES))
        labels = np.repeat(np.arange(4), 10)
        self.evaluation = Evaluation(self.truth[labels] + 0.3 * rng.standard_normal((40, FEATURES)), labels)
        self.own = self.truth.copy()
        self.own[FOREIGN] = 0
        self.received = self.truth + 0.2 * rng.standard_normal((senders, CLASSES, FEATURES))
        self.claims = np.zeros((senders, CLASSES), dtype=bool)
        self.claims[:4, FOREIGN] = True
        self.rng = rng

    def decide(self, rule: rules.Rule | None = None, claims: Any = "theirs") -> Any:
        return (rule or BristlePlus())(
            self.own,
            self.received,
            evaluation=self.evaluation,
            claims=self.claims if isinstance(claims, str) else claims,
        )


def cosine(a: Any, b: Any) -> float:
    a, b = a - a.mean(), b - b.mean()
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_a_foreign_row_comes_from_those_who_claim_it() -> None:
    scene = Scene()
    scene.claims[4:, 0] = True
    decision = scene.decide()
    shares = decision.weights[:, FOREIGN]
    assert (shares[:4] > 0.1).all()
    assert (shares[4:] == 0).all()
    assert cosine(decision.head[FOREIGN], shares @ scene.received[:, FOREIGN]) > 0.999


@pytest.mark.parametrize("liars", [1, 2, 3])
def test_fewer_liars_than_owners_get_nothing_whatever_they_agree_on(liars: int) -> None:
    scene = Scene(senders=4 + liars)
    scene.claims[:] = False
    scene.claims[:, FOREIGN] = True
    scene.received[4:, FOREIGN] = scene.truth[0]  # all alike, and all of the wrong class
    decision = scene.decide()
    assert (decision.weights[4:, FOREIGN] == 0).all()
    assert cosine(decision.head[FOREIGN], scene.truth[FOREIGN]) > 0.95
    paper = scene.decide(Bristle())
    assert (paper.weights[4:, FOREIGN] > 0.05).all()


def test_who_does_badly_on_what_it_claims_has_no_vote() -> None:
    scene = Scene(senders=12)
    scene.received[4:] = scene.truth[[1, 2, 3, 0, 0]]  # every class is another one, and there are twice as many
    scene.claims[4:] = True
    decision = scene.decide()
    assert cosine(decision.head[FOREIGN], scene.truth[FOREIGN]) > 0.95
    assert (decision.reasons[4:] == int(Reason.BROKEN_CLAIM)).all()
    assert "claims" in decision.explain(5)


def test_without_a_majority_the_own_row_stays() -> None:
    scene = Scene(senders=8)
    scene.claims[:, FOREIGN] = True
    scene.received[:, FOREIGN] = scene.rng.standard_normal((8, FEATURES))  # no two mean the same
    decision = scene.decide()
    np.testing.assert_array_equal(decision.head[FOREIGN], scene.own[FOREIGN])


def test_who_is_outvoted_and_useless_otherwise_is_told_so() -> None:
    scene = Scene(senders=6)
    scene.claims[4:] = [False, False, False, False, True]
    scene.received[4:, :4] = 0  # excused: it does not claim what it does not know
    scene.received[4:, FOREIGN] = scene.truth[0]
    decision = scene.decide()
    assert (decision.reasons[4:] == int(Reason.OUTVOTED)).all()


def test_reliable_hearsay_decides_between_owners_who_disagree() -> None:
    scene = Scene(senders=9)
    scene.claims[:] = False
    scene.claims[:4, FOREIGN] = True
    scene.claims[4:, 0] = True
    scene.received[2:4, FOREIGN] = scene.truth[0]  # two against two
    decision = scene.decide()
    assert (decision.weights[:2, FOREIGN] > 0.1).all()
    assert (decision.weights[2:, FOREIGN] == 0).all()


def test_silent_senders_are_heard_beside_those_who_claim() -> None:
    scene = Scene(senders=7)
    shares = scene.decide().weights[:, FOREIGN]
    assert (shares[:4] > 0.1).all()
    assert (shares[4:] > 0.1).all()


def test_where_nobody_claims_a_class_the_majority_of_good_senders_is_heard() -> None:
    scene = Scene(senders=7)
    scene.received[4:, FOREIGN] = scene.truth[0]
    for claims in (None, np.zeros_like(scene.claims)):
        decision = scene.decide(claims=claims)
        assert (decision.weights[:4, FOREIGN] > 0.1).all()
        assert (decision.weights[4:, FOREIGN] == 0).all()


def test_silent_senders_are_heard_where_all_who_claim_are_outvoted() -> None:
    scene = Scene(senders=8)
    scene.claims[:] = False
    scene.claims[7, FOREIGN] = True
    scene.received[7, FOREIGN] = scene.truth[0]
    decision = scene.decide()
    assert decision.weights[7, FOREIGN] == 0
    assert (decision.weights[:7, FOREIGN] > 0.1).all()


def test_the_own_row_decides_between_two_owners_who_disagree() -> None:
    scene = Scene(senders=2)
    scene.claims[:, FOREIGN] = True
    scene.received[1, FOREIGN] = scene.truth[0]
    assert not scene.decide().weights[:, FOREIGN].any()  # One against one, and no own row yet.
    scene.own[FOREIGN] = scene.truth[FOREIGN]
    shares = scene.decide().weights[:, FOREIGN]
    assert shares[0] > 0.1
    assert shares[1] == 0


def test_who_does_badly_has_no_echo_either() -> None:
    scene = Scene(senders=8)
    scene.claims[:] = False
    scene.claims[:2, FOREIGN] = True
    scene.received[2:] = scene.truth[[1, 2, 3, 0, 0]]  # silent, three times as many, and wrong about every class
    shares = scene.decide().weights[:, FOREIGN]
    assert (shares[:2] > 0.1).all()
    assert (shares[2:] == 0).all()


def test_a_little_behind_on_a_claim_is_behind() -> None:
    scene = Scene(senders=6)
    scene.claims[4:] = False
    scene.claims[5, [0, FOREIGN]] = True
    scene.received[5, 0] = 0  # never found: η ΔF1 is 1 at the most
    strict = BristlePlus(eta=1, foreign=(10, 4.99))
    shares = scene.decide(strict).weights[:, FOREIGN]
    assert (shares[:4] > 0.1).all()
    assert shares[5] == 0
    scene.received[5, 0] = scene.truth[0]
    assert scene.decide(strict).weights[5, FOREIGN] > 0.1


def test_a_silent_sender_of_small_weight_is_enough_to_leave_hearsay_out() -> None:
    tested = np.array([0.5, 0.0, 3.0])[None, :, None]  # silent; silent and useless; second-hand
    nobody = np.zeros((1, 3, 1), dtype=bool)
    silent = np.array([[True, True, False]])
    weights = foreign_weights(np, tested, nobody, silent, ~nobody)
    assert weights[0, :, 0].tolist() == [0.5, 0.0, 0.0]
    # For want of anybody who is heard and of any use, hearsay counts.
    weights = foreign_weights(np, tested * [[[0], [1], [1]]], nobody, silent, ~nobody)
    assert weights[0, :, 0].tolist() == [0.0, 0.0, 3.0]


def test_familiar_rows_are_weighed_as_in_the_paper() -> None:
    scene = Scene(senders=6)
    scene.received[4:, :2] = scene.received[4:, 1::-1]
    ours, paper = scene.decide(), scene.decide(Bristle())
    np.testing.assert_allclose(ours.weights[:, :4], paper.weights[:, :4], atol=1e-12)


def test_both_rules_take_the_same_parameters() -> None:
    rule = BristlePlus(phi=2, eta=5, beta=7)
    assert rule.integrator == PlusIntegrator(phi=2, eta=5)
    assert rule.uses_claims
    assert not Bristle().uses_claims
    with pytest.raises(ValueError, match="phi"):
        BristlePlus(phi=0)


def test_claims_go_with_their_models_through_the_prioritiser() -> None:
    scene = Scene(senders=40)
    scene.claims[:] = False
    scene.claims[::2, FOREIGN] = True
    scene.received[1::2, FOREIGN] = scene.truth[0]
    rule = BristlePlus(beta=12)
    decision = rule(
        scene.own,
        scene.received,
        evaluation=scene.evaluation,
        claims=scene.claims,
        rng=np.random.default_rng(3),
    )
    assert (decision.weights[1::2, FOREIGN] == 0).all()
    assert cosine(decision.head[FOREIGN], scene.truth[FOREIGN]) > 0.95
