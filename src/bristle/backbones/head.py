"""Heads in and out: as safetensors, and from and to a linear layer of torch."""

from __future__ import annotations

import json
import mmap
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from bristle.backbones import safetensors_file
from bristle.backbones.base import Backbone
from bristle.backbones.derived import WithBias

if TYPE_CHECKING:
    import torch

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Head:
    """A linear classifier: scores ``W phi(x) + b``, and what it was made for.

    Parameters
    ----------
    weights
        W `[classes, features]`, a row per class.
    bias
        b `[classes]`; None for none.
    classes
        Names of the classes; empty where they are not known.
    backbone
        Digest of the backbone that makes phi; empty where it is not known.
    """

    weights: Floats
    bias: Floats | None = None
    classes: tuple[str, ...] = ()
    backbone: str = ""

    def __post_init__(self) -> None:
        weights = _numbers(self.weights, "weights")
        if weights.ndim != 2 or 0 in weights.shape:
            raise ValueError(f"the head's weights have shape {list(weights.shape)}: give [classes, features]")
        bias = None if self.bias is None else _numbers(self.bias, "bias")
        if bias is not None and bias.shape != weights.shape[:1]:
            raise ValueError(f"the head's bias has shape {list(bias.shape)}: give one for each of {len(weights)} rows")
        classes = tuple(str(name) for name in self.classes)
        if classes and len(classes) != len(weights):
            raise ValueError(f"{len(classes)} names were given for the {len(weights)} classes of the head")

        for field, value in (("weights", weights), ("bias", bias), ("classes", classes)):
            object.__setattr__(self, field, value)

    def scores(self, features: npt.ArrayLike) -> Floats:
        """Return ``W x + b`` for features `[n, features]`: `[n, classes]`; the largest is the prediction."""
        scores: Floats = np.asarray(features, np.float32) @ self.weights.T
        return scores if self.bias is None else scores + self.bias

    @classmethod
    def of(
        cls,
        weights: npt.ArrayLike,
        backbone: Backbone,
        classes: Sequence[str] = (),
        bias: npt.ArrayLike | None = None,
    ) -> Self:
        """Return the head of a peer or a world, with what it was made for; with a `WithBias`, its bias is split off.

        `bias` `[classes]` is what rules such as `evidence` return beside the weights.
        """
        values = _numbers(weights, "weights")
        if values.ndim != 2 or values.shape[1] != backbone.features:
            raise ValueError(
                f"the head has shape {list(values.shape)}: backbone {backbone.name} needs [classes, "
                f"{backbone.features}]"
            )
        offsets = None if bias is None else _numbers(bias, "bias")
        if isinstance(backbone, WithBias):
            values, last, backbone = values[:, :-1], values[:, -1], backbone.backbone
            offsets = last if offsets is None else last + offsets
        return cls(values, offsets, tuple(classes), backbone.digest)

    def weights_for(self, backbone: Backbone | None, classes: Sequence[str], features: int) -> Floats:
        """Return the rows `[classes, features]` that a group with this backbone and these classes starts from."""
        known = backbone.backbone if isinstance(backbone, WithBias) else backbone
        if known is not None and self.backbone and self.backbone != known.digest:
            raise ValueError(
                f"the head was made for the backbone {self.backbone[:16]}, this is {known.digest[:16]} ({known.name}): "
                "use that backbone, or train a head for this one"
            )
        if self.classes and self.classes != tuple(classes):
            raise ValueError(
                f"the head has the classes {', '.join(self.classes)}, this group has {', '.join(classes)}: "
                "use the same names in the same order"
            )
        weights = self.weights
        if isinstance(backbone, WithBias):
            bias = np.zeros(len(weights), np.float32) if self.bias is None else self.bias
            weights = np.concatenate([weights, bias[:, None]], axis=1)
        elif self.bias is not None and self.bias.any():
            raise ValueError(
                "the head has a bias, and heads of peers have none: give all peers a constant feature, "
                "backbone=WithBias(backbone)"
            )
        if weights.shape != (len(classes), features):
            raise ValueError(
                f"the head has shape {list(weights.shape)}, this group's heads are [{len(classes)}, {features}]: "
                "use a head for as many classes and features"
            )
        return weights

    @classmethod
    def from_linear(
        cls, layer: torch.nn.Linear, *, classes: Sequence[str] = (), backbone: Backbone | None = None
    ) -> Self:
        """Return the head of a linear layer of torch, with its bias.

        Parameters
        ----------
        layer
            The last layer of a classifier.
        classes
            Names of its outputs.
        backbone
            What makes its inputs.
        """
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(layer, torch.nn.Linear):
            raise ValueError(f"{type(layer).__name__} is no torch.nn.Linear: give the last layer of a classifier")
        return cls(
            _of_tensor(layer.weight, "weight"),
            None if layer.bias is None else _of_tensor(layer.bias, "bias"),
            tuple(classes),
            "" if backbone is None else backbone.digest,
        )

    def to_linear(self) -> torch.nn.Linear:
        """Return the head as a linear layer of torch."""
        import torch  # noqa: PLC0415 - the core does without

        classes, features = self.weights.shape
        layer = torch.nn.Linear(features, classes, bias=self.bias is not None)
        with torch.no_grad():
            layer.weight.copy_(torch.tensor(self.weights))
            if self.bias is not None:
                layer.bias.copy_(torch.tensor(self.bias))
        return layer


def save_head(path: str | os.PathLike[str], head: Head) -> Path:
    """Write a head as safetensors: `weight` and `bias` as a linear layer of torch has them, the rest as metadata."""
    if not isinstance(head, Head):
        raise ValueError(f"{type(head).__name__} is no Head: use Head.of(peer.head, peer.backbone, peer.classes)")
    target = Path(path)
    tensors = {"weight": head.weights} | ({} if head.bias is None else {"bias": head.bias})
    metadata = {"format": "pt", "classes": json.dumps(list(head.classes)), "backbone": head.backbone}
    safetensors_file.write_tensors(target, tensors, metadata)
    return target


def load_head(path: str | os.PathLike[str], *, layer: str = "") -> Head:
    """Read a head that `save_head` wrote, or a linear layer from any safetensors file.

    Parameters
    ----------
    path
        The file.
    layer
        Name of the layer in the file of a whole model, e.g. `"classifier"` for `classifier.weight`.
    """
    source = Path(path)
    if not source.is_file():
        raise FileNotFoundError(f"there is no head {source}: check the path")
    try:
        if not source.stat().st_size:
            raise ValueError("is empty: save it again")
        with source.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _read(data, layer)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from error


def _read(data: mmap.mmap, layer: str) -> Head:
    tensors, metadata = safetensors_file.read_header(data)
    prefix = f"{layer}." if layer else ""
    if f"{prefix}weight" not in tensors:
        layers = [name.removesuffix(".weight") for name in tensors if name.endswith(".weight")]
        found = f"layers {', '.join(layers[-8:])}" if layers else f"tensors {', '.join([*tensors][:8]) or '(none)'}"
        raise ValueError(f"has no {prefix}weight, but the {found}: say which layer is the head (layer=...)")
    weights = safetensors_file.read_tensor(data, f"{prefix}weight", tensors[f"{prefix}weight"])
    bias = tensors.get(f"{prefix}bias")
    try:
        classes = json.loads(metadata.get("classes", "[]"))
    except (ValueError, RecursionError):
        classes = None
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise ValueError("is damaged: its classes are no list of names: save it again")
    return Head(
        weights,
        None if bias is None else safetensors_file.read_tensor(data, f"{prefix}bias", bias),
        tuple(classes),
        metadata.get("backbone", ""),
    )


def _numbers(values: npt.ArrayLike, what: str) -> Floats:
    array = np.asarray(values)
    if array.dtype.kind not in "buif":
        raise ValueError(f"the head's {what} are {array.dtype}: give 32-bit numbers")
    with np.errstate(over="ignore"):
        numbers = np.ascontiguousarray(array, np.float32)
    if not np.isfinite(numbers).all():
        raise ValueError(f"the head's {what} are not finite numbers: use an earlier head")
    return numbers


def _of_tensor(tensor: Any, what: str) -> Floats:
    if tensor.element_size() == 1:
        kind = str(tensor.dtype).removeprefix("torch.")
        raise ValueError(f"the layer's {what} is {kind}, which would lose precision: use layer.to(torch.float32)")
    values: Floats = tensor.detach().float().cpu().numpy()
    return values
