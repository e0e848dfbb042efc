import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from bristle.backbones import CallableBackbone, OnnxBackbone, bundled, export_classifier

DIGITS = [f"digit {number}" for number in range(10)]


def digits_head() -> npt.NDArray[np.float32]:
    return np.random.default_rng(3).normal(0, 0.05, (10, 800)).astype(np.float32)


def noise_images(count: int = 6) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(4).integers(0, 256, (count, 28, 28), dtype=np.uint8)


def foreign(path: Path, *, output: str, dtype: int, opset: int) -> OnnxBackbone:
    """Load a backbone that is not Bristle's, whose features come as [n, 3, 1, 1] of `dtype`."""
    graph = helper.make_graph(
        [
            helper.make_node("GlobalAveragePool", ["image"], ["probabilities"]),
            helper.make_node("Cast", ["probabilities"], [output], to=dtype),
        ],
        "foreign",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 3, 6, 6])],
        [helper.make_tensor_value_info(output, dtype, ["n", 3, 1, 1])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=7)
    helper.set_model_props(model, {"author": "someone", "classes": "of long ago"})
    onnx.save(model, path)
    return OnnxBackbone.load(path)


def test_the_classifier_computes_what_backbone_and_head_do(tmp_path: Path) -> None:
    backbone, head, x = bundled(), digits_head(), noise_images()
    path = export_classifier(backbone, head, tmp_path / "digits.onnx", classes=DIGITS)
    session = onnxruntime.InferenceSession(path)
    assert [given.name for given in session.get_outputs()] == ["logits", "probabilities"]
    logits, probabilities = session.run(None, {session.get_inputs()[0].name: x})
    expected = backbone(x) @ head.T
    np.testing.assert_allclose(logits, expected, atol=1e-4)
    shifted = np.exp(expected - expected.max(axis=1, keepdims=True))
    np.testing.assert_allclose(probabilities, shifted / shifted.sum(axis=1, keepdims=True), atol=1e-4)


def test_the_classifier_is_valid_onnx_and_carries_its_classes(tmp_path: Path) -> None:
    path = export_classifier(bundled(), digits_head(), tmp_path / "digits.onnx", classes=DIGITS)
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    properties = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(properties["classes"]) == DIGITS
    assert properties["backbone"] == bundled().digest


def test_without_names_the_classes_are_their_numbers(tmp_path: Path) -> None:
    path = export_classifier(bundled(), digits_head()[:3].tolist(), tmp_path / "three.onnx")
    properties = onnxruntime.InferenceSession(path).get_modelmeta().custom_metadata_map
    assert json.loads(properties["classes"]) == ["0", "1", "2"]


@pytest.mark.parametrize("opset", [9, 13, 21])
@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.FLOAT16])
def test_a_foreign_backbone_is_exported_whatever_its_names_rank_and_type(
    tmp_path: Path, dtype: int, opset: int
) -> None:
    backbone = foreign(tmp_path / "foreign.onnx", output="logits", dtype=dtype, opset=opset)
    head = np.random.default_rng(5).normal(size=(4, 3))
    x = np.random.default_rng(6).random((5, 3, 6, 6), dtype=np.float32)
    path = export_classifier(backbone, head, tmp_path / "whole.onnx", classes="abcd")
    session = onnxruntime.InferenceSession(path)
    first, second = session.get_outputs()
    assert first.name.startswith("logits_")  # the backbone calls its features so
    np.testing.assert_allclose(session.run([first.name], {"image": x})[0], backbone(x) @ head.T, atol=1e-4)
    np.testing.assert_allclose(session.run([second.name], {"image": x})[0].sum(axis=1), 1, rtol=1e-5)
    onnx.checker.check_model(onnx.load(path), full_check=True)
    properties = session.get_modelmeta().custom_metadata_map
    assert properties["author"] == "someone"
    assert json.loads(properties["classes"]) == ["a", "b", "c", "d"]


def test_the_classifier_can_serve_as_a_backbone_again(tmp_path: Path) -> None:
    path = export_classifier(bundled(), digits_head(), tmp_path / "digits.onnx")
    logits = OnnxBackbone.load(path, output="logits")
    assert logits.features == 10
    further = export_classifier(logits, np.eye(10)[:2], tmp_path / "further.onnx")
    session = onnxruntime.InferenceSession(further)
    result = session.run([session.get_outputs()[0].name], {"images": noise_images()})[0]
    np.testing.assert_allclose(result, logits(noise_images())[:, :2], atol=1e-4)


def test_what_cannot_be_exported_says_why_and_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "digits.onnx"
    head = digits_head()
    with pytest.raises(ValueError, match=r"the head has shape \[10, 799\]: backbone letters needs \[classes, 800\]"):
        export_classifier(bundled(), head[:, 1:], path)
    with pytest.raises(ValueError, match="3 names were given for the 10 classes"):
        export_classifier(bundled(), head, path, classes=["a", "b", "c"])
    head[2, 3] = np.nan
    with pytest.raises(ValueError, match="the head's weights are not finite numbers"):
        export_classifier(bundled(), head, path)
    function = CallableBackbone(max, name="own", version="1", features=800, input_shape=(28, 28))
    with pytest.raises(ValueError, match="backbone own is not an ONNX file"):
        export_classifier(function, digits_head(), path)
    assert list(tmp_path.iterdir()) == []


def test_a_backbone_file_that_changed_since_it_was_loaded_is_not_exported(tmp_path: Path) -> None:
    backbone = foreign(tmp_path / "foreign.onnx", output="out", dtype=TensorProto.FLOAT, opset=13)
    foreign(tmp_path / "foreign.onnx", output="other", dtype=TensorProto.FLOAT, opset=13)
    with pytest.raises(ValueError, match=r"foreign\.onnx is not what was loaded from it"):
        export_classifier(backbone, np.ones((2, 3)), tmp_path / "whole.onnx")


def test_the_core_loads_and_exports_without_torch_and_onnx(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "sys.modules.update(torch=None, onnx=None)\n"
        "import numpy as np\n"
        "from bristle.backbones.backbone import bundled\n"
        "from bristle.backbones.export import export_classifier\n"
        f"export_classifier(bundled(), np.ones((2, 800)), {str(tmp_path / 'two.onnx')!r})"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert onnxruntime.InferenceSession(tmp_path / "two.onnx").run(None, {"images": noise_images(1)})[0].shape == (1, 2)
