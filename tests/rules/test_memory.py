"""A rule that remembers: its state goes through calls, worlds, checkpoints, live peers and stores."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bristle import rules
from bristle.learning.optimiser import TrainingSettings
from bristle.learning.samples import SampleStore
from bristle.p2p.inbox import ReceivedHead
from bristle.peer.learner import Draws, Learner
from bristle.peer.record import Iteration
from bristle.peer.store import PeerStore
from bristle.rules import Context, Inbox, Rule, State, Task, Verdict
from bristle.simulation import Asynchrony, FeatureData, Scenario, World
from bristle.testing import check_rule
from bristle.wire.group import Group


@dataclass(frozen=True, kw_only=True)
class Counts(Rule):
    """x' = mean of all, with a smaller and smaller share of the others; remembers how often it was called."""

    def initial_state(self, own: Any) -> State:
        xp = rules.namespace(own)
        return {"calls": xp.zeros(own.shape[:-2], dtype=xp.int64, device=own.device), "own": own}

    def decide(self, inbox: Inbox, task: Task) -> Verdict:
        assert task.state is not None
        xp, calls = inbox.xp, task.state["calls"] + 1
        share = 1 / (1 + xp.astype(calls, inbox.own.dtype))[:, None]
        models = xp.zeros((inbox.own.shape[0], inbox.received), dtype=inbox.own.dtype, device=inbox.own.device)
        weights = xp.concat([1 - share, models + share / inbox.received], axis=1)
        verdict = rules.combination(inbox, weights, xp.zeros(models.shape, dtype=xp.int8, device=models.device))
        return replace(verdict, state={"calls": calls, "own": task.state["own"]})


@pytest.fixture
def data() -> FeatureData:
    rng = np.random.default_rng(0)
    labels = np.arange(400) % 5
    x = (rng.standard_normal((5, 6))[labels] + rng.standard_normal((400, 6))).astype(np.float32)
    return FeatureData(x[:300], labels[:300], x[300:], labels[300:], tuple("abcde"))


def test_it_conforms() -> None:
    check_rule(Counts())
    check_rule(rules.chain(rules.Bucketing(s=2), Counts()))


def test_the_state_of_each_receiver_is_its_own() -> None:
    rng = np.random.default_rng(0)
    own, received = rng.normal(size=(2, 3, 4, 5)), rng.normal(size=(2, 3, 6, 4, 5))
    mask = np.tril(np.ones((6, 6), dtype=bool), k=-1).reshape(2, 3, 6)  # 0 to 5 models
    first = Counts()(own, received, mask=mask)
    assert first.state is not None
    assert first.state["calls"].tolist() == [[0, 1, 1], [1, 1, 1]], "who heard nothing decided nothing"
    assert np.array_equal(first.state["own"], own)
    second = Counts()(own, received, context=Context(iteration=2, total=2, state=first.state))
    assert second.state is not None
    assert second.state["calls"].tolist() == [[1, 2, 2], [2, 2, 2]]


def test_a_wrong_state_is_a_mistake() -> None:
    own, received = np.zeros((3, 4, 5)), np.zeros((3, 6, 4, 5))
    for state, words in (
        ({"calls": np.zeros(3)}, "Counts has the state"),
        ({"calls": np.zeros(2, dtype=np.int64), "own": own}, "must have shape"),
        ([1], "must be a mapping"),
    ):
        with pytest.raises(ValueError, match=words):
            Counts()(own, received, context=Context(state=state))  # type: ignore[arg-type]
    assert rules.FedAvg()(own, received, context=Context(state={"x": own})).state is None


@pytest.mark.parametrize("asynchrony", [Asynchrony(), Asynchrony(absences=((1, 2, 3),), loss=0.2)])
def test_worlds_and_checkpoints_carry_it(asynchrony: Asynchrony, data: FeatureData) -> None:
    scenario = Scenario(peers=5, classes_per_peer=3, rule=Counts(), asynchrony=asynchrony, iterations=6)
    together, apart = World(scenario, data), World(replace(scenario, receivers_at_once=2), data)
    for world in (together, apart):
        while world.iteration < 3:
            world.advance()
    taken_up = World(scenario, data)
    taken_up.restore({name: values.copy() for name, values in together.arrays().items()})
    for world in (together, apart, taken_up):
        while world.iteration < 6:
            world.advance()
        assert world.state.memory is not None
    assert together.state.memory is not None
    calls = together.state.memory["calls"]
    assert (calls.max() == 6) or asynchrony != Asynchrony()
    for world in (apart, taken_up):
        np.testing.assert_allclose(world.heads, together.heads, atol=1e-6)
        assert world.state.memory is not None
        assert world.state.memory["calls"].tolist() == calls.tolist()


def test_a_live_peer_keeps_it_in_its_store(tmp_path: Path) -> None:
    group = Group(application="a", backbone="ab" * 32, classes=("a", "b", "c"), features=4)

    def learner(store: PeerStore, rule: Rule) -> Learner:
        saved = store.load()
        samples = SampleStore(classes=3, features=4)
        state, iteration = (saved.state, saved.iteration) if saved else (None, 0)
        return Learner(
            samples=samples, rule=rule, draws=Draws(0), training=TrainingSettings(), state=state, iteration=iteration
        )

    message = ReceivedHead(sender=b"x" * 20, iteration=1, head=np.ones((3, 4), dtype=np.float32))
    for calls in (1, 2):
        with closing(PeerStore(tmp_path / "peer.sqlite", identity="01" * 20, group=group)) as store:
            peer = learner(store, Counts())
            peer.iterate([message])
            record = Iteration(iteration=peer.iteration, at=0, seconds=0, heard=())
            store.save(peer.iteration, peer.state, record, counters={}, spending={})
            assert peer.state.memory is not None
            assert peer.state.memory["calls"] == calls
    with closing(PeerStore(tmp_path / "peer.sqlite", identity="01" * 20, group=group)) as store:
        assert learner(store, rules.FedAvg()).state.memory is None, "another rule does not get it"
