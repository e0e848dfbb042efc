from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
import torch

from bristle.backbones import Head, NoBackbone, WithBias, bundled, export_classifier, load_head, save_head
from bristle.data import mnist
from bristle.learning import train_oracle

CLASSES = tuple(f"digit {number}" for number in range(10))


@cache
def trained() -> npt.NDArray[np.float32]:
    digits = mnist()
    features = bundled()(digits.x_train[:300])
    return np.asarray(train_oracle(features, digits.y_train[:300], 10, steps=50))


def head(*, bias: bool = True) -> Head:
    offsets = np.random.default_rng(3).normal(size=10).astype(np.float32) if bias else None
    return Head(trained(), offsets, CLASSES, bundled().digest)


def images(count: int = 100) -> npt.NDArray[np.uint8]:
    return mnist().x_test[:count]


def file_of(path: Path, tensors: dict[str, Any], metadata: Any = None, body: bytes = b"") -> Path:
    """Write a safetensors file with this header."""
    header = json.dumps({"__metadata__": metadata or {}, **tensors}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + body)
    return path


@pytest.mark.parametrize("bias", [True, False])
def test_one_head_through_every_form_predicts_the_same(tmp_path: Path, bias: bool) -> None:
    before, backbone = head(bias=bias), bundled()
    features = backbone(images())
    expected = before.scores(features)
    assert len(set(expected.argmax(axis=1).tolist())) > 6

    loaded = load_head(save_head(tmp_path / "head.safetensors", before))
    assert (loaded.classes, loaded.backbone) == (CLASSES, backbone.digest)
    np.testing.assert_array_equal(loaded.scores(features), expected)

    layer = loaded.to_linear()
    with torch.no_grad():
        linear = layer(torch.from_numpy(features)).numpy()
    again = Head.from_linear(layer, classes=CLASSES, backbone=backbone)
    assert (again.classes, again.backbone) == (CLASSES, backbone.digest)
    np.testing.assert_array_equal(again.scores(features), expected)

    path = export_classifier(backbone, again, tmp_path / "classifier.onnx")
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(path)
    (logits, _) = session.run(None, {session.get_inputs()[0].name: images()})
    assert json.loads(session.get_modelmeta().custom_metadata_map["classes"]) == list(CLASSES)
    kept = {one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer}
    back = Head(kept["head/weights"].T, kept.get("head/bias"), CLASSES, backbone.digest)
    np.testing.assert_array_equal(back.scores(features), expected)

    np.testing.assert_allclose(linear, expected, atol=1e-4)
    np.testing.assert_allclose(logits, expected, atol=1e-4)
    for scores in (linear, logits):
        np.testing.assert_array_equal(scores.argmax(axis=1), expected.argmax(axis=1))


def test_a_head_with_a_bias_is_that_of_a_group_with_a_constant_feature(tmp_path: Path) -> None:
    before, backbone = head(), WithBias(bundled())
    rows = before.weights_for(backbone, CLASSES, backbone.features)
    x = images()
    np.testing.assert_allclose(backbone(x) @ rows.T, before.scores(bundled()(x)), atol=1e-4)
    after = Head.of(rows, backbone, CLASSES)
    assert (after.backbone, after.classes) == (bundled().digest, CLASSES)
    np.testing.assert_array_equal(after.weights, before.weights)
    np.testing.assert_array_equal(after.bias, before.bias)
    path = export_classifier(backbone, rows, tmp_path / "classifier.onnx", classes=CLASSES)
    session = onnxruntime.InferenceSession(path)
    (logits, _) = session.run(None, {session.get_inputs()[0].name: x})
    np.testing.assert_allclose(logits, before.scores(bundled()(x)), atol=1e-4)
    none = head(bias=False)
    np.testing.assert_array_equal(none.weights_for(backbone, CLASSES, 801)[:, -1], np.zeros(10))
    np.testing.assert_array_equal(none.weights_for(bundled(), CLASSES, 800), none.weights)


def test_a_head_of_another_group_is_refused() -> None:
    own, backbone = head(bias=False), bundled()
    with pytest.raises(ValueError, match=r"was made for the backbone .{16}, this is .{16} \(none\): use that backbone"):
        own.weights_for(NoBackbone(800), CLASSES, 800)
    with pytest.raises(ValueError, match=r"has the classes digit 0.*, this group has digit 9.*: use the same names"):
        own.weights_for(backbone, CLASSES[::-1], 800)
    nameless = Head(own.weights)
    with pytest.raises(ValueError, match=r"has shape \[10, 800\], this group's heads are \[9, 800\]"):
        nameless.weights_for(backbone, CLASSES[:9], 800)
    with pytest.raises(ValueError, match=r"has a bias, and heads of peers have none: .*WithBias\(backbone\)"):
        head().weights_for(backbone, CLASSES, 800)
    with pytest.raises(ValueError, match="was made for the backbone"):
        export_classifier(backbone, Head(own.weights, backbone="0" * 64), "never.onnx")
    assert not Path("never.onnx").exists()


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"weights": np.zeros(3)}, r"weights have shape \[3\]: give \[classes, features\]"),
        ({"weights": np.zeros((0, 3))}, r"weights have shape \[0, 3\]"),
        ({"weights": np.full((2, 3), np.inf)}, "weights are not finite numbers"),
        ({"weights": np.full((2, 3), 1e300)}, "weights are not finite numbers"),
        ({"weights": np.array([["a"]])}, "weights are <U1: give 32-bit numbers"),
        ({"weights": np.zeros((2, 3)), "bias": np.zeros(3)}, r"bias has shape \[3\]: give one for each of 2 rows"),
        ({"weights": np.zeros((2, 3)), "classes": ("a",)}, "1 names were given for the 2 classes of the head"),
    ],
)
def test_impossible_heads_are_refused(parts: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Head(**parts)


def test_a_layer_of_a_whole_model_is_found_by_name(tmp_path: Path) -> None:
    weight = np.arange(6, dtype="<f2").reshape(2, 3)
    offsets = (np.array([1.5, -2.0], "<f4").view("<u4") >> 16).astype("<u2")
    path = file_of(
        tmp_path / "model.safetensors",
        {
            "body.weight": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]},
            "classifier.bias": {"dtype": "BF16", "shape": [2], "data_offsets": [8, 12]},
            "classifier.weight": {"dtype": "F16", "shape": [2, 3], "data_offsets": [12, 24]},
        },
        body=bytes(8) + offsets.tobytes() + weight.tobytes(),
    )
    found = load_head(path, layer="classifier")
    np.testing.assert_array_equal(found.weights, weight)
    np.testing.assert_array_equal(found.bias, [1.5, -2.0])
    assert (found.classes, found.backbone) == ((), "")
    with pytest.raises(ValueError, match=r"has no weight, but the layers body, classifier: .*\(layer=...\)"):
        load_head(path)
    with pytest.raises(ValueError, match=r"holds body\.weight as I64: save it as F32"):
        load_head(path, layer="body")


ENTRY = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}


def as_bytes(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def npz_bytes() -> bytes:
    content = io.BytesIO()
    np.savez(content, weight=np.zeros((2, 3)))
    return content.getvalue()


def as_file(weight: Any, metadata: Any = None, size: int = 24) -> Callable[[Path], object]:
    return lambda path: file_of(path, {"weight": weight}, metadata, bytes(size))


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (as_bytes(b""), "is empty: save it again"),
        (as_bytes(pickle.dumps({"weight": [1.0]})), r"is a pickle, as torch\.save writes it, which is never loaded"),
        (lambda path: torch.save({"weight": torch.zeros(2, 3)}, path), r"is a pickle, .*safetensors\.torch\.save_file"),
        (as_bytes(npz_bytes()), "is no safetensors file, or is cut off"),
        (as_bytes(b"hello, I am no head"), "is no safetensors file, or is cut off"),
        (as_bytes((1 << 62).to_bytes(8, "little") + b"{}"), "is no safetensors file, or is cut off"),
        (as_bytes((5).to_bytes(8, "little") + b"[1,2]"), "is no safetensors file"),
        (as_bytes((4).to_bytes(8, "little") + b"{{}}"), "its header is not JSON"),
        (as_bytes((100_000).to_bytes(8, "little") + b"[" * 100_000), "its header is not JSON"),
        (as_file(ENTRY, {"classes": 3}), "its metadata are not texts"),
        (as_file(ENTRY, {"classes": "{}"}), "its classes are no list of names"),
        (as_file(ENTRY, {"classes": '["a"]'}), "1 names were given for the 2 classes"),
        (as_file(3), "its header does not describe tensors"),
        (as_file({**ENTRY, "dtype": "F8_E4M3"}), "holds weight as F8_E4M3: save it as F32, F16 or BF16"),
        (as_file({**ENTRY, "dtype": []}), r"holds weight as \[\]"),
        (as_file({**ENTRY, "shape": [2, -3]}), r"is damaged: weight has shape \[2, -3\]"),
        (as_file({**ENTRY, "shape": [2, 4]}), "is damaged: weight has shape"),
        (as_file({**ENTRY, "data_offsets": [0, 24, 24]}), "is damaged"),
        (as_file({**ENTRY, "data_offsets": [True, 24]}), "is damaged"),
        (as_file(ENTRY, size=20), "is damaged"),
        (as_file({**ENTRY, "shape": [6]}), r"weights have shape \[6\]: give \[classes, features\]"),
        (lambda path: file_of(path, {}), r"has no weight, but the tensors \(none\)"),
    ],
)
def test_files_that_hold_no_head_are_refused_in_one_line(
    tmp_path: Path, write: Callable[[Path], object], message: str
) -> None:
    path = tmp_path / "bad.safetensors"
    write(path)
    with pytest.raises(ValueError, match=message) as error:
        load_head(path)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


def test_only_heads_are_saved(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"ndarray is no Head: use Head\.of"):
        save_head(tmp_path / "head.safetensors", np.zeros((2, 3)))  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_other_layers_and_weights_in_8_bits_are_refused() -> None:
    layer = torch.nn.Linear(3, 2)
    layer.weight.data = layer.weight.data.to(torch.float8_e5m2)
    with pytest.raises(ValueError, match=r"weight is float8_e5m2.*use layer\.to\(torch\.float32\)"):
        Head.from_linear(layer)
    with pytest.raises(ValueError, match=r"Conv2d is no torch\.nn\.Linear"):
        Head.from_linear(torch.nn.Conv2d(1, 1, 1))  # type: ignore[arg-type]
    half = Head.from_linear(torch.nn.Linear(3, 2, bias=False).bfloat16())
    assert half.weights.dtype == np.float32
    assert half.bias is None
    with pytest.raises(FileNotFoundError, match="there is no head nowhere"):
        load_head("nowhere")


def test_the_real_library_reads_and_writes_the_same(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    before = head()
    path = save_head(tmp_path / "ours.safetensors", before)
    layer = torch.nn.Linear(800, 10)
    layer.load_state_dict(safetensors.load_file(path))
    np.testing.assert_array_equal(layer.weight.detach().numpy(), before.weights)
    np.testing.assert_array_equal(layer.bias.detach().numpy(), before.bias)
    for kind in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        theirs = {name: tensor.to(kind) for name, tensor in layer.state_dict().items()}
        safetensors.save_file(theirs, tmp_path / "theirs.safetensors")
        found = load_head(tmp_path / "theirs.safetensors")
        np.testing.assert_array_equal(found.weights, theirs["weight"].float().numpy())
        np.testing.assert_array_equal(found.bias, theirs["bias"].float().numpy())
    safetensors.save_file({"weight": torch.zeros(2, 3).to(torch.float8_e4m3fn)}, tmp_path / "eight.safetensors")
    with pytest.raises(ValueError, match="holds weight as F8_E4M3"):
        load_head(tmp_path / "eight.safetensors")
