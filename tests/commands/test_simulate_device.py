"""A world on a device, as people describe it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bristle import simulate
from bristle.simulation import Watch

CONFIG: dict[str, Any] = {
    "world": {"peers": 14, "attackers": 6, "iterations": 4, "evaluate_every": 2},
    "data": {"train_samples": 600, "test_samples": 60},
    "topology": {"name": "random", "k": 4, "attackers": "in-graph"},
    "attack": {"name": "label-flip"},
    "partition": {"reuse": True, "held_out": 5},
    "rule": {"name": "bristle", "kappa": 5},
}


def with_world(**options: Any) -> dict[str, Any]:
    return {**CONFIG, "world": {**CONFIG["world"], **options}}


def test_a_device_gives_the_same_rows_within_rounding() -> None:
    wanted, found = simulate(CONFIG).rows, simulate(with_world(device="cpu")).rows
    assert [row["iteration"] for row in found] == [2, 4]
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine["accuracy_mean"] == pytest.approx(theirs["accuracy_mean"], abs=0.02)
    narrow = with_world(device="cpu", moments="bfloat16", shared="bfloat16", evaluate_peers=5)
    assert simulate(narrow).last()["accuracy_mean"] > 0.1


def test_a_world_that_does_not_fit_is_refused_before_anything_is_made() -> None:
    with pytest.raises(ValueError, match=r"a world of 9,000,000,006 nodes takes .* but cpu has"):
        simulate(with_world(device="cpu", peers=9_000_000_000))


def test_what_is_for_devices_is_refused_elsewhere() -> None:
    with pytest.raises(ValueError, match="evaluate_peers is for large worlds"):
        simulate(with_world(evaluate_peers=3))
    with pytest.raises(ValueError, match="shared='bfloat16' is for large worlds"):
        simulate(with_world(shared="bfloat16"))
    with pytest.raises(ValueError, match="there is no device 'gpu'"):
        simulate(with_world(device="gpu"))


def test_a_checkpoint_or_decisions_need_an_ordinary_world_which_is_planned_and_said(tmp_path: Path) -> None:
    notes: list[str] = []
    simulate(with_world(device="cpu"), watch=Watch(note=notes.append))
    assert notes == []
    simulate(with_world(device="cpu"), checkpoint=tmp_path / "run.npz", watch=Watch(note=notes.append))
    simulate(with_world(device="cpu"), watch=Watch(note=notes.append, decisions=lambda latest: None))
    ordinary = "this world runs the ordinary way, which takes more memory than a large world: "
    assert notes == [f"{ordinary}it keeps a checkpoint", f"{ordinary}its decisions are kept or shown"]
    with pytest.raises(ValueError, match=r"that runs the ordinary way takes at least .* cpu has .* free"):
        simulate(with_world(device="cpu", peers=9_000_000_000), checkpoint=tmp_path / "run.npz")
    with pytest.raises(ValueError, match="shared='bfloat16' is for large worlds"):
        simulate(with_world(device="cpu", shared="bfloat16"), checkpoint=tmp_path / "run.npz")
