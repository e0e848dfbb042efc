"""Live peers on ready features, and from a head that somebody has."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from bristle import Bristle, Head, Pace, Peer, load_head, save_head
from bristle.backbones import NoBackbone, WithBias
from bristle.cli import app
from bristle.data import Dataset
from bristle.learning import train_oracle

NAMES = ("dry", "wet")


def weather() -> Dataset:
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    middle = np.array([2.0, -2.0, 1.0, -1.0, 0.0])  # Its sum is 0: rows of heads are brought to one level.
    return Dataset.from_arrays(rng.normal(size=(200, 5)) + np.outer(2 * y - 1, middle), y, classes=NAMES)


def good_head(*, bias: bool = False) -> Head:
    data = weather()
    weights = train_oracle(data.x_train.astype(np.float32), data.y_train, 2)
    scale = np.abs(data.x_test @ weights.T).mean()
    offsets = np.array([0, -scale], np.float32) if bias else None
    return Head(weights, offsets, NAMES, NoBackbone(5).digest)


def peer(folder: Path, **options: Any) -> Peer:
    usual = {"application": "weather", "classes": NAMES, "backbone": NoBackbone(5), "pace": Pace(interval=0.01)}
    usual["rule"] = Bristle()
    return Peer(folder=folder, **{**usual, **options})


def test_two_peers_learn_from_ready_features(tmp_path: Path) -> None:
    data = weather()

    async def run() -> None:
        async with peer(tmp_path / "a") as a, peer(tmp_path / "b", known=[a.address]) as b:
            assert a.add(data.x_train[:60], data.y_train[:60]) == 60
            b.add(data.x_train[60:120], [NAMES[label] for label in data.y_train[60:120]])
            await asyncio.gather(a.run(30), b.run(30))
            assert (a.predict(data.x_test) == data.y_test).mean() > 0.9
            with pytest.raises(ValueError, match=r"samples of shape \[4\] are not 5 features"):
                a.predict(data.x_test[:, :4])

    asyncio.run(run())


@pytest.mark.parametrize("bias", [False, True])
def test_a_peer_predicts_with_the_head_it_starts_from_and_gives_it_back(tmp_path: Path, bias: bool) -> None:
    data, head = weather(), good_head(bias=bias)
    backbone = WithBias(NoBackbone(5)) if bias else NoBackbone(5)
    expected = head.scores(data.x_test).argmax(axis=1)
    assert len(set(expected.tolist())) == 2
    assert not bias or (expected != good_head().scores(data.x_test).argmax(axis=1)).any()

    async def run() -> None:
        async with peer(tmp_path / "a", backbone=backbone, head=head) as a:
            np.testing.assert_array_equal(a.predict(data.x_test), expected)
            path = save_head(tmp_path / "head.safetensors", Head.of(a.head, backbone, a.classes))
            again = load_head(path)
            np.testing.assert_array_equal(again.scores(data.x_test), head.scores(data.x_test))
            assert (again.classes, again.backbone) == (NAMES, head.backbone)
            a.add(data.x_train, data.y_train)
            await a.run(2)
            learned.append(a.head.copy())
        # What the folder holds counts from then on.
        async with peer(tmp_path / "a", backbone=backbone, head=head) as a:
            np.testing.assert_array_equal(a.head, learned[0])

    learned: list[Any] = []
    asyncio.run(run())


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (lambda: good_head(bias=True), r"has a bias, and heads of peers have none: .*WithBias"),
        (lambda: Head(np.zeros((2, 4), np.float32)), r"has shape \[2, 4\], this group's heads are \[2, 5\]"),
        (lambda: Head(np.zeros((2, 5), np.float32), classes=("wet", "dry")), "has the classes wet, dry"),
        (lambda: Head(np.zeros((2, 5), np.float32), backbone="0" * 64), "was made for the backbone 0{16}"),
    ],
)
def test_a_head_of_another_group_is_refused_before_anything_is_written(
    tmp_path: Path, head: Callable[[], Head], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        peer(tmp_path / "a", head=head())
    assert not list(tmp_path.iterdir())


def test_the_command_takes_features_and_a_head(tmp_path: Path) -> None:
    data = weather()
    np.savez(
        tmp_path / "w.npz", x_train=data.x_train, y_train=data.y_train, x_test=data.x_test, y_test=data.y_test,
        classes=np.array(NAMES),
    )  # fmt: skip
    head = save_head(tmp_path / "head.safetensors", good_head())
    words = ["peer", "--application", "weather", "--folder", str(tmp_path / "a"), "--data", str(tmp_path / "w.npz")]
    words += ["--backbone", "none", "--head", str(head), "--iterations", "1", "--test-every", "1", "--rule", "bristle"]
    words += ["--json", str(tmp_path / "rows.jsonl")]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    row = json.loads((tmp_path / "rows.jsonl").read_text().splitlines()[0])
    assert row["accuracy"] > 0.95


def test_mistakes_on_the_command_line_are_one_line(complaint: Callable[..., str], tmp_path: Path) -> None:
    usual = ["peer", "--application", "w", "--folder", "a", "--backbone", "none"]
    assert 'backbone "none" needs data' in complaint(*usual, "--group-classes", "dry,wet")
    usual[-1] = "bundled"
    assert "there is no head nowhere" in complaint(*usual, "--group-classes", "dry,wet", "--head", "nowhere")
