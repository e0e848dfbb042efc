"""Worlds from ready features, objects of one's own, and a head to start from."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bristle import Head, load_head, rules, save_head, simulate
from bristle.attacks import create as create_attack
from bristle.backbones import CallableBackbone, NoBackbone, WithBias
from bristle.data import Dataset
from bristle.learning import accuracy_on, train_oracle
from bristle.simulation import FeatureData, RandomNeighbours, Scenario, Watch, World, on_device, prepare, run
from bristle.simulation.build import make_data
from bristle.simulation.config import DataSection

CLASSES, FEATURES = 4, 12
CONFIG: dict[str, Any] = {
    "world": {"peers": 4, "iterations": 3, "evaluate_every": 1},
    "data": {"backbone": "none"},
    "partition": {"classes_per_peer": 2, "samples": 5, "held_out": 10},
    "rule": {"name": "fedavg"},
    "training": {"learning_rate": 1e-9},
}
"""Peers that hardly learn: what they know is what they started from."""


def table(*, apart: float = 2.0) -> Dataset:
    rng = np.random.default_rng(0)
    y = np.arange(600) % CLASSES
    x = rng.normal(size=(CLASSES, FEATURES))[y] * apart + rng.normal(size=(600, FEATURES))
    return Dataset.from_arrays(x, y, classes=("a", "b", "c", "d"), name="table")


def good_head(*, bias: bool = False) -> Head:
    data = table()
    weights = train_oracle(data.x_train.astype(np.float32), data.y_train, CLASSES)
    scale = 3 * np.abs(data.x_test @ weights.T).mean()
    offsets = np.array([scale, 0, -scale, 0], np.float32) if bias else None
    return Head(weights, offsets, data.classes, NoBackbone(FEATURES).digest)


def test_ready_features_need_no_backbone_in_python_or_in_a_file(tmp_path: Path) -> None:
    data = table()
    config = CONFIG | {"training": {"learning_rate": 0.05}}
    row = simulate(config, data=data).last()
    assert row["accuracy_mean"] > 0.6
    assert row["settings"]["data.dataset"] == "table"
    np.savez(tmp_path / "table.npz", x_train=data.x_train, y_train=data.y_train, x_test=data.x_test, y_test=data.y_test)
    file = simulate(config, overrides=[f'data.dataset="{tmp_path / "table.npz"}"']).last()
    known = FeatureData(
        data.x_train.astype(np.float32), data.y_train, data.x_test.astype(np.float32), data.y_test, data.classes
    )
    scenario = Scenario(
        peers=4, iterations=3, classes_per_peer=2, samples_per_class=5, rule=rules.create("fedavg"),
        training=Scenario().training.__class__(learning_rate=0.05),
    )  # fmt: skip
    direct = run(scenario, known, every=1).last()
    assert row["accuracy_mean"] == file["accuracy_mean"] == direct["accuracy_mean"]


def test_pictures_of_a_folder_get_the_size_and_colours_that_the_backbone_takes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for kind in ("dark", "light"):
        (tmp_path / "photos" / kind).mkdir(parents=True)
        for number in range(10):
            shape = (8 + number, 9, 3)
            pixels = rng.integers(0, 100, shape) + 150 * (kind == "light")
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "photos" / kind / f"{number}.png")
    section = DataSection(dataset=str(tmp_path / "photos"))
    data, backbone = make_data(section)
    assert (backbone.name, data.x_train.shape) == ("letters", (16, 28, 28))
    colours = CallableBackbone(
        lambda x: x.reshape(len(x), -1), name="pixels", version="1", features=108, input_shape=(3, 6, 6)
    )
    data, backbone = make_data(section, backbone=colours)
    assert (backbone, data.x_train.shape) == (colours, (16, 6, 6, 3))


def test_a_backbone_of_ones_own_is_used_in_place_of_the_configurations() -> None:
    backbone = CallableBackbone(lambda x: x[:, :3], name="three", version="1", features=3, input_shape=(FEATURES,))
    row = simulate(CONFIG, data=table(), backbone=backbone).last()
    assert row["settings"]["data.backbone"] == f"three {backbone.digest[:8]}"


@pytest.mark.parametrize("bias", [False, True])
def test_peers_start_from_a_head_with_or_without_bias(bias: bool) -> None:
    data, head = table(), good_head(bias=bias)
    backbone = WithBias(NoBackbone(FEATURES)) if bias else NoBackbone(FEATURES)
    expected = float((head.scores(data.x_test).argmax(axis=1) == data.y_test).mean())
    found = simulate(CONFIG, data=data, backbone=backbone, head=head)
    assert [row["accuracy_mean"] for row in found.rows] == pytest.approx([expected] * 3)
    assert simulate(CONFIG, data=data, backbone=backbone).rows[0]["accuracy_mean"] != pytest.approx(expected)
    assert bias == (expected < 0.8), "the bias counts"
    assert "world.head" in found.last()["settings"]


def test_a_world_file_names_a_head(tmp_path: Path) -> None:
    path = save_head(tmp_path / "head.safetensors", good_head())
    config = CONFIG | {"world": CONFIG["world"] | {"head": str(path)}}
    named, given = simulate(config, data=table()), simulate(CONFIG, data=table(), head=good_head())
    assert named.last()["accuracy_mean"] == given.last()["accuracy_mean"] > 0.8
    with pytest.raises(FileNotFoundError, match="there is no head nowhere"):
        simulate(config, overrides=["world.head=nowhere"], data=table())


def test_attackers_start_from_the_head_too() -> None:
    data = table()
    head = good_head()
    rows = head.weights_for(NoBackbone(FEATURES), data.classes, FEATURES)
    scenario = Scenario(
        peers=2, attackers=1, attack=create_attack("label-flip", classes=4), classes_per_peer=2, held_out=5, head=rows
    )
    world = World(scenario, prepare(data, NoBackbone(FEATURES)))
    np.testing.assert_array_equal(world.heads[1], rows)
    np.testing.assert_array_equal(world.adversary.trained.head[0], rows)
    assert world.heads.flags.writeable


def test_a_start_is_part_of_what_a_checkpoint_belongs_to(tmp_path: Path) -> None:
    data, path = table(), tmp_path / "checkpoint.npz"
    whole = simulate(CONFIG, data=data, head=good_head())
    simulate(CONFIG, data=data, head=good_head(), checkpoint=path)
    again = simulate(CONFIG, data=data, head=good_head(), checkpoint=path, resume=True)
    assert again.last() == whole.last()
    other = Head(good_head().weights + 1, classes=data.classes)
    with pytest.raises(ValueError, match="checkpoint of another configuration"):
        simulate(CONFIG, data=data, head=other, checkpoint=path, resume=True)


def test_a_large_world_that_starts_from_a_head_runs_the_ordinary_way() -> None:
    notes: list[str] = []
    data = on_device(prepare(table(), NoBackbone(FEATURES)), "cpu")
    scenario = Scenario(
        peers=4, classes_per_peer=2, held_out=5, iterations=1, topology=RandomNeighbours(k=2),
        rule=rules.create("fedavg"), head=good_head().weights,
    )  # fmt: skip
    run(scenario, data, watch=Watch(note=notes.append))
    assert any("its peers must start from nothing" in note for note in notes)


@pytest.mark.parametrize(
    ("head", "options", "message"),
    [
        (lambda: good_head(bias=True), {}, r"has a bias, and heads of peers have none"),
        (lambda: Head(np.zeros((4, 5), np.float32)), {}, r"has shape \[4, 5\], this group's heads are \[4, 12\]"),
        (lambda: Head(good_head().weights, backbone="f" * 64), {}, "was made for the backbone f{16}"),
        (lambda: Head(good_head().weights, classes=("d", "c", "b", "a")), {}, "has the classes d, c, b, a"),
        (
            good_head,
            {"rule": {"name": "evidence"}},
            "peers that exchange evidence train no head: leave out the initial head",
        ),
    ],
)
def test_a_head_that_does_not_fit_is_refused_before_anything_runs(
    head: Callable[[], Head], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        simulate(CONFIG | options, data=table(), head=head())


@pytest.mark.parametrize(("name", "key"), [("data", "data.dataset"), ("backbone", "data.backbone")])
def test_a_name_in_place_of_an_object_is_refused_with_the_key_it_belongs_to(name: str, key: str) -> None:
    given: dict[str, Any] = {"data": table(), name: "none"}
    with pytest.raises(ValueError, match=rf"^{name} takes an object, not a name: put {key} = 'none' into"):
        simulate(CONFIG, **given)


def test_a_scenarios_head_has_the_shape_of_its_data() -> None:
    scenario = Scenario(peers=2, classes_per_peer=2, held_out=5, head=np.zeros((4, 5), np.float32))
    with pytest.raises(ValueError, match=r"the initial head has shape \[4, 5\], not \[4, 12\]"):
        World(scenario, prepare(table(), NoBackbone(FEATURES)))


def test_a_world_answered_with_evidence_gives_heads_with_bias(tmp_path: Path) -> None:
    data = table()
    scenario = Scenario(peers=4, classes_per_peer=2, samples_per_class=20, held_out=10, rule=rules.create("evidence"))
    world = World(scenario, prepare(data, NoBackbone(FEATURES)))
    for _ in range(2):
        world.advance()
    assert world.bias is not None
    path = save_head(tmp_path / "head.safetensors", Head(world.heads[0], world.bias[0], data.classes))
    right = load_head(path).scores(data.x_test).argmax(axis=1) == data.y_test
    assert right.mean() == pytest.approx(float(world.accuracy()[0]))
    assert right.mean() > 0.8


def test_a_wrong_head_is_one_line_and_writes_nothing(
    complaint: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("head")
    (folder / "world.toml").write_text(f"[world]\nhead = '{folder / 'head.safetensors'}'\n")
    (folder / "head.safetensors").write_bytes(pickle.dumps({"weight": [1.0]}))
    words = ["simulate", str(folder / "world.toml"), "--json", "rows.jsonl"]
    assert "is a pickle, as torch.save writes it, which is never loaded" in complaint(*words)
    save_head(folder / "head.safetensors", Head(np.ones((3, 800), np.float32)))
    assert "has shape [3, 800], this group's heads are [10, 800]" in complaint(*words)


def test_the_oracle_head_is_as_good_as_it_seems() -> None:
    data = table()
    assert float(accuracy_on(good_head().weights, data.x_test.astype(np.float32), data.y_test)) > 0.8
