"""bristle-plus: what claims and votes do to rows that cannot be tested."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bristle import Bristle, Evaluation, Pool, rules
from bristle.rules import BristlePlus, PlusIntegrator, Reason
from bristle.rules.call import Call
from bristle.rules.plus import _foreign_weights as foreign_weights
from bristle.rules.plus_rows import CLOSE, LOUDEST, SAME_CLASS, Rows, majority, volume

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


def rows_of(own: Any, received: Any) -> Rows:
    call = Call.check(own, received, mask=None, evaluation=None, claims=None, context=None)
    return Rows.of(next(iter(call.parts())).inbox)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_rows_are_measured_as_defined_in_arrays_and_pools(seed: int, models: int) -> None:
    rng = np.random.default_rng(seed)
    own, received = rng.standard_normal((2, CLASSES, 7)), rng.standard_normal((2, models, CLASSES, 7))
    heads = np.concatenate([own[:, None], received], axis=1)
    pool = Pool(received.reshape(-1, CLASSES, 7), np.arange(2 * models).reshape(2, models))
    for rows in (rows_of(own, received), rows_of(own, pool)):
        for b, c, i, j in np.ndindex(2, CLASSES, models + 1, models + 1):
            assert rows.cosines[b, c, i, j] == pytest.approx(cosine(heads[b, i, c], heads[b, j, c]), abs=1e-9)
        centred = heads - heads.mean(axis=-1, keepdims=True)
        np.testing.assert_allclose(rows.norms, np.linalg.norm(centred, axis=-1).transpose(0, 2, 1))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.lists(st.floats(0.01, 1e6), min_size=1, max_size=5), st.floats(0.01, 100))
def test_no_row_is_louder_than_the_own_ones_allow(seed: int, loud: list[float], size: float) -> None:
    rng = np.random.default_rng(seed)
    known = np.array([[True, True, False, False, False]])
    own = size * rng.standard_normal((1, CLASSES, 9))
    received = rng.standard_normal((1, len(loud), CLASSES, 9)) * np.array(loud)[:, None, None]
    rows = rows_of(own, received)
    factors = volume(np, rows, known)
    assert (factors[..., 0] == 1).all()
    assert (factors <= 1).all()
    assert (factors > 0).all()
    norms = rows.norms * factors

    def rms(values: Any) -> Any:
        return np.sqrt((values**2).mean(axis=1))

    assert (rms(norms[:, :2])[:, 1:] <= rms(norms[:, :2])[:, :1] * (1 + 1e-9)).all()
    assert (norms[:, 2:, 1:] <= LOUDEST * rms(norms)[:, None, :1] * (1 + 1e-9)).all()


def plain_majority(cosines: Any, norms: Any, first: list[int], second: list[int]) -> list[bool]:
    """Step by step for one class, as the documentation tells it; every row is there."""
    n = len(cosines)
    votes = [1.0 if i in first else 0.5 if i in second else 0.0 for i in range(n)]
    support = [sum(votes[j] for j in range(n) if cosines[i][j] >= SAME_CLASS) if votes[i] else -1.0 for i in range(n)]
    likeness = [sum(votes[j] * cosines[i][j] for j in range(n)) for i in range(n)]
    speaker = max(range(n), key=lambda i: (support[i], round(likeness[i], 6), round(cosines[i][0], 6), norms[i]))
    if support[speaker] <= sum(votes) / 2:
        return [False] * n
    voters = first or second
    near = sorted(cosines[speaker][j] for j in voters if cosines[speaker][j] >= SAME_CLASS)
    typical = near[(len(near) - 1) // 2] if near else 0.0
    bound = min(max(1 - 2 * (1 - typical), SAME_CLASS), CLOSE)
    return [cosines[speaker][j] >= bound for j in range(n)]


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 9), st.floats(0.2, 3))
def test_the_majority_is_what_the_documentation_says(seed: int, n: int, noise: float) -> None:
    rng = np.random.default_rng(seed)
    meanings = rng.standard_normal((2, 12))
    heads = meanings[rng.integers(0, 2, n)] + noise * rng.standard_normal((n, 12))
    rows = rows_of(heads[:1], heads[1:, None])
    kind = rng.integers(0, 3, n)
    kind[0] = 2
    first, second = kind == 1, kind == 2
    found = majority(np, rows, first[None, None], second[None, None])[0, 0]
    voters, echoes = np.flatnonzero(first).tolist(), np.flatnonzero(second).tolist()
    expected = plain_majority(rows.cosines[0, 0].tolist(), rows.norms[0, 0].tolist(), voters, echoes)
    assert found.tolist() == expected


def test_of_equals_the_one_nearest_to_the_own_row_speaks() -> None:
    cosines = np.array([[1.0, 0.3, 0.8, 0.5], [0.3, 1.0, 0.9, 0.1], [0.8, 0.9, 1.0, 0.8], [0.5, 0.1, 0.8, 1.0]])
    rows = Rows(cosines[None, None], np.ones((1, 1, 4)))
    voters = np.array([False, True, True, False])[None, None]
    found = majority(np, rows, voters, np.zeros_like(voters))[0, 0]
    # Both voters have the same support and the same sum of cosines. The second speaks, and the last row is with it.
    assert found.tolist() == [True, True, True, True]
    further = cosines.copy()
    further[0, [1, 2]] = further[[1, 2], 0] = 0.8, 0.3
    found = majority(np, Rows(further[None, None], rows.norms), voters, np.zeros_like(voters))[0, 0]
    assert found.tolist() == [True, True, True, False]


def test_a_receiver_without_rows_goes_by_the_middle_one_of_the_others() -> None:
    direction = np.random.default_rng(0).standard_normal((CLASSES, 9))
    direction -= direction.mean(axis=-1, keepdims=True)
    direction /= np.linalg.norm(direction, axis=-1, keepdims=True)
    received = np.array([5.0, 1.0, 9.0])[:, None, None] * direction
    factors = volume(np, rows_of(np.zeros_like(direction), received), np.zeros((1, CLASSES), dtype=bool))
    np.testing.assert_allclose(factors[0], np.tile([1, 1, 1, 5 / 9], (CLASSES, 1)))


def test_both_rules_take_the_same_parameters() -> None:
    rule = BristlePlus(phi=2, eta=5, beta=7)
    assert rule.integrator == PlusIntegrator(phi=2, eta=5)
    assert rule.heeds_claims
    assert not Bristle().heeds_claims
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
