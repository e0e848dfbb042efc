"""Reading what comes in over HTTP: JSON of bounded size, and nothing but what was asked for."""

from __future__ import annotations

import ipaddress
import json
from dataclasses import dataclass
from itertools import chain
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

MAX_BODY = 16 << 20
MAX_SAMPLES = 1_000


@dataclass(frozen=True, eq=False)
class Inputs:
    """Images or features [n, ...], and labels where they were asked for."""

    values: npt.NDArray[Any]
    features: bool
    labels: list[int] | list[str] | None = None


def parse(body: bytes, *, labelled: bool) -> Inputs:
    """Read ``{"images": [...]}`` or ``{"features": [...]}``, with ``"labels": [...]`` beside it where `labelled`.

    Raises
    ------
    ValueError
        One line that says what is wrong.
    """
    wanted = '{"features": [[...]], "labels": [...]}' if labelled else '{"features": [[...]]}'
    try:
        given = json.loads(body, parse_constant=_refuse)
    except _NotANumberError:
        raise
    except (ValueError, RecursionError) as error:  # Not UTF-8, not JSON, or a number of thousands of digits.
        raise ValueError(f"the body is not JSON ({error}): send {wanted}") from error
    known = {"images", "features"} | ({"labels"} if labelled else set())
    if not isinstance(given, dict) or not set(given) <= known or len({"images", "features"} & set(given)) != 1:
        raise ValueError(f"send {wanted}, or images in place of features, and nothing else")
    features = "features" in given
    values = _values(given["features" if features else "images"], features)
    return Inputs(values, features, _labels(given.get("labels"), len(values)) if labelled else None)


def _values(given: Any, features: bool) -> npt.NDArray[Any]:
    what = "features" if features else "images"
    if not isinstance(given, list) or not 1 <= len(given) <= MAX_SAMPLES:
        raise ValueError(f"{what} must be a list of 1 to {MAX_SAMPLES} samples")
    # Before NumPy sees it: among a thousand samples, one long text would make it set aside as much for each.
    level: list[Any] = given
    while (kinds := set(map(type, level))) == {list}:
        level = list(chain.from_iterable(level))
    if not kinds <= {int, float}:
        raise ValueError(f"{what} must be lists of numbers, one for each sample, and all must have the same size")
    try:
        values = np.array(given)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{what} must all have the same size") from error
    if values.dtype.kind not in "iuf" or values.ndim < 2:
        raise ValueError(f"{what} must be lists of numbers, one for each sample")
    if features or values.dtype.kind == "f":
        with np.errstate(over="ignore"):
            values = values.astype(np.float32)
        if not np.isfinite(values).all():
            raise ValueError(f"{what} must be finite numbers that fit into 32 bits")
        return values
    if values.min(initial=0) < 0 or values.max(initial=0) > 255:
        raise ValueError("whole numbers in images must be from 0 to 255; send others as 0.5, with a decimal point")
    return values.astype(np.uint8)


def _labels(given: Any, count: int) -> list[int] | list[str]:
    if not isinstance(given, list) or len(given) != count:
        raise ValueError(f"labels must be a list of {count}, one for each sample")
    if not (all(type(one) is int for one in given) or all(isinstance(one, str) for one in given)):
        raise ValueError("labels must be class numbers, or all of them names")
    if any(isinstance(one, int) and not -(2**31) < one < 2**31 for one in given):
        raise ValueError("labels must be class numbers from 0")
    return given


class _NotANumberError(ValueError):
    """One of the three constants that are no JSON."""


def _refuse(constant: str) -> float:
    raise _NotANumberError(f"the body has {constant}, which is not a number: leave that sample out")


def given_token(authorization: str) -> bytes:
    """Return the token in an Authorization header, or nothing: `Bearer TOKEN`, of whatever bytes."""
    kind, _, token = authorization.partition(" ")
    return token.strip().encode("utf-8", "surrogatepass") if kind.lower() == "bearer" else b""


def names_this_machine(host: str, *, own: str) -> bool:
    """Tell whether a Host header is one that nobody can point elsewhere: a number, localhost or our own name."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if name in ("localhost", own):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def wanted_number(text: str, *, most: int) -> int:
    """Return the number in a query, from 1 to `most`.

    Raises
    ------
    ValueError
        One line that says what is wrong.
    """
    digits = text.lstrip("0") if text.isascii() and text.isdigit() else ""
    if not digits or len(digits) > len(str(most)) or int(digits) > most:
        raise ValueError(f"last={text[:50]!r}: give a number from 1 to {most}")
    return int(digits)
