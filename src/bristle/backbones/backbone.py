"""Backbones: the frozen layers that turn a sample into features, from an ONNX file or any callable."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bristle._core.registry import Registry
from bristle.backbones import onnx_file
from bristle.backbones.base import Array, Backbone, Features, Shape, checked, fitted
from bristle.backbones.derived import Derived, NoBackbone
from bristle.backbones.torch_module import TorchBackbone
from bristle.data import DATASETS, Dataset, load
from bristle.data.images import Channels

if TYPE_CHECKING:
    import onnxruntime


def open_session(data: bytes, threads: int | None) -> onnxruntime.InferenceSession:
    """Load a model; `threads` None lets ONNX Runtime choose."""
    import onnxruntime  # noqa: PLC0415 - a quarter of a second that only those who use ONNX files pay

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    options.log_severity_level = 4  # errors come as exceptions; nobody wants them on stderr as well
    try:
        return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except _runtime_errors() as error:
        raise ValueError(f"is no ONNX model that ONNX Runtime can load: {_one_line(error)}") from error


def run_session(session: onnxruntime.InferenceSession, output: str, samples: Array) -> Array:
    """Return the values of `output` for `samples`."""
    try:
        (result,) = session.run([output], {session.get_inputs()[0].name: samples})
    except _runtime_errors() as error:
        raise ValueError(f"cannot take samples of shape {list(samples.shape[1:])}: {_one_line(error)}") from error
    array: Array = result
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
    """Return the number of features from the model's graph, or from its output for zeros."""
    declared = next(given.shape for given in session.get_outputs() if given.name == output)
    sizes = [size for size in declared[1:] if isinstance(size, int) and size > 0]
    if len(declared) > 1 and len(sizes) == len(declared) - 1:
        return int(np.prod(sizes))
    known = [size for size in shape if size is not None]
    if len(known) < len(shape):
        raise ValueError("fixes neither the size of a sample nor the number of features: export it with fixed sizes")
    result = run_session(session, output, np.zeros(known, dtype))
    if result.ndim < 2:
        raise ValueError(f"gives an output of shape {list(result.shape)}: features are [batch, features]")
    return int(np.prod(result.shape[1:]))


_ONNX_DTYPES = {"tensor(uint8)": "uint8", "tensor(float)": "float32", "tensor(float16)": "float16"}


@dataclass(frozen=True, eq=False)
class OnnxBackbone:
    """A backbone in an ONNX file, run by ONNX Runtime on the CPU. `load` makes one."""

    name: str
    digest: str
    features: int
    input_shape: Shape
    input_dtype: str
    input_batch: int | None
    """How many samples the model takes at once; None: any number."""
    output: str
    source: Path | Traversable
    session: onnxruntime.InferenceSession = field(repr=False)

    @classmethod
    def load(
        cls, path: str | Path | Traversable, *, output: str | None = None, threads: int | None = None
    ) -> OnnxBackbone:
        """Read an ONNX file with one input (samples) and an output that holds the features.

        Parameters
        ----------
        path
            The file. Its weights must be inside, so that its digest covers them.
        output
            Which output holds the features, where the model has several.
        threads
            How many threads may compute; None lets ONNX Runtime choose.
        """
        source = Path(path) if isinstance(path, str) else path
        data = _read(source)
        try:
            return cls._from_bytes(data, source=source, output=output, threads=threads)
        except ValueError as error:
            raise ValueError(f"{source} {error}") from error

    @classmethod
    def _from_bytes(
        cls, data: bytes, *, source: Path | Traversable, output: str | None, threads: int | None
    ) -> OnnxBackbone:
        if onnx_file.has_external_weights(data):
            raise ValueError(
                "keeps weights in a second file, which its digest would not cover: save it as one file "
                "(with torch: torch.onnx.export(..., external_data=False))"
            )
        session = open_session(data, threads)
        taken = session.get_inputs()
        if len(taken) != 1:
            raise ValueError(f"has {len(taken)} inputs: a backbone takes samples and nothing else")
        dtype = _ONNX_DTYPES.get(taken[0].type)
        if dtype is None or len(taken[0].shape) < 2:
            raise ValueError(f"takes {taken[0].type} {taken[0].shape}: a backbone takes [batch, ...] of uint8 or float")
        batch, *shape = (size if isinstance(size, int) and size > 0 else None for size in taken[0].shape)
        chosen = choose_output(session, output)
        return cls(
            name=Path(source.name).stem,
            digest=hashlib.sha256(data if output is None else data + b"\0" + output.encode()).hexdigest(),
            features=count_features(session, chosen, [batch or 1, *shape], dtype),
            input_shape=tuple(shape),
            input_dtype=dtype,
            input_batch=batch,
            output=chosen,
            source=source,
            session=session,
        )

    def __call__(self, x: Array, /) -> Features:
        """Return the features `[n, features]` of the samples `x` `[n, ...]`."""
        samples = fitted(x, self.input_shape, self.input_dtype, f"backbone {self.source}")
        size = self.input_batch or max(len(samples), 1)
        pieces = [self._run(samples[start : start + size], size) for start in range(0, len(samples), size)]
        return checked(np.concatenate(pieces) if pieces else np.empty((0, self.features)), len(x), self)

    def _run(self, samples: Array, size: int) -> npt.NDArray[np.generic]:
        missing = size - len(samples)  # a model of a fixed batch gets it filled up, and the surplus is cut off
        empty = np.zeros((missing, *samples.shape[1:]), samples.dtype)
        full = np.concatenate([samples, empty]) if missing else samples
        try:
            return run_session(self.session, self.output, full)[: len(samples)]
        except ValueError as error:
            raise ValueError(f"backbone {self.source} {error}") from error

    def read(self) -> bytes:
        """Return the file's content, which must still be what was loaded."""
        data = _read(self.source)
        if self.digest not in (
            hashlib.sha256(data).hexdigest(),
            hashlib.sha256(data + b"\0" + self.output.encode()).hexdigest(),
        ):
            raise ValueError(f"{self.source} is not what was loaded from it: load the backbone again")
        return data


@dataclass(frozen=True, eq=False)
class CallableBackbone:
    """Any function of NumPy arrays as a backbone. A torch module is a `TorchBackbone`.

    Parameters
    ----------
    function
        Takes samples `[n, *input_shape]` of `input_dtype`, gives features `[n, ...]`.
    name, version
        What identifies the function to others, together with the sizes below. Change the version whenever the
        function changes: its code cannot be hashed.
    features
        How many features a sample has.
    input_shape
        Sizes of one sample as the function expects it; None for any size.
    input_dtype
        Type of the values that the function expects: ``"float32"`` or ``"uint8"``.
    """

    function: Callable[[Any], Any]
    _: KW_ONLY
    name: str
    version: str
    features: int
    input_shape: Shape
    input_dtype: str = "float32"

    def __post_init__(self) -> None:
        # Whoever holds a torch module has imported torch; Bristle itself need not.
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(self.function, torch.nn.Module):
            raise ValueError("this is a torch module: use TorchBackbone(module, ...), whose identity is its weights")
        if self.input_dtype not in ("float32", "uint8"):
            raise ValueError(f"input_dtype is 'float32' or 'uint8', not {self.input_dtype!r}")
        if not self.name or not self.version:
            raise ValueError("a callable backbone needs a name and a version: they identify it to other peers")

    @property
    def digest(self) -> str:
        """SHA-256 of the name, the version and the sizes."""
        identity = ["callable", self.name, self.version, self.features, self.input_shape, self.input_dtype]
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()

    def __call__(self, x: Array, /) -> Features:
        """Return the features `[n, features]` of the samples `x` `[n, ...]`."""
        result = self.function(fitted(x, self.input_shape, self.input_dtype, f"backbone {self.name}"))
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(result, torch.Tensor):
            result = result.detach().cpu().numpy()
        return checked(np.asarray(result), len(x), self)


def bundled(*, threads: int | None = None) -> OnnxBackbone:
    """Load the backbone that comes with Bristle: the paper's network, pre-trained on EMNIST letters."""
    return OnnxBackbone.load(resources.files("bristle.backbones") / "assets" / "letters.onnx", threads=threads)


BACKBONES: Registry[Backbone] = Registry(
    "backbone",
    (OnnxBackbone, CallableBackbone, TorchBackbone, NoBackbone, Derived),
    {"bundled": bundled, "none": NoBackbone},
    "bristle.backbones",
)


def find_backbone(name: str, *, like: Array | None = None) -> Backbone:
    """Return a backbone: `"bundled"`, an installed package's, your own as `module:name`, or an ONNX file.

    `"none"` stands for samples that are features already, as many as the samples `like` `[n, ...]` have.
    """
    if name == "none":
        if like is None:
            raise ValueError('backbone "none" needs data: without any, the number of features is unknown')
        return NoBackbone(int(np.prod(like.shape[1:])))
    if name in BACKBONES or BACKBONES.is_foreign(name):
        return BACKBONES.create(name)
    return OnnxBackbone.load(name)


def load_for(source: str, backbone: Backbone) -> Dataset:
    """Load a dataset; images of a folder get the size and colours that a backbone takes."""
    if source in DATASETS or DATASETS.is_foreign(source) or not Path(source).is_dir():
        return load(source)
    sizes = [size for size in backbone.input_shape if size is not None]
    channels: Channels = "rgb" if 3 in sizes[:1] + sizes[-1:] else "gray"
    sides = [size for size in sizes if size not in (1, 3)]
    return load(source, size=(sides[0], sides[-1]) if len(sides) == 2 else None, channels=channels)


def _read(source: Path | Traversable) -> bytes:
    if not source.is_file():
        raise FileNotFoundError(f"there is no backbone file {source}: check the path")
    return source.read_bytes()
