import hashlib
import re
import subprocess
import sys
from importlib import resources
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from bristle.backbones.backbone import CallableBackbone, OnnxBackbone, bundled
from bristle.backbones.base import fitted

ASSETS = resources.files("bristle.backbones") / "assets"


def foreign(
    path: Path,
    *,
    shape: tuple[int | str, ...] = ("n", 3, 10, 12),
    weights: npt.NDArray[np.float32] | None = None,
    dtype: int = TensorProto.FLOAT,
) -> Path:
    """Write a backbone that is not Bristle's: the mean of every channel, times a matrix."""
    matrix = np.arange(15, dtype=np.float32).reshape(3, 5) if weights is None else weights
    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["image"], ["float"], to=TensorProto.FLOAT),
            helper.make_node("GlobalAveragePool", ["float"], ["pooled"]),
            helper.make_node("Flatten", ["pooled"], ["flat"]),
            helper.make_node("MatMul", ["flat", "matrix"], ["embedding"]),
        ],
        "foreign",
        [helper.make_tensor_value_info("image", dtype, shape)],
        [helper.make_tensor_value_info("embedding", TensorProto.FLOAT, [shape[0], matrix.shape[1]])],
        [numpy_helper.from_array(matrix, "matrix")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, path)
    return path


def colour_images(count: int = 4) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (count, 10, 12, 3), dtype=np.uint8)


def test_the_bundled_backbone_is_the_papers_network_and_small() -> None:
    backbone = bundled()
    data = (ASSETS / "letters.onnx").read_bytes()
    assert (backbone.features, backbone.input_shape, backbone.input_dtype) == (800, (28, 28), "uint8")
    assert backbone.digest == hashlib.sha256(data).hexdigest()
    assert len(data) < 500_000
    model = onnx.load_model_from_string(data)
    onnx.checker.check_model(model, full_check=True)
    block = ["Conv", "LeakyRelu", "MaxPool"]
    prepare = ["Cast", "Unsqueeze", "Sub", "Div"]
    assert [node.op_type for node in model.graph.node] == [*prepare, *block, *block, "Flatten"]


def test_the_card_of_the_bundled_backbone_describes_the_file_that_is_shipped() -> None:
    card = (ASSETS / "letters.md").read_text()
    assert f"`{bundled().digest}`" in card
    for section in ("Data", "Training", "Accuracy", "Licence", "How to make it again"):
        assert f"## {section}\n" in card
    letters, digits, pooled, *_ = (float(share) for share in re.findall(r"\| ([\d.]+)% \|", card))
    assert letters >= 93.5
    assert digits >= 99.0
    assert pooled >= 95.0


def test_the_bundled_backbone_makes_the_same_of_an_image_alone_and_in_a_batch() -> None:
    backbone = bundled(threads=1)
    x = np.random.default_rng(1).integers(0, 256, (7, 28, 28), dtype=np.uint8)
    together = backbone(x)
    assert together.shape == (7, 800)
    assert together.dtype == np.float32
    np.testing.assert_allclose(together, np.concatenate([backbone(x[i : i + 1]) for i in range(7)]), atol=1e-5)
    np.testing.assert_array_equal(together, backbone(x))
    assert backbone(x[:0]).shape == (0, 800)


def test_a_foreign_onnx_file_takes_stored_colour_images(tmp_path: Path) -> None:
    backbone = OnnxBackbone.load(foreign(tmp_path / "mine.onnx"))
    assert (backbone.name, backbone.features, backbone.input_shape) == ("mine", 5, (3, 10, 12))
    x = colour_images()
    expected = (x / 255).mean(axis=(1, 2)) @ np.arange(15).reshape(3, 5)
    np.testing.assert_allclose(backbone(x), expected, rtol=1e-4)
    np.testing.assert_allclose(backbone((x / 255).transpose(0, 3, 1, 2)), expected, rtol=1e-4)


def test_a_model_of_a_fixed_batch_takes_any_number_of_images(tmp_path: Path) -> None:
    free = OnnxBackbone.load(foreign(tmp_path / "free.onnx"))
    fixed = OnnxBackbone.load(foreign(tmp_path / "fixed.onnx", shape=(3, 3, 10, 12)))
    x = colour_images(7)
    np.testing.assert_allclose(fixed(x), free(x), rtol=1e-5)
    assert free.digest != fixed.digest


def test_free_image_sizes_are_fine_as_long_as_the_number_of_features_is_fixed(tmp_path: Path) -> None:
    backbone = OnnxBackbone.load(foreign(tmp_path / "any.onnx", shape=("n", 3, "h", "w")))
    assert (backbone.input_shape, backbone.features) == ((3, None, None), 5)
    x = colour_images().transpose(0, 3, 1, 2)
    assert backbone(x[:, :, :8]).shape == (4, 5)


@given(
    sizes=st.tuples(st.integers(1, 5), st.integers(4, 9), st.integers(4, 9)),
    layout=st.sampled_from([(0, 1, 2, 3), (0, 3, 1, 2)]),
)
def test_images_fit_whatever_side_their_channels_are_on(sizes: tuple[int, int, int], layout: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).integers(0, 256, (*sizes, 3), dtype=np.uint8)
    for shape in ((*sizes[1:], 3), (3, *sizes[1:])):
        images = fitted(x.transpose(layout), shape, "uint8", "it")
        assert images.shape == (sizes[0], *shape)
        channels_last = images if shape[-1] == 3 else images.transpose(0, 2, 3, 1)
        np.testing.assert_array_equal(channels_last, x)


def test_grey_images_get_a_channel_axis_and_flat_backbones_flat_images() -> None:
    x = np.arange(2 * 4 * 5, dtype=np.uint8).reshape(2, 4, 5)
    assert fitted(x, (1, 4, 5), "uint8", "it").shape == (2, 1, 4, 5)
    assert fitted(x, (4, 5, 1), "uint8", "it").shape == (2, 4, 5, 1)
    assert fitted(x[..., None], (4, 5), "uint8", "it").shape == (2, 4, 5)
    np.testing.assert_array_equal(fitted(x, (20,), "uint8", "it"), x.reshape(2, 20))
    np.testing.assert_array_equal(fitted(x, (4, 5), "float32", "it"), x / np.float32(255))


def test_a_wrong_image_size_is_named_with_the_file(tmp_path: Path) -> None:
    path = foreign(tmp_path / "mine.onnx")
    with pytest.raises(ValueError, match=rf"{path} takes samples of shape \[3, 10, 12\], and got \[28, 28\]: resize"):
        OnnxBackbone.load(path)(np.zeros((2, 28, 28), np.uint8))


@pytest.mark.parametrize(
    ("stored", "wanted", "channels"), [((10, 12), (3, 10, 12), "rgb"), ((10, 12, 3), (1, 10, 12), "gray")]
)
def test_wrong_colours_are_named_with_the_remedy(
    stored: tuple[int, ...], wanted: tuple[int, ...], channels: str
) -> None:
    with pytest.raises(ValueError, match=f'load the images with channels="{channels}"$'):
        fitted(np.zeros((2, *stored), np.uint8), wanted, "float32", "it")


def test_pixels_of_a_wrong_type_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"letters\.onnx takes uint8 values \(0 to 255\), and got float32"):
        bundled()(np.zeros((2, 28, 28), np.float32))
    with pytest.raises(ValueError, match="takes float32 or uint8 values, and got int64"):
        OnnxBackbone.load(foreign(tmp_path / "m.onnx"))(np.zeros((2, 3, 10, 12), np.int64))


def test_an_image_that_only_the_model_itself_refuses_is_one_clear_error(tmp_path: Path) -> None:
    path = foreign(tmp_path / "any.onnx", shape=("n", "c", "h", "w"))
    with pytest.raises(ValueError, match=rf"{path} cannot take samples of shape \[4, 10, 12\]: .*MatMul"):
        OnnxBackbone.load(path)(np.zeros((2, 4, 10, 12), np.uint8))


@pytest.mark.parametrize("content", [b"", b"hello, this is no model\n", bytes(range(256)) * 10])
def test_a_file_that_is_no_onnx_model_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{path} is no (complete )?ONNX model"):
        OnnxBackbone.load(path)


def test_a_truncated_onnx_file_is_named(tmp_path: Path) -> None:
    path = foreign(tmp_path / "cut.onnx")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match=rf"{path} is no (complete )?ONNX model"):
        OnnxBackbone.load(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no backbone file .*none\.onnx"):
        OnnxBackbone.load(str(tmp_path / "none.onnx"))


def test_weights_outside_the_file_are_refused_since_the_digest_misses_them(tmp_path: Path) -> None:
    model = onnx.load(foreign(tmp_path / "whole.onnx"))
    onnx.save(model, tmp_path / "split.onnx", save_as_external_data=True, location="split.data", size_threshold=0)
    with pytest.raises(ValueError, match=r"split\.onnx keeps weights in a second file.*external_data=False"):
        OnnxBackbone.load(tmp_path / "split.onnx")


def test_one_of_several_outputs_is_chosen_by_name(tmp_path: Path) -> None:
    model = onnx.load(foreign(tmp_path / "one.onnx"))
    model.graph.output.append(helper.make_tensor_value_info("pooled", TensorProto.FLOAT, None))
    model.graph.node.append(helper.make_node("ArgMax", ["embedding"], ["label"], axis=1))
    model.graph.output.append(helper.make_tensor_value_info("label", TensorProto.INT64, None))
    path = tmp_path / "several.onnx"
    onnx.save(model, path)
    with pytest.raises(ValueError, match=r"has several outputs: name the one .* embedding, pooled, label"):
        OnnxBackbone.load(path)
    with pytest.raises(ValueError, match="has no output 'features'"):
        OnnxBackbone.load(path, output="features")
    with pytest.raises(ValueError, match=r"gives tensor\(int64\) at label"):
        OnnxBackbone.load(path, output="label")
    pooled, embedding = (OnnxBackbone.load(path, output=name) for name in ("pooled", "embedding"))
    assert (pooled.features, embedding.features) == (3, 5)
    assert pooled.digest != embedding.digest  # equal digests would mean equal features
    np.testing.assert_allclose(pooled(colour_images()), (colour_images() / 255).mean(axis=(1, 2)), rtol=1e-4)


def test_models_that_are_no_backbone_say_why(tmp_path: Path) -> None:
    model = onnx.load(foreign(tmp_path / "m.onnx"))
    model.graph.input.append(helper.make_tensor_value_info("more", TensorProto.FLOAT, ["n"]))
    onnx.save(model, tmp_path / "two.onnx")
    with pytest.raises(ValueError, match=r"two\.onnx has 2 inputs"):
        OnnxBackbone.load(tmp_path / "two.onnx")
    with pytest.raises(ValueError, match=r"text\.onnx takes tensor\(int64\)"):
        OnnxBackbone.load(foreign(tmp_path / "text.onnx", dtype=TensorProto.INT64))


def test_any_function_is_a_backbone_and_its_version_its_identity() -> None:
    def means(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        assert x.dtype == np.float32
        return np.asarray(x.mean(axis=1))

    first, second = (
        CallableBackbone(means, name="means", version=v, features=5, input_shape=(4, 5)) for v in ("1", "2")
    )
    x = np.full((3, 4, 5), 51, np.uint8)
    np.testing.assert_allclose(first(x), np.full((3, 5), 0.2), rtol=1e-6)
    assert first.digest != second.digest
    assert first.digest == CallableBackbone(max, name="means", version="1", features=5, input_shape=(4, 5)).digest


def test_a_function_that_keeps_not_to_its_word_is_refused() -> None:
    backbone = CallableBackbone(
        lambda x: x[:1], name="first", version="1", features=5, input_shape=(None,), input_dtype="uint8"
    )
    with pytest.raises(ValueError, match=r"backbone first returned \[1, 5\] for 3 samples, not \[3, 5\]"):
        backbone(np.zeros((3, 5), np.uint8))
    with pytest.raises(ValueError, match="needs a name and a version"):
        CallableBackbone(max, name="", version="1", features=5, input_shape=(5,))
    with pytest.raises(ValueError, match="input_dtype is 'float32' or 'uint8', not 'int8'"):
        CallableBackbone(max, name="m", version="1", features=5, input_shape=(5,), input_dtype="int8")


def test_a_function_may_return_a_tensor_but_a_module_has_a_class_of_its_own() -> None:
    backbone = CallableBackbone(
        lambda x: torch.from_numpy(x).flatten(1), name="flat", version="1", features=20, input_shape=(4, 5)
    )
    x = np.random.default_rng(0).random((3, 4, 5), dtype=np.float32)
    np.testing.assert_array_equal(backbone(x), x.reshape(3, 20))
    with pytest.raises(ValueError, match=r"this is a torch module: use TorchBackbone\(module, ...\)"):
        CallableBackbone(torch.nn.Flatten(), name="flat", version="1", features=20, input_shape=(4, 5))


def test_neither_torch_nor_onnx_runtime_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys, numpy as np, bristle.backbones.features, bristle.backbones.export\n"
        "from bristle.backbones.backbone import CallableBackbone\n"
        "b = CallableBackbone(lambda x: x, name='same', version='1', features=5, input_shape=(5,))\n"
        "assert b(np.zeros((2, 5), np.float32)).shape == (2, 5)\n"
        "sys.exit(', '.join({'torch', 'onnxruntime', 'onnx', 'rich', 'typer'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == "\n", done.stderr
