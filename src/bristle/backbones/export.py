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
from bristle.backbones.backbone import Backbone, OnnxBackbone


def export_classifier(
    backbone: Backbone,
    head: npt.ArrayLike,
    path: str | os.PathLike[str],
    *,
    classes: Sequence[str] | None = None,
) -> Path:
    """Write ``logits = phi(x) W^T`` and ``probabilities = softmax(logits)`` as one ONNX file.

    The file takes what the backbone's takes. Its outputs are `logits` and `probabilities`, both
    `[batch, classes]`; its metadata hold the names of the classes (`classes`, a JSON list) and the
    digest of the backbone (`backbone`).

    Parameters
    ----------
    backbone
        An ONNX backbone: only of one is the graph known.
    head
        `[classes, features]`, one row per class.
    path
        Where to write.
    classes
        Their names, in the order of the rows; their numbers if left out.
    """
    if not isinstance(backbone, OnnxBackbone):
        raise ValueError(
            f"backbone {backbone.name} is not an ONNX file, so its layers cannot be written out: export it "
            "to ONNX and load it with OnnxBackbone.load"
        )
    weights = np.asarray(head, np.float32)
    if weights.ndim != 2 or weights.shape[1] != backbone.features:
        raise ValueError(
            f"the head has shape {list(weights.shape)}: backbone {backbone.name} needs [classes, {backbone.features}]"
        )
    if not np.isfinite(weights).all():
        raise ValueError("the head has weights that are not finite: there is nothing to export")
    names = [str(number) for number in range(len(weights))] if classes is None else [str(c) for c in classes]
    if len(names) != len(weights):
        raise ValueError(f"{len(names)} names were given for the {len(weights)} classes of the head")
    target = Path(path)
    write_atomically(target, [_classifier(backbone, weights, names)])
    return target


def _classifier(backbone: OnnxBackbone, weights: npt.NDArray[np.float32], names: Sequence[str]) -> bytes:
    data = backbone.read()
    flat, single, matrix = (_unused(f"head/{name}", data) for name in ("flat", "features", "weights"))
    logits, probabilities = (_unused(name, data) for name in ("logits", "probabilities"))
    shape: list[int | str] = ["batch", len(names)]
    extension = onnx_file.GraphPart(
        nodes=[
            # A backbone may give [n, D, 1, 1], or half floats; for others these two do nothing.
            onnx_file.node("Flatten", [backbone.output], [flat], axis=1),
            onnx_file.node("Cast", [flat], [single], to=onnx_file.ELEMENT_TYPES["float32"]),
            onnx_file.node("MatMul", [single, matrix], [logits]),
            onnx_file.node("Softmax", [logits], [probabilities], axis=1),
        ],
        initializers=[onnx_file.tensor(matrix, np.ascontiguousarray(weights.T))],
        outputs=[onnx_file.value(name, "float32", shape) for name in (logits, probabilities)],
        metadata={"classes": json.dumps(list(names)), "backbone": backbone.digest},
    )
    return onnx_file.extend(data, extension)


def _unused(name: str, data: bytes) -> str:
    """Return `name`, or a longer one, that occurs nowhere in the model and so clashes with nothing in it."""
    while name.encode() in data:
        name += "_"
    return name
