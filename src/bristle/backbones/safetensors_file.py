"""Reading and writing the few safetensors files that Bristle needs, without the ``safetensors`` package.

Such a file is the length of a JSON header (8 bytes, little-endian), the header, and the numbers, row by row and
little-endian. The header has dtype, shape and position of each tensor, and texts under ``__metadata__``:
https://huggingface.co/docs/safetensors. Nothing in it is ever executed.
"""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bristle._core.files import write_atomically

Floats = npt.NDArray[np.float32]
LONGEST_HEADER = 100_000_000
"""Bytes; what the format itself allows."""

_ALIGNMENT = 8
_DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
}


def write_tensors(path: Path, tensors: Mapping[str, Floats], metadata: Mapping[str, str]) -> None:
    """Write 32-bit tensors and texts, atomically."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    pieces, end = list[bytes](), 0
    for name, values in tensors.items():
        pieces.append(np.ascontiguousarray(values, "<f4").tobytes())
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [end, end + len(pieces[-1])]}
        end += len(pieces[-1])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    write_atomically(path, [len(text).to_bytes(8, "little"), text, *pieces])


def read_header(data: mmap.mmap) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return what the file says of its tensors, and its texts."""
    size = int.from_bytes(data[:8], "little")
    # torch.save writes a bare pickle, or a zip archive whose first member is one.
    if data[8:9] != b"{" and (data[:1] == b"\x80" or (data[:2] == b"PK" and b"data.pkl" in data[:256])):
        raise ValueError(
            "is a pickle, as torch.save writes it, which is never loaded: save it with "
            "safetensors.torch.save_file(layer.state_dict(), path)"
        )
    if len(data) < 8 or size > min(LONGEST_HEADER, len(data) - 8):
        raise ValueError("is no safetensors file, or is cut off: save it again")
    try:
        header = json.loads(data[8 : 8 + size])
    except (ValueError, RecursionError) as error:
        raise ValueError("is no safetensors file (its header is not JSON): save it again") from error
    metadata = header.pop("__metadata__", {}) if isinstance(header, dict) else None
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise ValueError("is no safetensors file (its metadata are not texts): save it again")
    if not all(isinstance(entry, dict) for entry in header.values()):
        raise ValueError("is no safetensors file (its header does not describe tensors): save it again")
    return header, metadata


def read_tensor(data: mmap.mmap, name: str, entry: Mapping[str, Any]) -> Floats:
    """Return one tensor, in 32 bits."""
    kind: Any
    shape: Any
    offsets: Any
    kind, shape, offsets = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(kind, str) or kind not in _DTYPES:
        raise ValueError(f"holds {name} as {kind}: save it as F32, F16 or BF16, e.g. with tensor.float()")
    if not (_counts(shape) and 0 not in shape and _counts(offsets) and len(offsets) == 2):
        raise ValueError(f"is damaged: {name} has shape {shape} at {offsets}: save it again")
    start = 8 + int.from_bytes(data[:8], "little")
    first, last = start + offsets[0], start + offsets[1]
    if last > len(data) or last - first != math.prod(shape) * _DTYPES[kind].itemsize:
        raise ValueError(f"is damaged: {name} has shape {shape} at {offsets}: save it again")
    stored = np.frombuffer(data[first:last], _DTYPES[kind]).reshape(shape)
    if kind == "BF16":  # The upper half of a 32-bit number.
        stored = (stored.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(over="ignore"):  # Infinities are refused by whoever uses the numbers.
        values: Floats = stored.astype(np.float32)
    return values


def _counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(entry) is int and entry >= 0 for entry in value)
