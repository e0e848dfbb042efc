"""What a simulated world shows: its own decisions, no more than fits, and nothing that costs while nobody looks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bristle import attacks, rules
from bristle.cli import main
from bristle.commands.dashboard import Feed
from bristle.commands.dashboard.simulate import SimulationBoard
from bristle.report.snapshot import MOST_MEMBERS, MemberKind, RunState, read_snapshot
from bristle.rules import Decision
from bristle.rules.decision import Reason
from bristle.simulation import FeatureData, Scenario, Watch, run
from bristle.simulation.mailbox import Asynchrony
from bristle.simulation.topology import RandomNeighbours
from bristle.simulation.world import Round


def blobs(classes: int = 10, features: int = 16, each: int = 250) -> FeatureData:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(classes, features)) * 2
    labels = np.repeat(np.arange(classes), each)
    x = (centres[labels] + rng.normal(size=(len(labels), features))).astype(np.float32)
    return FeatureData(x, labels, x[::7], labels[::7], tuple(f"c{number}" for number in range(classes)))


def followed(scenario: Scenario, feed: Feed | None, *, also: Callable[[Round], None] | None = None) -> SimulationBoard:
    data = blobs()
    board = SimulationBoard(scenario, data, feed)

    def decided(latest: Round) -> None:
        board.decided(latest)
        if also is not None:
            also(latest)

    watch = Watch(
        row=board.row, decisions=decided, weigh=board.wants_weights, measurement=board.measured,
        iteration=board.iterated,
    )  # fmt: skip
    run(scenario, data, every=2, watch=watch)
    return board


def world(**more: object) -> Scenario:
    settings: dict[str, object] = {
        "peers": 6, "attackers": 2, "attack": attacks.create("label-flip"), "classes_per_peer": 3, "held_out": 10,
        "iterations": 6, "rule": rules.create("bristle"), **more,
    }  # fmt: skip
    return Scenario(**settings)  # type: ignore[arg-type]


def test_it_shows_what_was_decided() -> None:
    rounds: list[Round] = []
    found = followed(world(), None, also=rounds.append).snapshot(RunState.ENDED)
    last = rounds[-1]
    assert [one.name for one in found.members] == [*(f"peer {n}" for n in range(6)), "attacker 1", "attacker 2"]
    assert [one.kind for one in found.members[5:]] == [MemberKind.BENIGN, MemberKind.MALICIOUS, MemberKind.MALICIOUS]
    assert found.members[1].holds == (1, 2, 3)
    assert found.members[0].hears == (1, 2, 3, 4, 5, 6, 7)
    for row, judgement in enumerate(found.judgements):
        assert judgement.receiver == row
        assert list(judgement.senders) == last.senders[row].tolist()
        assert list(judgement.reasons) == np.asarray(last.decision.reasons)[row].tolist()
        np.testing.assert_array_equal(judgement.weights, np.asarray(last.decision.weights)[row])
    assert [point[0] for point in found.history] == [2, 4, 6]
    _, mean, low, high = found.history[-1]
    scores = [one.accuracy for one in found.members[:6]]
    assert (low, high) == (min(filter(None, scores)), max(filter(None, scores)))
    assert mean == pytest.approx(np.mean([score for score in scores if score is not None]))
    assert found.oracle is not None
    assert found.oracle > 0.7
    sent = found.members[0].bytes_out
    assert found.members[0].bytes_in == sent, "everybody hears and is heard by seven others in every iteration"
    assert read_snapshot(json.loads(json.dumps(found.to_dict()))).to_dict() == found.to_dict()


def test_refusals_are_counted_by_kind() -> None:
    found = followed(world(attack=attacks.create("non-finite")), None).snapshot(RunState.ENDED)
    refused = found.members[0].refused
    assert sum(refused.values()) == 2 * 6
    assert all(not words.startswith("refused") for words in refused)


def test_nothing_is_weighed_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real: Any = Decision.__dict__["weights"]

    def weights(self: Decision) -> object:
        asked.append(1)
        return real.func(self)

    monkeypatch.setattr(Decision, "weights", property(weights))
    slow = world(asynchrony=Asynchrony(slow=0.5, period=2), iterations=12)
    run(slow, blobs(), every=100)
    without = len(asked)
    asked.clear()
    followed_data = blobs()
    board = SimulationBoard(slow, followed_data, Feed())
    watch = Watch(decisions=board.decided, weigh=board.wants_weights, iteration=board.iterated)
    run(slow, followed_data, every=100, watch=watch)
    assert len(asked) <= without + 2, "only the last iteration is looked at"


def test_a_feed_that_is_looked_at_gets_iterations() -> None:
    now = [0.0]
    feed = Feed(clock=lambda: now[0])
    feed.newer_than(-1)
    seen: list[int] = []

    def look(_: Round) -> None:
        now[0] += 1
        body = feed.newer_than(-1)
        assert body is not None
        seen.append(json.loads(body)["iteration"])

    followed(world(), feed, also=look)
    assert seen[0] == 0
    assert seen[-1] >= 4


def test_of_a_large_world_receivers_are_shown_with_those_whom_they_hear() -> None:
    scenario = world(peers=300, attackers=5, topology=RandomNeighbours(k=4), iterations=2, reuse=True)
    found = followed(scenario, None).snapshot(RunState.ENDED)
    assert len(found.members) <= MOST_MEMBERS
    assert found.left_out == 305 - len(found.members)
    assert sum(one.kind is MemberKind.MALICIOUS for one in found.members) == 5
    whole = [one for one in found.judgements if not one.unseen]
    assert len(whole) >= 10
    assert all(len(one.senders) == 4 + 5 for one in whole)


def test_rules_of_every_kind_can_be_shown() -> None:
    for name in ("krum", "median", "local", "bristle"):
        found = followed(world(rule=rules.create(name), iterations=2), None).snapshot(RunState.ENDED)
        assert all(Reason(code) for one in found.judgements for code in one.reasons if code)
        assert len(found.judgements) == 6


@pytest.mark.slow
def test_the_last_row_keeps_decisions_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BRISTLE_CACHE", str(tmp_path / "cache"))
    toml, file = tmp_path / "world.toml", tmp_path / "rows.jsonl"
    toml.write_text(
        "[world]\npeers = 3\nattackers = 1\niterations = 12\n[attack]\nname = 'label-flip'\n"
        "[data]\ntrain_samples = 1500\ntest_samples = 100\n"
    )
    monkeypatch.setattr("sys.argv", ["bristle", "simulate", str(toml), "--json", str(file), "--decisions"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert not stopped.value.code
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["iteration"] for row in rows] == [10, 12]
    assert "snapshot" not in rows[0]
    kept = read_snapshot(rows[1]["snapshot"])
    assert kept.state is RunState.ENDED
    assert len(kept.judgements) == 3
    assert kept.history[-1][1] == rows[1]["accuracy_mean"]
    monkeypatch.setattr("sys.argv", ["bristle", "report", str(file), "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert not stopped.value.code
    assert "attacker 1" in (tmp_path / "out" / "run.html").read_text()
    monkeypatch.setattr("sys.argv", ["bristle", "simulate", str(toml), "--decisions"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert "add --json FILE" in capsys.readouterr().err


def test_evidence_is_shown_as_heads_are() -> None:
    rounds: list[Round] = []
    scenario = world(rule=rules.create("evidence"), iterations=3, topology=RandomNeighbours(k=2))
    found = followed(scenario, Feed(), also=rounds.append).snapshot(RunState.ENDED)
    last = rounds[-1]
    for row, judgement in enumerate(found.judgements):
        there = slice(None) if last.mask is None else last.mask[row]
        assert list(judgement.senders) == last.senders[row][there].tolist()
        assert list(judgement.reasons) == np.asarray(last.decision.reasons)[row][there].tolist()
    assert {Reason(code) for judgement in found.judgements for code in judgement.reasons} >= {Reason.KEPT}
    for row, member in enumerate(found.members[:6]):
        assert sorted(member.hears or ()) == sorted(set(last.senders[row].tolist()) - {-1})
