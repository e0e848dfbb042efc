"""Attacks that know what their victim can test: each does what its formula says, and claims what it should."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from bristle import attacks
from bristle.attacks import LateTrojan, View

TESTABLE = np.array([True, False, False, True, False])


@pytest.fixture
def view(make_view: Callable[..., View]) -> View:
    return replace(make_view(), testable=TESTABLE)


def test_the_excused_trojan_claims_what_the_victim_cannot_test_and_all_send_the_same(view: View) -> None:
    attack = attacks.create("excused-trojan")
    assert attack.claims(view).tolist() == [(~TESTABLE).tolist()] * 3
    sent = attack(view)
    first = view.own[0]
    for head in sent:
        np.testing.assert_array_equal(head, first[[0, 2, 4, 3, 1]])
    alone = attacks.create("excused-trojan", together=False)(view)
    np.testing.assert_array_equal(alone, view.own[:, [0, 2, 4, 3, 1]])


def test_the_late_trojan_is_honest_until_it_strikes(view: View) -> None:
    attack = LateTrojan(share=0.5)
    np.testing.assert_array_equal(attack(replace(view, iteration=5, total=10)), view.own)
    np.testing.assert_array_equal(attack(replace(view, iteration=6, total=10)), attacks.create("foreign-trojan")(view))
    with pytest.raises(ValueError, match="share"):
        LateTrojan(share=2)


def test_a_row_copy_differs_from_an_honest_head_in_one_foreign_row(view: View) -> None:
    mask = np.array([False, True, True, True, True, True])
    inbox = view.inbox
    assert isinstance(inbox, np.ndarray)
    sent = attacks.create("row-copy")(replace(view, inbox_mask=mask))
    for head in sent:
        np.testing.assert_allclose(head[1], inbox[1][4])
        np.testing.assert_allclose(head[[0, 2, 3, 4]], inbox[1][[0, 2, 3, 4]])
    # Nothing to copy: the own head, with one row changed; nothing foreign: a plain copy.
    nothing = attacks.create("row-copy")(replace(view, inbox_mask=np.zeros(6, dtype=bool)))
    np.testing.assert_allclose(nothing[2][[0, 1, 2]], view.own[0][[0, 4, 2]])
    everything = attacks.create("row-copy")(replace(view, testable=np.ones(5, dtype=bool)))
    np.testing.assert_allclose(everything[0], inbox[0])


def test_those_who_outnumber_turn_one_row_of_those_who_cannot_test_it(view: View) -> None:
    attack = attacks.create("outnumber", target=2)
    assert attack.claims(view).tolist() == [[False, False, True, False, False]] * 3
    sent = attack(view)
    for head in sent:
        np.testing.assert_array_equal(head[2], -view.own[0, 2])
        np.testing.assert_array_equal(head[[0, 1, 3, 4]], view.own[0][[0, 1, 3, 4]])
    honest = attacks.create("outnumber", target=3)(view)
    np.testing.assert_array_equal(honest, np.broadcast_to(view.own[:1], view.own.shape))


def test_the_claim_liar_sends_the_best_there_is_where_the_victim_looks(view: View) -> None:
    inbox = view.inbox
    assert isinstance(inbox, np.ndarray)
    attack = attacks.create("claim-liar")
    assert attack.claims(view).all()
    sent = attack(view)
    np.testing.assert_allclose(sent[:, TESTABLE], np.broadcast_to(inbox.mean(axis=0)[TESTABLE], (3, 2, 4)))
    np.testing.assert_array_equal(sent[:, ~TESTABLE], view.own[:, [2, 4, 1]])


def test_inflated_rows_point_the_same_way(view: View) -> None:
    sent = attacks.create("inflate", factor=5)(view)
    np.testing.assert_array_equal(sent[:, TESTABLE], view.own[:, TESTABLE])
    np.testing.assert_array_equal(sent[:, ~TESTABLE], 5 * view.own[:, ~TESTABLE])


def test_attackers_claim_everything_unless_they_say_otherwise_and_a_sybil_claims_what_it_hides(view: View) -> None:
    assert attacks.create("label-flip").claims(view).all()
    hidden = attacks.create("sybil", inner="outnumber").claims(view)
    assert hidden.tolist() == [[True, False, False, False, False]] * 3
