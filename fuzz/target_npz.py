"""Arrays that somebody else saved: `bristle.data.load` of an `.npz`.

The first byte says whether the rest is the file, or the content of one of its arrays, which is then packed into a file,
so that changes reach what is inside: checksums of the archive would otherwise stop nearly all of them.
"""

from __future__ import annotations

import io
import zipfile
from typing import Any

import numpy as np

from bristle.data import load
from harness import BrokenPromiseError, Target, refused, scratch

FILE = scratch() / "data.npz"
MAX_BYTES = 1 << 20
X = np.arange(60, dtype=np.uint8).reshape(10, 2, 3)
Y = np.arange(10) % 3
PLACES = "file", "x", "y", "classes", "user"


def _npy(array: Any) -> bytes:
    written = io.BytesIO()
    np.save(written, array)
    return written.getvalue()


MEMBERS = {"x": _npy(X), "y": _npy(Y), "classes": _npy(np.array(["ant", "bee", "cow"])), "user": _npy(Y)}


def check(data: bytes) -> str:
    """Load it; what is taken holds plain numbers, labels and names that fit together, within the bound on memory."""
    place, rest = PLACES[(data[0] if data else 0) % len(PLACES)], data[1:]
    FILE.write_bytes(rest if place == "file" else _packed({**MEMBERS, place: rest}))
    try:
        loaded = load(FILE, test_share=0, max_bytes=MAX_BYTES)
    except ValueError as error:
        if not str(error).startswith(str(FILE)):
            raise BrokenPromiseError(f"the refusal does not name the file: {error}") from error
        return refused(error)
    samples, labels = loaded.x_train, loaded.y_train
    if samples.dtype.kind not in "buif" or len(samples) != len(labels) or labels.max() >= len(loaded.classes):
        raise BrokenPromiseError(
            f"took {samples.dtype} {samples.shape} with {len(labels)} labels of {len(loaded.classes)} classes"
        )
    if samples.nbytes > MAX_BYTES:
        raise BrokenPromiseError(f"took {samples.nbytes} bytes")
    return "taken"


def _packed(members: dict[str, bytes]) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return written.getvalue()


def seeds() -> dict[str, bytes]:
    """Return files of both forms, and arrays of every kind."""
    made: dict[str, bytes] = {}
    for name, save in (("plain", np.savez), ("compressed", np.savez_compressed)):
        written = io.BytesIO()
        save(written, x=X, y=Y)
        made[name] = b"\x00" + written.getvalue()
    written = io.BytesIO()
    np.savez(written, x_train=X, y_train=Y, x_test=X[:2], y_test=Y[:2])
    made["split"] = b"\x00" + written.getvalue()
    made["array-float"] = b"\x01" + _npy(X.astype(np.float32))
    made["array-fortran"] = b"\x01" + _npy(np.asfortranarray(X.astype(">i2")))
    made["labels-float"] = b"\x02" + _npy(Y.astype(float))
    made["names"] = b"\x03" + MEMBERS["classes"]
    made["users"] = b"\x04" + _npy(np.array(["me", "you"] * 5))
    version_2 = io.BytesIO()
    np.lib.format.write_array(version_2, X, version=(2, 0))
    made["version-2"] = b"\x01" + version_2.getvalue()
    return made


TOKENS = (
    b"'|O'",
    b"'<U0'",
    b"(10000000000,)",
    b"(-1,)",
    b"'<f8'",
    b"True",
    b"[('a', '<i4')]",
    b"PK\x03\x04",
    b"{",
    b"[",
    b"(",
)
TARGET = Target(name="npz", check=check, seeds=seeds, largest=2048, tokens=TOKENS)
