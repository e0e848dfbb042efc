"""The paper's network, as trained with torch and as written to ONNX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from bristle.backbones import onnx_file

SLOPE = 0.01  # of LeakyReLU
KERNEL = 5
CHANNELS = 50  # of the second convolution: what is left of the image is 50 channels
SMALLEST_IMAGE = 16  # pixels a side: below it nothing is left after the second pooling


def sides_after(image: tuple[int, ...], layers: int) -> tuple[int, int]:
    """Return height and width of an image after so many convolutions with pooling."""
    height, width = image[:2]
    for _ in range(layers):
        height, width = (height - KERNEL + 1) // 2, (width - KERNEL + 1) // 2
    return height, width


def activated(convolved: Tensor) -> Tensor:
    """Apply what follows each convolution: LeakyReLU, then the maximum of 2 x 2 neighbours."""
    return nn.functional.max_pool2d(nn.functional.leaky_relu(convolved, SLOPE), 2)


@dataclass(frozen=True)
class ImageKind:
    """The input of the network: images `[height, width]` (grey) or `[height, width, channels]`.

    Parameters
    ----------
    shape
        Of one image.
    dtype
        ``"uint8"`` or ``"float32"``.
    mean, deviation
        Of the training pixels, one number per channel, in the units of the pixels.
    """

    shape: tuple[int, ...]
    dtype: str
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @property
    def channels(self) -> int:
        """How many colours an image has."""
        return self.shape[2] if len(self.shape) == 3 else 1

    @property
    def features(self) -> int:
        """Number of features of an image: 50 channels after two poolings."""
        height, width = sides_after(self.shape, 2)
        return CHANNELS * height * width

    @classmethod
    def of(cls, x: npt.NDArray[np.generic]) -> ImageKind:
        """Describe the images `x` `[n, height, width]` or `[n, height, width, channels]`."""
        if x.ndim not in (3, 4) or (x.ndim == 4 and x.shape[3] not in (1, 3)):
            raise ValueError(f"images have shape [height, width] or [height, width, 1 or 3], not {list(x.shape[1:])}")
        if min(x.shape[1:3]) < SMALLEST_IMAGE:
            raise ValueError(
                f"images of {x.shape[1]} x {x.shape[2]} pixels are too small for two 5x5 convolutions with "
                f"pooling: enlarge them to at least {SMALLEST_IMAGE} pixels a side"
            )
        if x.dtype.name not in ("uint8", "float32"):
            raise ValueError(f"images are uint8 or float32, not {x.dtype.name}: convert them first")
        pixels = x.reshape(-1, x.shape[3] if x.ndim == 4 else 1)
        # float64 sums: 75 million float32 pixels added up in float32 lose digits
        mean = pixels.mean(axis=0, dtype=np.float64)
        deviation = pixels.std(axis=0, dtype=np.float64)
        if not np.all(deviation > 0):
            raise ValueError("a colour channel has the same value in every image: nothing can be learned from it")
        return cls(
            shape=tuple(int(side) for side in x.shape[1:]),
            dtype=x.dtype.name,
            mean=tuple(float(m) for m in mean),
            deviation=tuple(float(d) for d in deviation),
        )


class PaperNetwork(nn.Module):
    """conv 5x5 - LeakyReLU - maxpool 2 - conv 5x5 (50) - LeakyReLU - maxpool 2 - linear without bias.

    The network of J. Verbraeken, M. de Vos and J. Pouwelse, *Bristle: Decentralized Federated Learning in
    Byzantine, Non-i.i.d. Environments* (2021). While training, batch normalisation follows each convolution;
    it is an affine map per channel and so becomes part of the convolution when the network is written out.

    Parameters
    ----------
    kind
        What goes in.
    classes
        Number of classes of the last layer.
    width
        Channels of the first convolution.
    dropout
        Share of the features that is dropped before the last layer while training.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, kind: ImageKind, *, classes: int, width: int, dropout: float) -> None:
        super().__init__()
        self.kind = kind
        self.first = nn.Conv2d(kind.channels, width, KERNEL, bias=False)
        self.first_norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, CHANNELS, KERNEL, bias=False)
        self.second_norm = nn.BatchNorm2d(CHANNELS)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(kind.features, classes, bias=False)
        self.register_buffer("mean", torch.tensor(kind.mean).reshape(-1, 1, 1), persistent=False)
        self.register_buffer("deviation", torch.tensor(kind.deviation).reshape(-1, 1, 1), persistent=False)

    def features(self, pixels: Tensor) -> Tensor:
        """Return features `[n, features]` of float pixels `[n, channels, height, width]`."""
        x = (pixels - self.mean) / self.deviation
        for convolution, norm in ((self.first, self.first_norm), (self.second, self.second_norm)):
            x = activated(norm(convolution(x)))
        return x.flatten(1)

    def forward(self, pixels: Tensor) -> Tensor:
        """Return logits `[n, classes]` of float pixels `[n, channels, height, width]`."""
        logits: Tensor = self.head(self.dropout(self.features(pixels)))
        return logits


def channels_first(x: Tensor) -> Tensor:
    """Return float pixels `[n, channels, height, width]` of images stored with channels last, or without."""
    images = x.unsqueeze(1) if x.ndim == 3 else x.permute(0, 3, 1, 2)
    return images.to(torch.float32)


def to_onnx(network: PaperNetwork, *, scale: float, metadata: Mapping[str, str]) -> bytes:
    """Write everything but the last layer as ONNX: images as they are stored in, features out.

    LeakyReLU and max-pooling commute with a positive factor, so `scale` times the features comes from
    `scale` times the second convolution.
    """
    kind = network.kind
    first_weight, first_bias = _folded(network.first, network.first_norm, 1.0)
    second_weight, second_bias = _folded(network.second, network.second_norm, scale)
    shape = (-1, 1, 1)
    weights: dict[str, npt.NDArray[np.generic]] = {
        "mean": np.asarray(kind.mean, np.float32).reshape(shape),
        "deviation": np.asarray(kind.deviation, np.float32).reshape(shape),
        "first.weight": first_weight,
        "first.bias": first_bias,
        "second.weight": second_weight,
        "second.bias": second_bias,
    }
    nodes = [
        onnx_file.node("Cast", ["images"], ["pixels"], to=onnx_file.ELEMENT_TYPES["float32"]),
        *_channels_first_nodes(kind, weights),
        onnx_file.node("Sub", ["planes", "mean"], ["centred"]),
        onnx_file.node("Div", ["centred", "deviation"], ["normalised"]),
        *_block("first", "normalised", "first.out"),
        *_block("second", "first.out", "second.out"),
        onnx_file.node("Flatten", ["second.out"], ["features"], axis=1),
    ]
    content = onnx_file.GraphPart(
        nodes=nodes,
        initializers=[onnx_file.tensor(name, array) for name, array in weights.items()],
        outputs=[onnx_file.value("features", "float32", ["batch", kind.features])],
        metadata=metadata,
    )
    images = onnx_file.value("images", kind.dtype, ["batch", *kind.shape])
    return onnx_file.model(name="bristle-backbone", inputs=[images], content=content)


def _channels_first_nodes(kind: ImageKind, weights: dict[str, npt.NDArray[np.generic]]) -> Sequence[bytes]:
    if len(kind.shape) == 3:
        return [onnx_file.node("Transpose", ["pixels"], ["planes"], perm=[0, 3, 1, 2])]
    weights["axes"] = np.asarray([1], np.int64)
    return [onnx_file.node("Unsqueeze", ["pixels", "axes"], ["planes"])]


def _block(name: str, source: str, target: str) -> Sequence[bytes]:
    return [
        onnx_file.node(
            "Conv",
            [source, f"{name}.weight", f"{name}.bias"],
            [f"{name}.conv"],
            kernel_shape=[KERNEL, KERNEL],
        ),
        onnx_file.node("LeakyRelu", [f"{name}.conv"], [f"{name}.relu"], alpha=SLOPE),
        onnx_file.node("MaxPool", [f"{name}.relu"], [target], kernel_shape=[2, 2], strides=[2, 2]),
    ]


def _folded(
    convolution: nn.Conv2d, norm: nn.BatchNorm2d, scale: float
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return weight and bias of one convolution that equals the two layers in evaluation, times `scale`."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    with torch.no_grad():
        gain = (norm.weight / torch.sqrt(norm.running_var + norm.eps)).double() * scale
        weight = convolution.weight.double() * gain.reshape(-1, 1, 1, 1)
        bias = norm.bias.double() * scale - norm.running_mean.double() * gain
    return (weight.float().cpu().numpy(), bias.float().cpu().numpy())
