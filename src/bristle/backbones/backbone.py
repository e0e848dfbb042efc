"""Backbones: the frozen layers that turn a sample into features, from an ONNX file or any callable."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from bristle._core.registry import Registry
from bristle.backbones import onnx_file

if TYPE_CHECKING:
    import onnxruntime

Images = npt.NDArray[np.generic]
Shape = tuple[int | None, ...]
"""Sizes of one image; None where any size will do."""


def fitted(x: Images, shape: Shape, dtype: str, what: str) -> Images:
    """Convert stored images to the shape and type that a backbone takes."""
    stored = np.asarray(x)
    for images in _layouts(stored):
        sizes = images.shape[1:]
        if len(sizes) == len(shape) and all(w in (None, h) for w, h in zip(shape, sizes, strict=True)):
            break
    else:
        wanted = [size or "any" for size in shape]
        raise ValueError(
            f"{what} takes images of size {wanted}, and got {list(stored.shape[1:])}: resize the images, or "
            "take a backbone made for their size"
        )
    if stored.dtype.name == dtype:
        return np.ascontiguousarray(images)
    if dtype == "uint8":
        raise ValueError(f"{what} takes uint8 pixels (0 to 255), and got {stored.dtype.name}: convert the images")
    if stored.dtype == np.uint8:
        scaled: Images = np.ascontiguousarray(images, dtype) / np.asarray(255, dtype)
        return scaled
    if not np.issubdtype(stored.dtype, np.floating):
        raise ValueError(f"{what} takes {dtype} or uint8 pixels, and got {stored.dtype.name}: convert the images")
    return np.ascontiguousarray(images, dtype)


def _layouts(x: Images) -> Iterator[Images]:
    """Yield `x` as it is and with its channels where another convention has them."""
    yield x
    if x.ndim == 3:
        yield x[:, np.newaxis]
        yield x[..., np.newaxis]
    if x.ndim == 4:
        yield x.transpose(0, 3, 1, 2)
        yield x.transpose(0, 2, 3, 1)
        if x.shape[3] == 1:
            yield x[..., 0]
    if x.ndim > 1:
        yield x.reshape(len(x), int(np.prod(x.shape[1:])))


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


Features = npt.NDArray[np.float32]

_ONNX_DTYPES = {"tensor(uint8)": "uint8", "tensor(float)": "float32", "tensor(float16)": "float16"}


class Backbone(Protocol):
    """A frozen function from images to features."""

    @property
    def name(self) -> str:
        """A name for people."""

    @property
    def digest(self) -> str:
        """SHA-256, in hexadecimal, of what it computes: equal digests mean equal features."""

    @property
    def features(self) -> int:
        """How many features an image has."""

    @property
    def input_shape(self) -> Shape:
        """Sizes of one image as the backbone wants it."""

    def __call__(self, x: Images, /) -> Features:
        """Return the features `[n, features]` of the images `x` `[n, ...]`."""


@dataclass(frozen=True, eq=False)
class OnnxBackbone:
    """A backbone in an ONNX file, run by ONNX Runtime on the CPU. `load` makes one."""

    name: str
    digest: str
    features: int
    input_shape: Shape
    input_dtype: str
    input_batch: int | None
    """How many images the model takes at once; None: any number."""
    output: str
    source: Path | Traversable
    session: onnxruntime.InferenceSession = field(repr=False)

    @classmethod
    def load(
        cls, path: str | Path | Traversable, *, output: str | None = None, threads: int | None = None
    ) -> OnnxBackbone:
        """Read an ONNX file with one input (images) and an output that holds the features.

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
            raise ValueError(f"has {len(taken)} inputs: a backbone takes images and nothing else")
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

    def __call__(self, x: Images, /) -> Features:
        """Return the features `[n, features]` of the images `x` `[n, ...]`."""
        images = fitted(x, self.input_shape, self.input_dtype, f"backbone {self.source}")
        size = self.input_batch or max(len(images), 1)
        pieces = [self._run(images[start : start + size], size) for start in range(0, len(images), size)]
        return _checked(np.concatenate(pieces) if pieces else np.empty((0, self.features)), len(x), self)

    def _run(self, images: Images, size: int) -> npt.NDArray[np.generic]:
        missing = size - len(images)  # a model of a fixed batch gets it filled up, and the surplus is cut off
        full = np.concatenate([images, np.zeros((missing, *images.shape[1:]), images.dtype)]) if missing else images
        try:
            return run_session(self.session, self.output, full)[: len(images)]
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
    """Any function as a backbone: of NumPy arrays, or a torch module.

    A torch module runs in evaluation mode, without gradients, where its weights are.

    Parameters
    ----------
    function
        Takes images `[n, *input_shape]` of `input_dtype`, gives features `[n, ...]`.
    name, version
        What identifies the function to others, together with the sizes below. Change the version whenever the
        function changes: its code and weights cannot be hashed.
    features
        How many features an image has.
    input_shape
        Sizes of one image as the function wants it; None where any size will do.
    input_dtype
        What the function wants pixels to be: ``"float32"`` or ``"uint8"``.
    """

    function: Callable[[Any], Any]
    _: KW_ONLY
    name: str
    version: str
    features: int
    input_shape: Shape
    input_dtype: str = "float32"

    def __post_init__(self) -> None:
        if self.input_dtype not in ("float32", "uint8"):
            raise ValueError(f"input_dtype is 'float32' or 'uint8', not {self.input_dtype!r}")
        if not self.name or not self.version:
            raise ValueError("a callable backbone needs a name and a version: they identify it to other peers")

    @property
    def digest(self) -> str:
        """SHA-256 of the name, the version and the sizes."""
        identity = ["callable", self.name, self.version, self.features, self.input_shape, self.input_dtype]
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()

    def __call__(self, x: Images, /) -> Features:
        """Return the features `[n, features]` of the images `x` `[n, ...]`."""
        images = fitted(x, self.input_shape, self.input_dtype, f"backbone {self.name}")
        # Whoever holds a torch module has imported torch; Bristle itself need not.
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(self.function, torch.nn.Module):
            result = _run_module(torch, self.function, images)
        else:
            result = self.function(images)
        if torch is not None and isinstance(result, torch.Tensor):
            result = result.detach().cpu().numpy()
        return _checked(np.asarray(result), len(x), self)


def bundled(*, threads: int | None = None) -> OnnxBackbone:
    """Load the backbone that comes with Bristle: the paper's network, pre-trained on EMNIST letters."""
    return OnnxBackbone.load(resources.files("bristle.backbones") / "assets" / "letters.onnx", threads=threads)


BACKBONES: Registry[Backbone] = Registry(
    "backbone", (OnnxBackbone, CallableBackbone), {"bundled": bundled}, "bristle.backbones"
)


def find_backbone(name: str) -> Backbone:
    """Return a backbone: `"bundled"`, an installed package's, your own as `module:name`, or an ONNX file."""
    if name in BACKBONES or BACKBONES.is_foreign(name):
        return BACKBONES.create(name)
    return OnnxBackbone.load(name)


def _read(source: Path | Traversable) -> bytes:
    if not source.is_file():
        raise FileNotFoundError(f"there is no backbone file {source}: check the path")
    return source.read_bytes()


def _run_module(torch: ModuleType, module: Any, images: Images) -> Any:
    module.eval()
    weights = next(module.parameters(), None)
    with torch.no_grad():
        tensor = torch.from_numpy(np.require(images, requirements=["C", "W"]))
        return module(tensor if weights is None else tensor.to(weights.device))


def _checked(result: npt.NDArray[np.generic], count: int, backbone: Backbone) -> Features:
    found = list(result.shape)
    if result.ndim < 2 or result.shape[0] != count or np.prod(result.shape[1:]) != backbone.features:
        raise ValueError(
            f"backbone {backbone.name} made {found} of {count} images: [{count}, {backbone.features}] was expected"
        )
    return np.ascontiguousarray(result.reshape(count, backbone.features), np.float32)
