"""Images that somebody else made: `bristle.data.load` of a folder of idx files.

The first byte says which of the four files the rest is, and whether it is packed after it was changed, so that changes
reach what is inside: the checksum of gzip would otherwise stop nearly all of them.
"""

from __future__ import annotations

import gzip
import struct

import numpy as np

from bristle.data import load
from bristle.data.idx import FILES
from harness import BrokenPromiseError, Target, refused, scratch

FOLDER = scratch() / "idx"
MAX_BYTES = 1 << 20


def _idx(array: np.ndarray) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


IMAGES = np.arange(120, dtype=np.uint8).reshape(10, 3, 4)
LABELS = (np.arange(10) % 3).astype(np.uint8)
GOOD = {name: _idx(IMAGES if "images" in name else LABELS) for name in FILES}


def check(data: bytes) -> str:
    """Load it; what is taken holds bytes and labels that fit together, within the bound on memory."""
    kind, rest = data[0] if data else 0, data[1:]
    changed, packed = FILES[kind % 4], kind // 4 % 3
    FOLDER.mkdir(exist_ok=True)
    for name, content in {**GOOD, changed: rest}.items():
        plain, zipped = FOLDER / name, FOLDER / f"{name}.gz"
        plain.unlink(missing_ok=True)
        zipped.unlink(missing_ok=True)
        if name == changed and packed:
            zipped.write_bytes(gzip.compress(content, 1) if packed == 1 else content)
        else:
            plain.write_bytes(content)
    try:
        loaded = load(FOLDER, max_bytes=MAX_BYTES)
    except ValueError as error:
        if not str(error).startswith(str(FOLDER)):
            raise BrokenPromiseError(f"the refusal does not name the file: {error}") from error
        return refused(error)
    if loaded.x_train.ndim != 3 or len(loaded.x_train) != len(loaded.y_train):
        raise BrokenPromiseError(f"took {loaded.x_train.shape} with {len(loaded.y_train)} labels")
    if loaded.x_train.nbytes + loaded.x_test.nbytes > MAX_BYTES:
        raise BrokenPromiseError(f"took {loaded.x_train.nbytes + loaded.x_test.nbytes} bytes")
    return "taken"


def seeds() -> dict[str, bytes]:
    """Return each of the files, as it is and packed."""
    made = {f"plain-{place}": bytes([place]) + GOOD[name] for place, name in enumerate(FILES)}
    made |= {f"packed-{place}": bytes([4 + place]) + GOOD[name] for place, name in enumerate(FILES)}
    made["gzip"] = bytes([8]) + gzip.compress(GOOD[FILES[0]], mtime=0)
    return made


TOKENS = (
    b"\x00\x00\x08\x03",
    b"\x00\x00\x08\x01",
    b"\x00\x00\x0d\x03",
    b"\xff\xff\xff\xff",
    b"\x1f\x8b\x08",
    b"\x00" * 12,
)
TARGET = Target(name="idx", check=check, seeds=seeds, largest=512, tokens=TOKENS)
