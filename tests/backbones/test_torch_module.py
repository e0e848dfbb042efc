from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from bristle import Peer
from bristle.backbones import TorchBackbone, extract

SHAPE = (3, 10, 12)


class Network(torch.nn.Module):
    """A small network with parameters, buffers and a dropout; `returns` says what it makes of its features."""

    def __init__(self, returns: Callable[[torch.Tensor], Any] = lambda features: features) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.Dropout(0.9), torch.nn.Flatten()
        )
        for weights in self.parameters():
            weights.data = torch.rand(weights.shape, generator=generator)
        self.returns = returns

    def forward(self, x: torch.Tensor) -> Any:
        return self.returns(self.layers(x))


def images(count: int = 4) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (count, 10, 12, 3), dtype=np.uint8)


def expected(module: Network, x: torch.Tensor) -> npt.NDArray[np.float32]:
    with torch.no_grad():
        found: npt.NDArray[np.float32] = module.eval().layers(x).numpy()
    return found


def test_a_module_runs_in_evaluation_mode_without_gradients_on_images_of_either_layout() -> None:
    module = Network().train()
    backbone = TorchBackbone(module, input_shape=SHAPE)
    assert (backbone.name, backbone.features, backbone.input_shape) == ("Network", 160, SHAPE)
    x = images()
    x.flags.writeable = False
    module.train()
    features = backbone(x)
    assert features.dtype == np.float32
    pixels = (x / np.float32(255)).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(features, expected(module, torch.tensor(pixels)), atol=1e-6)
    np.testing.assert_array_equal(features, backbone(pixels))
    assert backbone(x[:0]).shape == (0, 160)


def test_samples_are_normalised_by_channel_or_transformed() -> None:
    module, x = Network(), images()
    mean, std = [0.5, 0.4, 0.3], [0.2, 0.3, 0.1]
    pixels = torch.tensor((x / np.float32(255)).transpose(0, 3, 1, 2))
    normal = (pixels - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
    backbone = TorchBackbone(module, input_shape=SHAPE, mean=mean, std=std)
    np.testing.assert_allclose(backbone(x), expected(module, normal), rtol=1e-4, atol=1e-5)
    same = TorchBackbone(module, input_shape=SHAPE, transform=lambda x: x * 2, transform_name="twice")
    np.testing.assert_allclose(same(x), expected(module, pixels * 2), atol=1e-5)
    last = TorchBackbone(torch.nn.Flatten(), input_shape=(10, 12, 3), mean=mean, std=std)
    np.testing.assert_allclose(last(x), normal.permute(0, 2, 3, 1).flatten(1).numpy(), rtol=1e-4, atol=1e-5)
    table = TorchBackbone(torch.nn.Identity(), input_shape=(2,), mean=[1, 2], std=[2, 2])
    np.testing.assert_array_equal(table(np.array([[3.0, 8.0]])), [[1, 3]])


def variants() -> dict[str, TorchBackbone]:
    """Return backbones that differ from the first one in one thing each."""

    def changed(change: Callable[[Network], object]) -> Network:
        module = Network()
        change(module)
        return module

    def of(module: torch.nn.Module | None = None, **options: Any) -> TorchBackbone:
        return TorchBackbone(module or Network(), **{"input_shape": SHAPE, **options})

    def bump(weights: Any) -> None:
        weights.data.view(-1)[0] += 2**-20

    def renamed(module: Network) -> None:
        module.layers = torch.nn.Sequential(OrderedDict([(f"b{i}", layer) for i, layer in enumerate(module.layers)]))

    return {
        "first": of(),
        "one weight": of(changed(lambda module: bump(module.layers[0].weight))),
        "a buffer": of(changed(lambda module: bump(module.layers[1].running_mean))),
        "dtype": of(Network().bfloat16()),
        "names": of(changed(renamed)),
        "mean": of(mean=[0.5]),
        "std": of(std=[0.5]),
        "transform": of(transform=lambda x: x, transform_name="1"),
        "another transform": of(transform=lambda x: x, transform_name="2"),
        "layout": of(input_shape=(3, 12, 10)),
        "name": of(name="another"),
    }


def test_the_identity_is_weights_buffers_and_preprocessing() -> None:
    digests = {name: backbone.digest for name, backbone in variants().items()}
    assert len(set(digests.values())) == len(digests)
    assert TorchBackbone(Network(), input_shape=SHAPE).digest == digests["first"]
    trained = Network()
    trained(torch.rand(2, *SHAPE))  # batch normalisation moves its buffers
    assert TorchBackbone(trained, input_shape=SHAPE).digest != digests["first"]


def test_one_changed_weight_is_another_group(tmp_path: Path) -> None:
    kinds = variants()
    groups = [
        Peer(application="a", classes=["x", "y"], folder=tmp_path / name, backbone=kinds[name])._group.id
        for name in ("first", "one weight")
    ]
    assert groups[0] != groups[1]


def test_a_module_that_changes_later_is_refused() -> None:
    module = Network()
    backbone = TorchBackbone(module, input_shape=SHAPE)
    before = backbone(images())
    module.to("cpu")
    module.requires_grad_(False)
    np.testing.assert_array_equal(backbone(images()), before)
    with torch.no_grad():
        module.get_parameter("layers.0.weight").add_(1)
    with pytest.raises(ValueError, match=r"the weights of Network have changed since .*: make it again"):
        backbone(images())
    half = Network()
    backbone = TorchBackbone(half, input_shape=SHAPE)
    half.half()
    with pytest.raises(ValueError, match="have changed"):
        backbone(images())


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float64])
def test_modules_of_any_precision_give_32_bit_features(kind: torch.dtype) -> None:
    full, x = TorchBackbone(Network(), input_shape=SHAPE), images()
    features = TorchBackbone(Network().to(kind), input_shape=SHAPE)(x)
    assert features.dtype == np.float32
    np.testing.assert_allclose(features, full(x), rtol=0.05, atol=0.05)


def test_weights_made_in_inference_mode_are_fine() -> None:
    with torch.inference_mode():
        module = torch.nn.Linear(4, 2)
    assert TorchBackbone(module, input_shape=(4,))(np.ones((3, 4), np.float32)).shape == (3, 2)


def test_the_output_with_the_features_is_chosen() -> None:
    x, plain = images(), TorchBackbone(Network(), input_shape=SHAPE)(images())

    def several(features: torch.Tensor) -> dict[str, Any]:
        return {"hidden": features[:, None], "pooled": features, "loss": None}

    pooled = TorchBackbone(Network(several), input_shape=SHAPE, output="pooled")
    np.testing.assert_array_equal(pooled(x), plain)
    assert pooled.digest != TorchBackbone(Network(several), input_shape=SHAPE, output="hidden").digest
    second = TorchBackbone(Network(lambda features: (features * 2, features)), input_shape=SHAPE, output=1)
    np.testing.assert_array_equal(second(x), plain)
    only = TorchBackbone(Network(lambda features: {"pooled": features, "loss": None}), input_shape=SHAPE)
    np.testing.assert_array_equal(only(x), plain)


@pytest.mark.parametrize(
    ("returns", "output", "message"),
    [
        (lambda f: (f, f, f), None, r"returns 3 tensors \(0, 1, 2\): say which one .*, e\.g\. output=0"),
        (lambda f: {"a": f, "b": f}, None, r"returns 2 tensors \('a', 'b'\): say which .* output='a'"),
        (lambda f: {"a": f, "b": f}, "c", r"returns no tensor 'c': choose one of 'a', 'b'"),
        (lambda f: f, "c", r"returns one tensor: leave out output='c'"),
        (lambda f: "text", None, r"returns str: it should return \[n, features\]"),
        (lambda f: (), None, r"returns tuple: it should return \[n, features\]"),
        (lambda f: f.argmax(dim=1), None, r"returns torch\.int64: features are floating-point numbers"),
        (lambda f: f[:, 0], None, r"makes \[2\] of 2 samples: it should return \[n, features\]"),
        (lambda f: f.missing, None, r"cannot take samples of shape \[3, 10, 12\]: .*missing.*; give the input_shape"),
    ],
)
def test_what_a_module_should_not_return_is_said_in_one_line(
    returns: Callable[[Any], Any], output: str | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message) as error:
        TorchBackbone(Network(returns), input_shape=SHAPE, output=output)
    assert "\n" not in str(error.value)


def test_impossible_arguments_are_said_in_one_line() -> None:
    module = Network()
    for options, message in (
        ({"mean": [1.0, 2.0]}, r"mean and std have 2 numbers for samples of shape \[3, 10, 12\]: give one per channel"),
        ({"std": [1, 0, 1]}, r"std=\[1, 0, 1\]: give positive numbers"),
        ({"mean": [float("nan")]}, "lists of numbers"),
        ({"transform": abs}, "a transform and its transform_name go together"),
        ({"transform": abs, "transform_name": "abs", "mean": [1]}, "not both"),
        ({"input_shape": (3, None, None)}, r"any size: say how many features it makes \(features=...\)"),
        ({"input_shape": (4, 10, 12)}, r"cannot take samples of shape \[4, 10, 12\]: .*channels"),
    ):
        with pytest.raises(ValueError, match=message):
            TorchBackbone(module, **{"input_shape": SHAPE, **options})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="function is no torch module: use CallableBackbone"):
        TorchBackbone(lambda x: x, input_shape=SHAPE)  # type: ignore[arg-type]


def test_weights_that_cannot_be_computed_with_are_refused() -> None:
    eighth = Network()
    eighth.layers[0].weight.data = eighth.layers[0].weight.data.to(torch.float8_e4m3fn)
    with pytest.raises(ValueError, match=r"0\.weight of Network holds float8_e4m3fn.* module\.to\(torch\.bfloat16\)"):
        TorchBackbone(eighth, input_shape=SHAPE)
    with torch.device("meta"):
        empty = torch.nn.Linear(3, 2)
    for module in (empty, torch.nn.LazyLinear(2)):
        with pytest.raises(ValueError, match=r"weight of .*Linear has no values yet: load the weights, or run"):
            TorchBackbone(module, input_shape=(3,))


def test_features_of_any_size_are_cached_under_the_weights(tmp_path: Path) -> None:
    pooled = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(3, 5))
    backbone = TorchBackbone(pooled, input_shape=(3, None, None), features=5)
    assert extract(backbone, images(), cache=tmp_path).shape == (4, 5)
    assert [path.name for path in (tmp_path / "features").iterdir()] == [backbone.digest]
    other = copy.deepcopy(pooled)
    with torch.no_grad():
        other.get_parameter("2.bias")[0] += 1
    found = extract(TorchBackbone(other, input_shape=(3, None, None), features=5), images(), cache=tmp_path)
    np.testing.assert_allclose(found[:, 0], extract(backbone, images(), cache=tmp_path)[:, 0] + 1, rtol=1e-5)
    wrong = TorchBackbone(pooled, input_shape=(3, None, None), features=4)
    with pytest.raises(ValueError, match=r"returned \[4, 5\] for 4 samples, not \[4, 4\]"):
        wrong(images())
