"""What comes in over HTTP: bodies, the token's header, the Host header and the query of /decisions.

The first byte says which of them the rest is.
"""

from __future__ import annotations

import numpy as np

from bristle.peer.http import MAX_SAMPLES, Inputs, given_token, names_this_machine, parse, wanted_number
from harness import BrokenPromiseError, Target, refused

KINDS = 5
MOST = 500


def check(data: bytes) -> str:
    """Read it; what is taken is finite, labelled where that was asked for, and within its bounds."""
    choice, rest = (data[0] if data else 0) % KINDS, data[1:]
    try:
        match choice:
            case 0 | 1:
                return _check(parse(rest, labelled=bool(choice)), labelled=bool(choice))
            case 2:
                # As aiohttp decodes headers.
                given_token(rest.decode("utf-8", "surrogateescape"))
                return "token"
            case 3:
                ours = names_this_machine(rest.decode("utf-8", "surrogateescape"), own="127.0.0.1")
                return "ours" if ours else "another machine"
            case _:
                number = wanted_number(rest.decode("utf-8", "surrogateescape"), most=MOST)
                if not 1 <= number <= MOST:
                    raise BrokenPromiseError(f"took {number} as a number from 1 to {MOST}")
                return "number"
    except ValueError as error:
        return refused(error)


def _check(inputs: Inputs, *, labelled: bool) -> str:
    values = inputs.values
    if not 1 <= len(values) <= MAX_SAMPLES or values.dtype not in (np.float32, np.uint8) or values.ndim < 2:
        raise BrokenPromiseError(f"took {values.dtype} {values.shape}")
    if not np.isfinite(values).all() or (inputs.labels is None) == labelled:
        raise BrokenPromiseError(f"took values that are not finite, or labels {inputs.labels}")
    if inputs.labels is not None and len(inputs.labels) != len(values):
        raise BrokenPromiseError(f"took {len(inputs.labels)} labels for {len(values)} samples")
    return "taken"


def seeds() -> dict[str, bytes]:
    """Return what a program sends."""
    return {
        "features": b'\x00{"features": [[0.5, -1.25e-3, 7], [1, 2, 3]]}',
        "images": b'\x00{"images": [[[0, 255], [7, 1]]]}',
        "scaled": b'\x00{"images": [[[0.5, 1.0], [0.25, 0.125]]]}',
        "numbers": b'\x01{"features": [[1, 2], [3, 4]], "labels": [0, 7]}',
        "names": b'\x01{"images": [[[1]], [[2]]], "labels": ["cat", "\\u00e4"]}',
        "token": b"\x02Bearer 3q2-7wABcdef_hij",
        "host": b"\x03localhost:8080",
        "host-six": b"\x03[::1]:99",
        "last": b"\x0420",
    }


TOKENS = b"[", b"]", b"[[", b"{", b"}", b",", b'"', b"1e999", b"-0", b"NaN", b"9" * 30, b"\\ud800", b"true", b"null"
TARGET = Target(name="http", check=check, seeds=seeds, largest=8192, tokens=TOKENS)
