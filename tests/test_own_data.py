"""From a stranger's folder of images and a stranger's backbone to a classifier, with no code of ours changed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from bristle import rules
from bristle.backbones.backbone import OnnxBackbone
from bristle.backbones.export import export_classifier
from bristle.backbones.features import extract
from bristle.data import load, partitions
from bristle.learning.baselines import accuracy_on, train_alone
from bristle.simulation import Scenario, World, prepare

SIDE = 12
COLOURS = {"amber": (220, 150, 20), "blue": (30, 60, 210), "green": (20, 180, 60)}


def draw_images(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for part, count in (("train", 60), ("test", 20)):
        for name, colour in COLOURS.items():
            (folder / part / name).mkdir(parents=True)
            for number in range(count):
                pixels = np.clip(np.array(colour) + rng.normal(0, 40, (SIDE + number % 3, SIDE, 3)), 0, 255)
                Image.fromarray(pixels.astype(np.uint8)).save(folder / part / name / f"{number}.png")


def make_backbone(path: Path) -> None:
    """A backbone that is not ours: average pooling and a random projection, made with the onnx package."""
    weights = np.random.default_rng(1).standard_normal((3 * 9, 32)).astype(np.float32)
    nodes = [
        helper.make_node("AveragePool", ["pixels"], ["pooled"], kernel_shape=[4, 4], strides=[4, 4]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weights"], ["projected"]),
        helper.make_node("Tanh", ["projected"], ["features"]),
    ]
    graph = helper.make_graph(
        nodes,
        "someone elses",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["n", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["n", 32])],
        [numpy_helper.from_array(weights, "weights")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def test_from_images_to_a_classifier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRISTLE_CACHE", str(tmp_path / "cache"))
    draw_images(tmp_path / "photos")
    make_backbone(tmp_path / "theirs.onnx")
    data = load(tmp_path / "photos", size=SIDE, channels="rgb")
    assert data.classes == ("amber", "blue", "green")
    backbone = OnnxBackbone.load(tmp_path / "theirs.onnx")

    split = partitions.create("classes", lists=[["amber", "blue"], ["blue", "green"], ["green", "amber"]], samples=5)(
        data, peers=3, seed=0
    )
    assert "amber" in split.table()
    features, index = extract(backbone, data.x_train), split.padded().train
    labels = np.where(index >= 0, data.y_train[index], -1).astype(np.int64)
    heads = train_alone(features, labels, 3, seed=0, index=index)
    tests, answers = extract(backbone, data.x_test), data.y_test.astype(np.int64)
    assert np.all(accuracy_on(heads, tests, answers) < 0.8)  # Two of three colours are all that a peer knows.

    world = World(
        Scenario(peers=3, classes_per_peer=2, samples_per_class=5, rule=rules.Bristle()), prepare(data, backbone)
    )
    for _ in range(150):
        world.advance()
    assert world.accuracy().min() > 0.95

    exported = export_classifier(backbone, world.heads[0], tmp_path / "classifier.onnx", classes=data.classes)
    session = onnxruntime.InferenceSession(exported, providers=["CPUExecutionProvider"])
    pixels = (data.x_test.astype(np.float32) / 255).transpose(0, 3, 1, 2)
    logits = session.run(["logits"], {"pixels": pixels})[0]
    assert (logits.argmax(axis=1) == data.y_test).mean() > 0.95


WITHOUT_TORCH = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "onnx", "PIL"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NoTorch())
import numpy as np
from bristle.data import mnist
from bristle.backbones.backbone import bundled
from bristle.backbones.export import export_classifier
from bristle.backbones.features import extract
from bristle.learning.baselines import accuracy_on, train_oracle

data, backbone = mnist(), bundled()
features = extract(backbone, data.x_train[:300], cache=False)
head = train_oracle(features, data.y_train[:300].astype(np.int64), 10)
score = accuracy_on(head, extract(backbone, data.x_test[:1000], cache=False), data.y_test[:1000].astype(np.int64))
assert score > 0.93, score
export_classifier(backbone, head, "classifier.onnx", classes=data.classes)
assert "torch" not in sys.modules
print("done")
"""


def test_the_core_needs_no_torch(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", WITHOUT_TORCH]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "done"
    assert (tmp_path / "classifier.onnx").stat().st_size > 300_000
