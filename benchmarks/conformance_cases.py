"""What hostile peers send, and how an answer to it is judged: the same for every system of `conformance.py`."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

CASES = ("NaN", "Inf", "1e38", "short", "empty", "wrong dtype", "pickle bomb", "replay", "forged sender")
NUMBERS = CASES[:6]
CLASSES, FEATURES = 10, 80
HONEST, HOSTILE, F = 7, 3, 4
NOT_APPLICABLE = "not applicable: no network"

Vector = np.ndarray[Any, Any]


def honest_heads() -> Vector:
    """Return seven heads that are alike, the first the receiver's own."""
    rng = np.random.default_rng(0)
    common = rng.normal(0, 0.1, (CLASSES, FEATURES))
    return (common + rng.normal(0, 0.01, (HONEST, CLASSES, FEATURES))).astype(np.float32)


def hostile_head(case: str) -> Vector:
    """Return what each of the three hostile peers sends."""
    match case:
        case "NaN":
            return np.full((CLASSES, FEATURES), np.nan, np.float32)
        case "Inf":
            return np.full((CLASSES, FEATURES), np.inf, np.float32)
        case "1e38":
            return np.full((CLASSES, FEATURES), 1e38, np.float32)
        case "short":
            return np.full((CLASSES, FEATURES - 1), 0.1, np.float32)
        case "empty":
            return np.zeros((0,), np.float32)
        case _:
            return np.full((CLASSES, FEATURES), 0.1 + 1j, np.complex64)


def judged(aggregate: Callable[[], Any]) -> str:
    """Return in a few words what came of letting a rule work on honest and hostile heads."""
    own = honest_heads()
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            found = aggregate()
    except Exception as error:  # What kind it is, is the observation.
        return f"raises {type(error).__name__}"
    if found is None:
        return "no answer (None)"
    answer = np.asarray(found)
    if answer.dtype.kind not in "fiu":
        return f"head of {answer.dtype}"
    if not np.isfinite(answer).all():
        return "head not finite"
    if answer.size != own[0].size:
        return "head of another shape"
    # Honest heads lie within 0.05 of each other; what is a thousand times that away was not made of them.
    if np.abs(answer.reshape(own[0].shape) - own.mean(axis=0)).max() > 50:
        return "head thrown off"
    if any("imaginary part" in str(warning.message) for warning in warned):
        return "taken, its imaginary part dropped"
    return "holds"


def summary(verdicts: Mapping[str, str]) -> str:
    """Return one cell for many rules: how many hold, and which do not."""
    by_verdict: dict[str, list[str]] = {}
    for name, verdict in verdicts.items():
        by_verdict.setdefault(verdict, []).append(name)
    count = len(by_verdict.pop("holds", []))
    told = [f"{verdict}: {', '.join(names)}" for verdict, names in by_verdict.items()]
    if len(told) == 1 and not count:
        return f"{next(iter(by_verdict))}, all {len(verdicts)} rules"
    return "; ".join([f"{count} of {len(verdicts)} rules hold", *told])


class _Bomb:
    """Makes an empty file when it is unpickled, and nothing worse."""

    def __init__(self, flag: Path) -> None:
        self._flag = flag

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        return open, (str(self._flag), "w")


def bomb(flag: Path) -> bytes:
    """Return a pickle that shows by a file whether somebody executed it."""
    return pickle.dumps(_Bomb(flag))
