"""Worlds whose peers exchange statements: one exchange is enough, news travel, and runs repeat to the bit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bristle import attacks, rules, simulate
from bristle._core import to_numpy
from bristle.rules import Reason
from bristle.rules.evidence import EvidenceDecision, Statement
from bristle.simulation import (
    All,
    Asynchrony,
    FeatureData,
    Grid,
    RandomNeighbours,
    Ring,
    Scenario,
    Watch,
    World,
)
from bristle.simulation.run import run
from bristle.testing.evidence import hostile

PLAIN = Scenario(peers=6, classes_per_peer=3, samples_per_class=8, rule=rules.create("evidence"), iterations=3)


def flipping(attackers: int = 2) -> Scenario:
    return replace(PLAIN, attackers=attackers, attack=attacks.create("label-flip", classes=6))


def test_one_exchange_is_enough_where_all_hear_all(data: FeatureData) -> None:
    world = World(PLAIN, data)
    first = world.advance()
    assert isinstance(first.decision, EvidenceDecision)
    assert first.senders.shape == (6, 5)
    assert first.mask is None
    heads, accuracy = to_numpy(world.heads).copy(), to_numpy(world.accuracy())
    assert accuracy.min() > 0.9
    alone = World(replace(PLAIN, rule=rules.Local()), data)
    alone.advance()
    assert accuracy.min() > to_numpy(alone.accuracy()).max() + 0.2
    second = world.advance()
    assert (world.iteration, second.iteration) == (2, 2)
    np.testing.assert_array_equal(to_numpy(world.heads), heads)
    assert second.decision is first.decision


def test_nothing_is_fed_back(data: FeatureData) -> None:
    """Whatever the number of exchanges, nobody's statement depends on what anybody else said."""
    world = World(flipping(), data)
    world.advance()
    assert world.exchange is not None
    before = [to_numpy(one.rows).copy() for one in world.exchange.statements]
    for _ in range(5):
        world.advance()
    for one, rows in zip(world.exchange.statements, before, strict=True):
        np.testing.assert_array_equal(one.rows, rows)


def test_rows_have_the_usual_columns(data: FeatureData) -> None:
    ours = run(PLAIN, data, every=1).rows
    theirs = run(replace(PLAIN, rule=rules.Bristle(kappa=8)), data, every=1).rows
    assert [row["iteration"] for row in ours] == [1, 2, 3]
    assert list(ours[0]) == list(theirs[0])
    assert ours[0]["rule"] == "evidence"
    assert ours[0] == {**ours[2], "iteration": 1}
    assert 0 < ours[0]["weight_benign"] <= 1
    assert ours[0]["weight_malicious"] == 0


@pytest.mark.parametrize("attack", attacks.names())
def test_every_attack_runs_and_no_head_breaks(attack: str, data: FeatureData) -> None:
    flip = attacks.create("label-flip", classes=6)
    special: dict[str, dict[str, Any]] = {"label-flip": {"classes": 6}, "sybil": {"inner": flip}}
    made = attacks.create(attack, **special.get(attack, {}))
    world = World(replace(PLAIN, attackers=2, attack=made), data)
    latest = world.advance()
    assert np.isfinite(to_numpy(world.heads)).all()
    assert world.bias is not None
    assert np.isfinite(to_numpy(world.bias)).all()
    assert (latest.senders >= 6).sum() == 12
    assert all(latest.decision.explain((0, place)) for place in range(7))
    assert to_numpy(world.accuracy()).mean() > 0.8


def test_label_flippers_are_given_nothing(data: FeatureData) -> None:
    world = World(flipping(), data)
    latest = world.advance()
    liars = latest.senders >= 6
    assert not to_numpy(latest.decision.weights)[liars].any()
    assert (to_numpy(latest.decision.reasons)[liars] == int(Reason.TOO_DIFFERENT)).all()
    assert "standard errors from mine" in latest.decision.explain((0, int(np.flatnonzero(liars[0])[0])))


def test_statements_take_their_bytes_once(data: FeatureData) -> None:
    world = World(PLAIN, data)
    world.advance()
    assert world.exchange is not None
    sizes = [(24 + 1) * (3 + len(to_numpy(one.factors)) + 1) + 4 * 6 for one in world.exchange.statements]
    np.testing.assert_array_equal(world.bytes_sent, [5 * size for size in sizes])
    world.advance()
    np.testing.assert_array_equal(world.bytes_sent, [5 * size for size in sizes])
    listened = World(flipping(), data)
    listened.advance()
    np.testing.assert_array_equal(listened.bytes_sent, [7 * size for size in sizes])


@pytest.mark.parametrize(("topology", "width"), [(Ring(), 6), (Grid(), 5), (RandomNeighbours(k=3), None)])
def test_news_travel_as_far_as_the_graph_is_wide(topology: Any, width: int | None, data: FeatureData) -> None:
    scenario = replace(PLAIN, peers=12, topology=topology)
    world, everybody = World(scenario, data), World(replace(scenario, topology=All()), data)
    exchange = world.exchange
    assert exchange is not None
    everybody.advance()
    known: list[int] = []
    while len(known) < 2 or known[-1] > known[-2]:
        world.advance()
        known.append(int(exchange.known.sum()))
        assert len(known) < 20
    assert exchange.known.all()
    took = len(known) - 1
    assert took == width or width is None
    np.testing.assert_allclose(to_numpy(world.accuracy()), to_numpy(everybody.accuracy()), atol=0.02)
    np.testing.assert_allclose(to_numpy(world.heads), to_numpy(everybody.heads), rtol=1e-3, atol=1e-3)
    # Nothing is sent twice: everybody gets everybody else's statement once, whoever carries it.
    assert world.bytes_sent.sum() == everybody.bytes_sent.sum()


def test_whoever_is_not_connected_is_never_heard(data: FeatureData) -> None:
    world = World(replace(PLAIN, peers=12, topology=Ring()), data)
    first = world.advance()
    assert first.mask is None
    assert first.senders.shape == (12, 2)
    assert {int(who) for who in first.senders[0]} == {1, 11}
    assert world.advance().senders.shape == (12, 4)


def test_liars_are_passed_on_too(data: FeatureData) -> None:
    scenario = replace(flipping(), peers=12, topology=Ring(reach=3), attackers_in_graph=True)
    world = World(scenario, data)
    for _ in range(8):
        latest = world.advance()
    assert world.exchange is not None
    assert world.exchange.known.all()
    assert (latest.senders >= 12).sum() == 24
    assert to_numpy(world.accuracy()).mean() > 0.85


def test_hostile_statements_in_a_world_are_refused(data: FeatureData, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(flipping(1), data)
    assert world.exchange is not None
    plain = World(PLAIN, data)
    plain.advance()
    good = world.exchange.attackers[0]
    for what, statement in hostile(good).items():
        if not isinstance(statement, Statement):
            continue
        world = World(flipping(1), data)
        monkeypatch.setattr(world.exchange, "_shared", lambda iteration, said=statement: [said])
        latest = world.advance()
        reasons = to_numpy(latest.decision.reasons)[latest.senders >= 6]
        assert not np.isin(reasons, (int(Reason.KEPT), int(Reason.COPY))).any(), what
        # Attackers hold samples too: what is honest is not the same samples as without them, but as good.
        assert to_numpy(world.accuracy()).mean() > to_numpy(plain.accuracy()).mean() - 0.05, what


@pytest.mark.parametrize(("attack", "stop"), [("label-flip", 1), ("additive-noise", 3), ("krum", 7)])
def test_a_checkpoint_goes_on_to_the_same_bits(tmp_path: Path, attack: str, stop: int, data: FeatureData) -> None:
    scenario = replace(
        PLAIN,
        peers=12,
        attackers=2,
        attack=attacks.create(attack, **({"classes": 6} if attack == "label-flip" else {})),
        topology=Ring(),
        iterations=8,
    )
    whole = run(scenario, data, every=1, checkpoint=tmp_path / "whole.npz")
    path = tmp_path / "part.npz"
    done: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        run(
            scenario, data, every=1, checkpoint=path, watch=Watch(iteration=done.append, stop=lambda: len(done) >= stop)
        )
    resumed = run(scenario, data, every=1, checkpoint=path, resume=True)
    assert resumed.rows == whole.rows
    one, other = World(scenario, data), World(scenario, data)
    for _ in range(stop):
        one.advance()
    other.restore(one.arrays())
    for _ in range(3):
        first, second = one.advance(), other.advance()
        assert to_numpy(one.heads).tobytes() == to_numpy(other.heads).tobytes()
        assert to_numpy(first.decision.weights).tobytes() == to_numpy(second.decision.weights).tobytes()
        np.testing.assert_array_equal(first.senders, second.senders)


def test_a_world_repeats_to_the_bit(data: FeatureData) -> None:
    scenario = replace(flipping(), attack=attacks.create("additive-noise"))
    assert run(scenario, data, every=1).rows == run(scenario, data, every=1).rows


def test_decisions_can_be_watched(data: FeatureData) -> None:
    rounds: list[Any] = []
    run(flipping(), data, every=2, watch=Watch(decisions=rounds.append))
    assert [each.iteration for each in rounds] == [1, 2, 3]
    for each in rounds:
        assert to_numpy(each.decision.weights).shape == (6, 7, 6)
        assert to_numpy(each.decision.bias).shape == (6, 6)
        assert len(each.decision.explain((5, 6))) > 10


@pytest.mark.parametrize(
    "changed",
    [{"asynchrony": Asynchrony(loss=0.1)}, {"asynchrony": Asynchrony(delay=(0, 2))}, {"sharing": None}],
    ids=["loss", "delay", "noise"],
)
def test_what_evidence_cannot_do_is_refused_in_one_line(changed: dict[str, Any], data: FeatureData) -> None:
    if "sharing" in changed:
        changed = {"sharing": replace(PLAIN.sharing, noise=0.1, clip=1.0)}
    with pytest.raises(ValueError, match="peers that exchange evidence act together") as caught:
        World(replace(PLAIN, **changed), data)
    assert len(str(caught.value).splitlines()) == 1


def test_labels_alone_are_enough_to_find_mistakes(data: FeatureData) -> None:
    World(flipping(), FeatureData.labels_only(data.train_labels, data.classes))


def test_on_a_device_it_runs_the_ordinary_way_and_says_so(data: FeatureData) -> None:
    torch = pytest.importorskip("torch")
    tensors = replace(
        data, **{name: torch.asarray(getattr(data, name)) for name in ("train", "train_labels", "test", "test_labels")}
    )
    notes: list[str] = []
    scenario = replace(PLAIN, topology=Ring(reach=2))
    found = run(scenario, tensors, every=1, watch=Watch(note=notes.append)).rows
    assert notes == [
        "this world runs the ordinary way, which takes more memory than a large world: "
        "its peers must exchange plain heads, not evidence"
    ]
    expected = run(scenario, data, every=1).rows
    assert [row["accuracy_mean"] for row in found] == pytest.approx([row["accuracy_mean"] for row in expected])


CONFIG: dict[str, Any] = {
    "world": {"peers": 5, "attackers": 2, "iterations": 4, "evaluate_every": 2},
    "data": {"train_samples": 1500, "test_samples": 300},
    "rule": {"name": "evidence", "refuse": 9.0, "held_out": False},
    "attack": {"name": "label-flip"},
    "partition": {"samples": 10},
}


def test_by_name_with_options_in_a_world_file(tmp_path: Path) -> None:
    found = simulate(CONFIG).rows
    assert [row["iteration"] for row in found] == [2, 4]
    assert found[0]["rule"] == "evidence"
    assert json.dumps(found) == json.dumps(simulate(CONFIG).rows)
    path = tmp_path / "world.toml"
    path.write_text('[rule]\nname = "evidence"\nquorum = -1\n')
    with pytest.raises(ValueError, match="quorum"):
        simulate(path)
    path.write_text('[rule]\nname = "evidence"\nbefore = ["bucketing"]\n')
    with pytest.raises(ValueError, match="steps mix heads"):
        simulate(path)
    path.write_text('[rule]\nname = "evidence"\n[asynchrony]\nloss = 0.2\n')
    with pytest.raises(ValueError, match="leave out asynchrony"):
        simulate(path)
