"""Worlds on features that are made up: peers learn, attackers do not stop them, and runs repeat to the bit."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bristle import attacks, rules
from bristle._core import to_numpy
from bristle.learning import accuracy_on
from bristle.simulation import (
    Asynchrony,
    Edges,
    FeatureData,
    Grid,
    RandomNeighbours,
    Ring,
    Scenario,
    SmallWorld,
    Topology,
    World,
)
from bristle.wire.sizes import head_bytes

CLASSES, FEATURES = 6, 24


def made_up(seed: int = 0) -> FeatureData:
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((CLASSES, FEATURES))
    labels = np.repeat(np.arange(CLASSES), 250)
    test_labels = np.repeat(np.arange(CLASSES), 40)

    def features(y: Any) -> Any:
        return (truth[y] + 0.8 * rng.standard_normal((len(y), FEATURES))).astype(np.float32)

    return FeatureData(features(labels), labels, features(test_labels), test_labels, tuple("abcdef"))


def after(scenario: Scenario, iterations: int = 60) -> World:
    world = World(scenario, made_up())
    for _ in range(iterations):
        world.advance()
    return world


def test_peers_learn_classes_that_they_do_not_hold() -> None:
    together = after(Scenario(peers=6, classes_per_peer=3)).accuracy()
    alone = after(Scenario(peers=6, classes_per_peer=3, rule=rules.Local())).accuracy()
    assert alone.max() < 0.6
    assert together.min() > 0.85


def test_label_flippers_are_given_nothing() -> None:
    scenario = Scenario(peers=6, attackers=6, attack=attacks.create("label-flip", classes=CLASSES), classes_per_peer=3)
    world = World(scenario, made_up())
    for _ in range(60):
        decision = world.advance().decision
    assert world.accuracy().min() > 0.85
    assert decision.weights[:, 5:].sum() < 0.02 * decision.weights.sum()
    fooled = after(Scenario(**{**vars(scenario), "rule": rules.FedAvg()}))
    assert fooled.accuracy().mean() < 0.5


@pytest.mark.parametrize("attack", attacks.names(shares="heads"))
@pytest.mark.parametrize("rule", [rules.Bristle(), rules.Median()], ids=repr)
def test_every_attack_runs_and_no_head_breaks(attack: str, rule: rules.Rule) -> None:
    flip = attacks.create("label-flip", classes=CLASSES)
    special: dict[str, dict[str, Any]] = {"label-flip": {"classes": CLASSES}, "sybil": {"inner": flip}}
    options = special.get(attack, {})
    scenario = Scenario(peers=6, attackers=2, attack=attacks.create(attack, **options), rule=rule, classes_per_peer=3)
    world = after(scenario, 8)
    assert np.isfinite(world.heads).all()
    assert world.iteration == 8


def test_the_same_seed_gives_the_same_bits() -> None:
    scenario = Scenario(peers=5, attackers=2, attack=attacks.create("alie"), classes_per_peer=2, seed=3)
    first, second = after(scenario, 15).heads, after(scenario, 15).heads
    assert first.tobytes() == second.tobytes()
    assert after(Scenario(**{**vars(scenario), "seed": 4}), 15).heads.tobytes() != first.tobytes()


def test_samples_of_peers_and_attackers_do_not_meet_test_samples() -> None:
    world = World(Scenario(peers=4, attackers=2, classes_per_peer=3), made_up())
    assert world.held.index is not None
    assert world.population.attackers_hold.index is not None
    trained = set(world.held.index.ravel()) | set(world.population.attackers_hold.index.ravel())
    held_out = {row.tobytes() for row in world.evaluation.features.reshape(-1, FEATURES)}
    assert not held_out & {world.data.train[i].tobytes() for i in trained if i >= 0}
    assert (world.evaluation.labels >= 0).sum(axis=1).tolist() == [30] * 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"peers": 0}, "at least 1 peer"),
        ({"attackers": -1}, "0 attackers"),
        ({"rule": "krum"}, r"make them with rules\.create"),
        ({"attack": "krum"}, r"make them with rules\.create"),
        ({"classes_per_peer": 7}, "classes_per_peer must lie between 1 and 6, not 7"),
        ({"samples_per_class": 10_000}, "class"),
    ],
)
def test_impossible_worlds_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        World(Scenario(**{"classes_per_peer": 3, **options}), made_up())


HARD = Asynchrony(slow=0.3, period=3, late=0.2, join_by=8, leaving=0.3, away=4, loss=0.2, delay=(0, 2))
GRAPHS: list[Topology] = [RandomNeighbours(k=2), RandomNeighbours(k=2, redraw=True), Ring(), Grid(), SmallWorld(k=2)]


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(["none", "label-flip", "alie", "dissensus", "free-ride", "stale", "sybil"]),
    st.sampled_from(GRAPHS),
    st.booleans(),
    st.sampled_from([Asynchrony(), HARD]),
    st.integers(1, 7),
)
def test_how_many_are_stepped_at_once_changes_nothing(
    attack: str, topology: Topology, inside: bool, asynchrony: Asynchrony, size: int
) -> None:
    flip = attacks.create("label-flip", classes=CLASSES)
    special: dict[str, dict[str, Any]] = {"label-flip": {"classes": CLASSES}, "sybil": {"inner": flip}}
    options: dict[str, Any] = {
        "peers": 8,
        "attackers": 3,
        "attack": attacks.create(attack, **special.get(attack, {})),
        "rule": rules.FedAvg(),
        "classes_per_peer": 3,
        "topology": topology,
        "attackers_in_graph": inside,
        "asynchrony": asynchrony,
        "iterations": 12,
    }
    one, many = World(Scenario(**options), made_up()), World(Scenario(**options, receivers_at_once=size), made_up())
    for _ in range(12):
        first, second = one.advance(), many.advance()
        assert first.receivers.tolist() == second.receivers.tolist()
        assert first.senders.tolist() == second.senders.tolist()
        assert first.decision.reasons.tolist() == second.decision.reasons.tolist()
        # Products of other sizes may be rounded otherwise, in the last digit.
        np.testing.assert_allclose(first.decision.weights, second.decision.weights, atol=1e-6)
    np.testing.assert_allclose(one.heads, many.heads, atol=1e-5)
    assert one.bytes_sent.tolist() == many.bytes_sent.tolist()


def test_weights_that_were_not_kept_are_not_invented() -> None:
    world = World(Scenario(peers=4, classes_per_peer=3, receivers_at_once=2), made_up())
    with pytest.raises(ValueError, match="weigh=True"):
        _ = world.advance(weigh=False).decision.weights
    assert world.advance().decision.weights.shape == (4, 3, CLASSES)


@pytest.mark.parametrize("topology", GRAPHS, ids=lambda topology: type(topology).__name__)
def test_peers_learn_from_neighbours_of_neighbours(topology: Topology) -> None:
    scenario = Scenario(peers=9, classes_per_peer=3, topology=topology)
    alone = after(Scenario(**{**vars(scenario), "rule": rules.Local()}), 150).accuracy().mean()
    assert after(scenario, 150).accuracy().mean() > alone + 0.25


def test_peers_learn_although_little_arrives() -> None:
    scenario = Scenario(peers=6, classes_per_peer=3, asynchrony=HARD, iterations=200)
    assert after(scenario, 200).accuracy().mean() > 0.8


def test_only_those_whose_turn_it_is_change() -> None:
    scenario = Scenario(peers=6, classes_per_peer=3, asynchrony=Asynchrony(absences=((2, 3, 6),), slow=0.5, period=3))
    world = World(scenario, made_up())
    for iteration in range(1, 12):
        before, sent = world.state, world.bytes_sent
        latest = world.advance()
        idle = np.setdiff1d(np.arange(6), latest.receivers)
        assert (world.heads[idle] == before.head[idle]).all()
        assert (world.state.trained.first[idle] == before.trained.first[idle]).all()
        assert (world.state.trained.steps - before.trained.steps)[latest.receivers].tolist() == [1] * (6 - len(idle))
        assert (2 in latest.receivers) <= (not 3 <= iteration <= 6)
        assert (np.flatnonzero(world.bytes_sent - sent) == latest.receivers).all()


def test_nobody_acts_and_the_world_goes_on() -> None:
    world = World(
        Scenario(peers=2, classes_per_peer=3, asynchrony=Asynchrony(absences=((0, 1, 2), (1, 1, 2)))), made_up()
    )
    latest = world.advance()
    assert latest.receivers.tolist() == []
    assert latest.decision.weights.shape[0] == 0
    assert (world.heads == 0).all()
    world.advance()
    assert world.advance().receivers.tolist() == [0, 1]


def test_links_are_one_way() -> None:
    scenario = Scenario(peers=2, classes_per_peer=3, rule=rules.FedAvg(), topology=Edges(edges=((0, 1),)))
    world, alone = after(scenario, 10), after(Scenario(**{**vars(scenario), "rule": rules.Local()}), 10)
    assert (world.heads[0] == alone.heads[0]).all()
    assert not np.allclose(world.heads[1], alone.heads[1])
    assert world.bytes_sent.tolist() == [10 * head_bytes(CLASSES, FEATURES), 0]


def test_attackers_reach_only_those_who_hear_them() -> None:
    options: dict[str, Any] = {
        "peers": 7,
        "classes_per_peer": 3,
        "attackers": 2,
        "attack": attacks.create("additive-noise"),
        "rule": rules.FedAvg(),
        "topology": Edges(edges=tuple((node, node + 1) for node in range(8))),
        "attackers_in_graph": True,
    }
    world = World(Scenario(**options), made_up())
    latest = world.advance()
    weights = np.asarray(latest.decision.weights).sum(axis=2)
    assert latest.mask is not None
    assert (weights[~latest.mask] == 0).all()
    assert ((latest.senders >= 7) & latest.mask).sum() <= 2


def test_accuracy_is_that_on_the_test_set() -> None:
    world = after(Scenario(peers=5, classes_per_peer=3), 20)
    assert (world.accuracy() == accuracy_on(world.heads, world.data.test, world.data.test_labels)).all()


@pytest.mark.parametrize("attack", ["additive-noise", "alie", "dissensus"])
@pytest.mark.parametrize("asynchrony", [Asynchrony(), HARD], ids=["plain", "hard"])
def test_torch_worlds_are_the_same(attack: str, asynchrony: Asynchrony) -> None:
    plain = made_up()
    there = FeatureData(
        torch.asarray(plain.train),
        torch.asarray(plain.train_labels),
        torch.asarray(plain.test),
        torch.asarray(plain.test_labels),
        plain.classes,
    )
    scenario = Scenario(
        peers=6,
        attackers=2,
        attack=attacks.create(attack),
        classes_per_peer=3,
        topology=RandomNeighbours(k=3),
        asynchrony=asynchrony,
        user_shift=0.1,
    )
    one, other = World(scenario, plain), World(scenario, there)
    for _ in range(10):
        one.advance()
        decision = other.advance().decision
    assert isinstance(decision.head, torch.Tensor)
    np.testing.assert_allclose(one.heads, to_numpy(other.heads), atol=1e-4)


def test_what_is_remembered_must_be_in_the_initial_state_where_peers_act_apart() -> None:
    class Remembers(rules.FedAvg):
        def __call__(self, own: Any, received: Any, **given: Any) -> rules.Decision:
            found = super().__call__(own, received, **given)
            found.state = {"something": own}
            return found

    World(Scenario(peers=3, classes_per_peer=3, rule=Remembers()), made_up()).advance()
    with pytest.raises(ValueError, match="initial_state must name all"):
        World(Scenario(peers=3, classes_per_peer=3, rule=Remembers(), receivers_at_once=2), made_up()).advance()


class Listens(rules.Bristle):
    """Bristle that writes down what senders claim."""

    heard: ClassVar[list[Any]] = []

    @property
    def uses_claims(self) -> bool:
        return True

    def decide(self, inbox: Any, task: Any) -> Any:
        self.heard.append(to_numpy(task.claims))
        return super().decide(inbox, task)


def claims_heard(**options: Any) -> Any:
    Listens.heard.clear()
    World(Scenario(peers=4, classes_per_peer=2, rule=Listens(), **options), made_up()).advance()
    return np.concatenate(Listens.heard)


@pytest.mark.parametrize("receivers_at_once", [None, 1])
def test_benign_peers_claim_what_they_hold_and_attackers_what_they_like(receivers_at_once: int | None) -> None:
    heard = claims_heard(
        attackers=2, attack=attacks.create("excused-trojan"), receivers_at_once=receivers_at_once, iterations=5
    )
    assert heard.shape == (4, 5, CLASSES)
    for receiver in range(4):
        for place, sender in enumerate(other for other in range(4) if other != receiver):
            assert np.flatnonzero(heard[receiver, place]).tolist() == [sender, sender + 1]
        foreign = [c for c in range(CLASSES) if c not in (receiver, receiver + 1)]
        assert [np.flatnonzero(claims).tolist() for claims in heard[receiver, 3:]] == [foreign] * 2


def test_attackers_that_send_everyone_the_same_claim_the_same() -> None:
    heard = claims_heard(attackers=2, attack=attacks.create("label-flip", classes=CLASSES))
    assert heard[:, 3:].all()


def test_some_peers_keep_their_classes_to_themselves() -> None:
    heard = claims_heard(claiming=0.5)
    assert not heard[3, :2].any()
    assert heard[3, 2].sum() == 2
    with pytest.raises(ValueError, match="claiming"):
        World(Scenario(claiming=2), made_up())
