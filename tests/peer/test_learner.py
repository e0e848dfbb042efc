from __future__ import annotations

import numpy as np
import pytest

from bristle import Bristle, rules
from bristle.attacks import create as create_attack
from bristle.learning.optimiser import TrainingSettings
from bristle.learning.samples import Samples, SampleStore
from bristle.p2p.inbox import ReceivedHead
from bristle.peer.learner import Draws, Learner
from bristle.peer.record import Iteration, heard_of
from bristle.simulation import Scenario, World
from bristle.simulation.population import FeatureData

CLASSES, FEATURES = 5, 12


def make_data() -> FeatureData:
    rng = np.random.default_rng(3)
    centres = rng.normal(size=(CLASSES, FEATURES))
    labels = np.arange(400) % CLASSES
    features = (centres[labels] + rng.normal(scale=0.7, size=(400, FEATURES))).astype(np.float32)
    names = tuple(str(number) for number in range(CLASSES))
    return FeatureData(features[:300], labels[:300], features[300:], labels[300:], names)


@pytest.mark.parametrize("name", ["bristle", "median", "local"])
def test_live_peers_do_what_simulated_ones_do(name: str) -> None:
    """The simulator is one batched call for all; live peers run one by one on what the others sent."""
    peers, seed = 4, 11
    scenario = Scenario(
        peers=peers, attackers=0, rule=rules.create(name), attack=create_attack("none"), classes_per_peer=2,
        samples_per_class=6, held_out=4, iterations=12, seed=seed,
    )  # fmt: skip
    if name == "bristle":
        scenario = Scenario(**{**vars(scenario), "rule": Bristle(kappa=4)})
    world = World(scenario, make_data())
    learners = [live_peer(world, number, seed) for number in range(peers)]
    for _ in range(12):
        shared = [ReceivedHead(bytes([number]) * 20, 1, learner.head) for number, learner in enumerate(learners)]
        world.advance()
        for number, learner in enumerate(learners):
            learner.iterate([message for other, message in enumerate(shared) if other != number])
    for number, learner in enumerate(learners):
        assert learner.iteration == 12
        np.testing.assert_allclose(learner.head, world.heads[number], rtol=1e-4, atol=1e-5)


def live_peer(world: World, number: int, seed: int) -> Learner:
    held, held_out = world.held, world.population.held_out
    parts = []
    for samples in (held, held_out):
        assert samples.index is not None
        rows = samples.index[number][samples.labels[number] >= 0]
        parts.append(Samples(samples.features[rows], samples.labels[number][samples.labels[number] >= 0]))
    store = SampleStore.restore(parts[0], parts[1], classes=CLASSES, kappa=4)
    rule = world.scenario.rule
    return Learner(samples=store, rule=rule, draws=Draws(seed, number), training=world.scenario.training)


def test_a_peer_without_held_out_samples_trains_and_does_not_integrate() -> None:
    rng = np.random.default_rng(0)
    samples = SampleStore(CLASSES, FEATURES)
    samples.add(rng.normal(size=(3, FEATURES)), np.array([0, 1, 2]), rng=rng)
    learner = Learner(samples=samples, rule=Bristle(), draws=Draws(1), training=TrainingSettings())
    stranger = ReceivedHead(b"s" * 20, 9, np.ones((CLASSES, FEATURES), dtype=np.float32))
    decision = learner.iterate([stranger])
    heard = heard_of(decision, [stranger])
    assert heard[0].reason == "nothing-to-test-on"
    assert heard[0].share == 0
    assert learner.head.any(axis=1).tolist() == [True, True, True, False, False]
    assert not learner.claims.any()


def test_what_strangers_send_is_refused_with_a_reason() -> None:
    rng = np.random.default_rng(0)
    samples = SampleStore(CLASSES, FEATURES)
    samples.add(rng.normal(size=(60, FEATURES)), np.arange(60) % 2, rng=rng)
    learner = Learner(samples=samples, rule=Bristle(), draws=Draws(1), training=TrainingSettings())
    assert learner.claims.tolist() == [True, True, False, False, False]
    good = np.zeros((CLASSES, FEATURES), dtype=np.float32)
    messages = [
        ReceivedHead(b"a" * 20, 1, np.full_like(good, np.nan)),
        ReceivedHead(b"b" * 20, 1, good[:2]),
        ReceivedHead(b"c" * 20, 1, good, claims=np.array([True, False, False, False, False])),
    ]
    decision = learner.iterate(messages)
    heard = heard_of(decision, messages)
    assert [entry.reason for entry in heard][:2] == ["not-finite", "wrong-shape"]
    assert np.isfinite(learner.head).all()


def test_records_come_back_from_json() -> None:
    record = Iteration(iteration=4, at=2.0, seconds=0.1, accuracy=None, trained=False)
    assert Iteration.from_json(record.to_json()) == record
