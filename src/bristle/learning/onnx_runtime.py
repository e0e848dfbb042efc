"""ONNX Runtime, loaded when it is first needed, with errors that say in one line what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bristle.learning.images import Images

if TYPE_CHECKING:
    import onnxruntime


def open_session(data: bytes, threads: int | None) -> onnxruntime.InferenceSession:
    """Load a model; None threads: as many as ONNX Runtime likes."""
    import onnxruntime  # noqa: PLC0415 - a quarter of a second that only those who use ONNX files pay

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    options.log_severity_level = 4  # errors come as exceptions; nobody wants them on stderr as well
    try:
        return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except _runtime_errors() as error:
        raise ValueError(f"is no ONNX model that ONNX Runtime can load: {_one_line(error)}") from error


def run_session(session: onnxruntime.InferenceSession, output: str, images: Images) -> Images:
    """Return what the model makes of `images` at `output`."""
    try:
        (result,) = session.run([output], {session.get_inputs()[0].name: images})
    except _runtime_errors() as error:
        raise ValueError(f"cannot take images {list(images.shape[1:])}: {_one_line(error)}") from error
    array: Images = result
    return array


def _runtime_errors() -> tuple[type[Exception], ...]:
    from onnxruntime.capi import onnxruntime_pybind11_state as state  # noqa: PLC0415

    return (
        state.Fail,
        state.InvalidArgument,
        state.InvalidGraph,
        state.InvalidProtobuf,
        state.NotImplemented,
        state.RuntimeException,
    )


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def choose_output(session: onnxruntime.InferenceSession, wanted: str | None) -> str:
    """Return the name of the output that holds the features."""
    types: dict[str, str] = {given.name: given.type for given in session.get_outputs()}
    chosen = next(iter(types)) if wanted is None and len(types) == 1 else wanted
    if chosen not in types:
        problem = "has several outputs" if wanted is None else f"has no output {wanted!r}"
        raise ValueError(f"{problem}: name the one with the features (output=...), one of {', '.join(types)}")
    if types[chosen] not in ("tensor(float)", "tensor(float16)", "tensor(double)"):
        raise ValueError(f"gives {types[chosen]} at {chosen}: features are floating-point numbers")
    return chosen


def count_features(session: onnxruntime.InferenceSession, output: str, shape: Sequence[int | None], dtype: str) -> int:
    """Read the number of features off the model, or off what it makes of black images."""
    declared = next(given.shape for given in session.get_outputs() if given.name == output)
    sizes = [size for size in declared[1:] if isinstance(size, int) and size > 0]
    if len(declared) > 1 and len(sizes) == len(declared) - 1:
        return int(np.prod(sizes))
    known = [size for size in shape if size is not None]
    if len(known) < len(shape):
        raise ValueError("fixes neither the size of an image nor the number of features: export it with fixed sizes")
    result = run_session(session, output, np.zeros(known, dtype))
    if result.ndim < 2:
        raise ValueError(f"gives an output of shape {list(result.shape)}: features are [batch, features]")
    return int(np.prod(result.shape[1:]))
