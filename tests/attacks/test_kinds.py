"""Attacks that equivocate, broadcast, are tied to real features, or use what everybody knows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from bristle import rules
from bristle.attacks import Array, Attack, Knowledge, View, namespace, required
from bristle.commands.demo import Demo
from bristle.simulation import FeatureData, Scenario, World
from bristle.testing import check_attack


class Lies(Attack):
    """m = U(0, 1), another one for every victim."""

    seen: ClassVar[list[Any]] = []

    @property
    def stochastic(self) -> bool:
        return True

    @property
    def equivocates(self) -> bool:
        return True

    @property
    def trains(self) -> bool:
        return False

    def craft(self, view: View, draws: Array | None) -> Array:
        assert draws is not None
        self.seen.append(draws)
        return draws


class MeanOfAll(Attack):
    """m = -(mean of all heads that any victim receives), the same for everybody."""

    @property
    def knows(self) -> Knowledge:
        return Knowledge.INBOX

    @property
    def broadcasts(self) -> bool:
        return True

    def craft(self, view: View, draws: Array | None) -> Array:
        inbox, xp = required(view.inbox, "inbox", self), namespace(view.own)
        if not inbox.shape[1]:
            return xp.zeros_like(view.own)
        return xp.zeros_like(view.own) - xp.mean(inbox, axis=(0, 1))[None, None, ...]


class SaysItBroadcasts(MeanOfAll):
    def craft(self, view: View, draws: Array | None) -> Array:
        inbox = required(view.inbox, "inbox", self)
        return view.own if not inbox.shape[1] else view.own * 0 + namespace(inbox).sum(inbox, axis=1, keepdims=True)


@dataclass(frozen=True, kw_only=True)
class AsksForClaims(rules.Bristle):
    """Bristle that wants to know what senders claim."""

    uses_claims = True


@dataclass(frozen=True, kw_only=True)
class Marked(Attack):
    """m = x + a mark in the features of one backbone."""

    @property
    def feature_count(self) -> int:
        return 7

    def craft(self, view: View, draws: Array | None) -> Array:
        xp = namespace(view.own)
        return view.own + xp.arange(7, dtype=view.own.dtype, device=view.own.device)


class Rare(Attack):
    """m = x; claims the class that the fewest benign members claim, and looks at the inbox for it in vain."""

    views: ClassVar[list[View]] = []

    @property
    def knows(self) -> Knowledge:
        return Knowledge.INBOX

    def craft(self, view: View, draws: Array | None) -> Array:
        return view.own

    def claims(self, view: View) -> Array:
        self.views.append(view)
        xp, own = namespace(view.own), view.own
        classes = xp.arange(own.shape[2], device=own.device)
        if view.claims is None:
            return xp.broadcast_to(classes >= 0, own.shape[:-1])
        counts = xp.sum(xp.astype(view.claims, xp.int64), axis=0)
        return xp.broadcast_to(classes == xp.argmin(counts), own.shape[:-1])


@pytest.fixture
def data() -> FeatureData:
    rng = np.random.default_rng(0)
    labels = np.arange(400) % 5
    x = (rng.standard_normal((5, 6))[labels] + rng.standard_normal((400, 6))).astype(np.float32)
    return FeatureData(x[:300], labels[:300], x[300:], labels[300:], tuple("abcde"))


@pytest.mark.parametrize("attack", [Lies(), MeanOfAll(), Marked(), Rare()], ids=lambda one: type(one).__name__)
def test_they_conform(attack: Attack) -> None:
    check_attack(attack)


def test_what_does_not_broadcast_is_noticed() -> None:
    with pytest.raises(AssertionError, match="says that it broadcasts but sends one victim something else"):
        check_attack(SaysItBroadcasts())


@pytest.mark.parametrize("receivers_at_once", [None, 2])
def test_every_victim_gets_draws_of_its_own(receivers_at_once: int | None, data: FeatureData) -> None:
    Lies.seen.clear()
    chosen = Scenario(peers=5, attackers=2, attack=Lies(), classes_per_peer=3, receivers_at_once=receivers_at_once)
    World(chosen, data).advance()
    draws = np.concatenate(Lies.seen)
    assert draws.shape == (5, 2, 5, 6)
    assert len(np.unique(draws)) > 0.99 * draws.size
    Lies.seen.clear()
    World(replace(chosen, receivers_at_once=None), data).advance()
    assert np.array_equal(np.concatenate(Lies.seen), draws), "draws do not depend on who is served together"


@pytest.mark.parametrize("receivers_at_once", [None, 2])
def test_a_broadcast_is_the_same_for_all(receivers_at_once: int | None, data: FeatureData) -> None:
    chosen = Scenario(
        peers=4, attackers=1, attack=MeanOfAll(), classes_per_peer=3, receivers_at_once=receivers_at_once,
        rule=rules.FedAvg(),
    )  # fmt: skip
    world = World(chosen, data)
    world.advance()
    before = world.heads
    world.advance()
    mean = before.mean(axis=0)
    expected = (before.sum(axis=0) - mean) / 5
    # Before training, everybody holds the mean of the five heads.
    np.testing.assert_allclose(world.state.previous, np.broadcast_to(expected, before.shape), atol=1e-6)


def test_claims_are_made_on_the_view_that_heads_are_made_on(data: FeatureData) -> None:
    Rare.views.clear()
    chosen = Scenario(peers=4, attackers=2, attack=Rare(), classes_per_peer=3, rule=AsksForClaims(), held_out=10)
    World(chosen, data).advance()
    (view,) = Rare.views
    assert view.own.shape == (4, 2, 5, 6)
    assert isinstance(view.inbox, np.ndarray)
    assert view.inbox_mask is not None
    assert view.victim is None
    assert view.claims is not None
    assert view.claims.shape == (4, 5)
    assert view.claims.any()


def test_equivocation_does_not_go_over_a_network() -> None:
    with pytest.raises(ValueError, match="sends each victim something else"):
        Demo(attack=f"{__name__}:Lies").check()
