"""Heads that somebody else saved: `bristle.load_head` of a safetensors file.

The first byte says whether the rest is the file, or its header, which then gets its length before it and some numbers
behind it, so that changes reach what is inside; and whether one layer of a whole model is wanted.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from bristle import Head, load_head, save_head
from harness import BrokenPromiseError, Target, refused, scratch

FILE, AGAIN = scratch() / "head.safetensors", scratch() / "again.safetensors"
LAYER = 2
NUMBERS = np.arange(24, dtype="<f4").tobytes()


def check(data: bytes) -> str:
    """Load it; what is taken is finite and fits together, and is the same after saving it."""
    place, rest = (data[0] if data else 0) % 3, data[1:]
    FILE.write_bytes(len(rest).to_bytes(8, "little") + rest + NUMBERS if place else rest)
    try:
        head = load_head(FILE, layer="layer" if place == LAYER else "")
    except ValueError as error:
        if not str(error).startswith(str(FILE)):
            raise BrokenPromiseError(f"the refusal does not name the file: {error}") from error
        return refused(error)
    again = load_head(save_head(AGAIN, head))
    if not np.isfinite(head.weights).all() or head.weights.ndim != 2 or head.weights.nbytes > 4 * len(data) + 96:
        raise BrokenPromiseError(f"took weights {head.weights.shape}")
    if again.classes != head.classes or again.backbone != head.backbone:
        raise BrokenPromiseError(f"{head.classes} became {again.classes}")
    np.testing.assert_array_equal(again.weights, head.weights)
    np.testing.assert_array_equal(np.asarray(again.bias), np.asarray(head.bias))
    return "taken"


def _header(prefix: str = "", metadata: dict[str, str] | None = None, **entry: Any) -> bytes:
    weight = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]} | entry
    bias = {"dtype": "F32", "shape": [2], "data_offsets": [24, 32]}
    text = json.dumps({"__metadata__": metadata or {}, f"{prefix}weight": weight, f"{prefix}bias": bias})
    return (b"\x02" if prefix else b"\x01") + text.encode()


def seeds() -> dict[str, bytes]:
    """Return files and headers of several kinds."""
    whole = Head(np.ones((2, 3), np.float32), np.zeros(2, np.float32), ("dry", "wet"), "0" * 64)
    return {
        "file": b"\x00" + save_head(FILE, whole).read_bytes(),
        "plain": _header(),
        "layer": _header("layer."),
        "named": _header(metadata={"classes": '["dry", "wet"]', "backbone": "0" * 64}),
        "half": _header(dtype="F16", data_offsets=[0, 12]),
        "bfloat16": _header(dtype="BF16", data_offsets=[0, 12]),
        "double": _header(dtype="F64", data_offsets=[0, 48]),
    }


TOKENS = (b'"F8_E4M3"', b'"I64"', b"[0]", b"[10000000000000000000000]", b"-1", b"null", b"true", b"{", b"[", b"1e999")
TARGET = Target(name="head", check=check, seeds=seeds, largest=1024, tokens=TOKENS)
