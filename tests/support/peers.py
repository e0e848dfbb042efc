"""Peers on loopback, with real sockets, on features of the bundled images."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from bristle import rules
from bristle.backbones.backbone import bundled
from bristle.backbones.base import Backbone
from bristle.backbones.features import extract
from bristle.data import load
from bristle.peer.pace import Pace
from bristle.peer.peer import Peer

DIGITS = tuple(str(digit) for digit in range(10))


class Digits:
    """A few hundred images of digits, with their features."""

    def __init__(self) -> None:
        data = load("mnist")
        self.backbone: Backbone = bundled(threads=1)
        chosen = np.concatenate([np.flatnonzero(data.y_train == digit)[:30] for digit in range(10)])
        self.images, self.labels = data.x_train[chosen], data.y_train[chosen].astype(np.int64)
        self.features = extract(self.backbone, self.images, cache=False)
        self.test = extract(self.backbone, data.x_test[:300], cache=False), data.y_test[:300].astype(np.int64)

    def of(self, digits: Iterable[int]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """Return features and labels of some digits."""
        mine = np.isin(self.labels, list(digits))
        return self.features[mine], self.labels[mine]


@pytest.fixture(scope="session")
def digits() -> Digits:
    return Digits()


@pytest.fixture
def make_peer(digits: Digits, tmp_path: Path) -> Callable[..., Peer]:
    def make(name: str, **options: Any) -> Peer:
        usual = {
            "application": "digits",
            "classes": DIGITS,
            "folder": tmp_path / name,
            "backbone": digits.backbone,
            "pace": Pace(interval=0.01, check_every=0.02),
            "test": digits.test,
            "rule": rules.create("bristle"),  # What most tests are about: peers that exchange heads.
        }
        return Peer(**{**usual, **options})

    return make
