"""A backbone and a head as one ONNX classifier, for any runtime that reads ONNX."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bristle._core.files import write_atomically
from bristle.backbones import onnx_file
from bristle.backbones.backbone import OnnxBackbone
from bristle.backbones.base import Backbone
from bristle.backbones.derived import WithBias
from bristle.backbones.head import Head


def export_classifier(
    backbone: Backbone,
    head: Head | npt.ArrayLike,
    path: str | os.PathLike[str],
    *,
    classes: Sequence[str] | None = None,
) -> Path:
    """Write ``logits = W phi(x) + b`` and ``probabilities = softmax(logits)`` as one ONNX file.

    The file takes the same input as the backbone's. Its outputs are `logits` and `probabilities`, both
    `[batch, classes]`; its metadata hold the names of the classes (`classes`, a JSON list) and the
    digest of the backbone (`backbone`).

    Parameters
    ----------
    backbone
        An ONNX backbone, with or without `WithBias`: no other has a known graph.
    head
        A `Head`, or its weights `[classes, features]`, one row per class.
    path
        Where to write.
    classes
        Names of the classes, in the order of the rows; by default those of the head, or else numbers.
    """
    given = head if isinstance(head, Head) else Head.of(head, backbone)
    network = backbone.backbone if isinstance(backbone, WithBias) else backbone
    if not isinstance(network, OnnxBackbone):
        raise ValueError(
            f"backbone {network.name} is not an ONNX file, so its layers cannot be written out: export it "
            "to ONNX and load it with OnnxBackbone.load"
        )
    names = classes or given.classes or range(len(given.weights))
    named = Head(given.weights, given.bias, tuple(str(name) for name in names), given.backbone)
    named.weights_for(WithBias(network), named.classes, network.features + 1)  # raises if it is of another backbone
    target = Path(path)
    write_atomically(target, [_classifier(network, named)])
    return target


def _classifier(backbone: OnnxBackbone, head: Head) -> bytes:
    data = backbone.read()
    flat, single, matrix, products, offsets = (
        _unused(f"head/{name}", data) for name in ("flat", "features", "weights", "products", "bias")
    )
    logits, probabilities = (_unused(name, data) for name in ("logits", "probabilities"))
    shape: list[int | str] = ["batch", len(head.classes)]
    nodes = [
        # A backbone may give [n, D, 1, 1], or half floats; for others these two do nothing.
        onnx_file.node("Flatten", [backbone.output], [flat], axis=1),
        onnx_file.node("Cast", [flat], [single], to=onnx_file.ELEMENT_TYPES["float32"]),
        onnx_file.node("MatMul", [single, matrix], [logits if head.bias is None else products]),
    ]
    initializers = [onnx_file.tensor(matrix, np.ascontiguousarray(head.weights.T))]
    if head.bias is not None:
        nodes.append(onnx_file.node("Add", [products, offsets], [logits]))
        initializers.append(onnx_file.tensor(offsets, head.bias))
    extension = onnx_file.GraphPart(
        nodes=[*nodes, onnx_file.node("Softmax", [logits], [probabilities], axis=1)],
        initializers=initializers,
        outputs=[onnx_file.value(name, "float32", shape) for name in (logits, probabilities)],
        metadata={"classes": json.dumps(list(head.classes)), "backbone": backbone.digest},
    )
    return onnx_file.extend(data, extension)


def _unused(name: str, data: bytes) -> str:
    """Return `name`, or a longer one, that occurs nowhere in the model and so clashes with nothing in it."""
    while name.encode() in data:
        name += "_"
    return name
