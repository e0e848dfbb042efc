from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from bristle.backbones import OnnxBackbone
from bristle.backbones.pretrain.network import ImageKind, PaperNetwork, channels_first, to_onnx


def images(shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize("shape", [(6, 28, 28), (5, 20, 33, 3), (4, 17, 16, 1)])
def test_the_written_network_computes_what_the_trained_one_does(tmp_path: Path, shape: tuple[int, ...]) -> None:
    x = images(shape)
    kind = ImageKind.of(x)
    torch.manual_seed(0)
    network = PaperNetwork(kind, classes=3, width=7, dropout=0.5)
    for norm in (network.first_norm, network.second_norm):  # negative gains too: what folding has to survive
        torch.nn.init.normal_(norm.weight)
        torch.nn.init.normal_(norm.bias)
    network.train()(channels_first(torch.from_numpy(x)))
    (tmp_path / "net.onnx").write_bytes(to_onnx(network.eval(), scale=0.25, metadata={}))
    backbone = OnnxBackbone.load(tmp_path / "net.onnx")
    with torch.no_grad():
        expected = network.features(channels_first(torch.from_numpy(x))).numpy() * 0.25
    assert expected.shape == (len(x), kind.features)
    assert backbone.features == kind.features
    np.testing.assert_allclose(backbone(x), expected, atol=1e-5)


def test_the_papers_images_have_800_features_and_their_own_normalisation() -> None:
    x = images((50, 28, 28))
    kind = ImageKind.of(x)
    assert kind.features == 800
    assert kind.mean == pytest.approx([x.mean()])
    assert kind.deviation == pytest.approx([x.std()])


def test_colours_are_normalised_each_by_its_own() -> None:
    x = images((50, 20, 20, 3)) // np.array([1, 2, 4], np.uint8)
    kind = ImageKind.of(x)
    assert kind.mean == pytest.approx(x.mean(axis=(0, 1, 2)))
    planes = channels_first(torch.from_numpy(x))
    assert planes.shape == (50, 3, 20, 20)
    network = PaperNetwork(kind, classes=2, width=2, dropout=0)
    normal = (planes - network.mean) / network.deviation
    np.testing.assert_allclose(normal.mean(dim=(0, 2, 3)), 0, atol=1e-4)
    np.testing.assert_allclose(normal.std(dim=(0, 2, 3)), 1, atol=1e-3)
