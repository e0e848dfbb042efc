from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bristle.attacks import View


@pytest.fixture
def make_view() -> Callable[..., View]:
    """Random heads around a common point, as after some training."""

    def make(
        *,
        batch: tuple[int, ...] = (),
        attackers: int = 3,
        models: int = 6,
        classes: int = 5,
        features: int = 4,
        seed: int = 0,
        dtype: Any = np.float64,
        spread: float = 0.1,
    ) -> View:
        rng = np.random.default_rng(seed)
        head = (classes, features)

        def heads(*shape: int) -> Any:
            return (start + 0.3 + spread * rng.normal(size=(*batch, *shape, *head))).astype(dtype)

        start = rng.normal(size=head)
        own, inbox, sent = heads(attackers), heads(models), heads(attackers)
        return View(
            own=own,
            iteration=2,
            total=10,
            inbox=inbox,
            inbox_mask=np.ones((*batch, models), dtype=bool),
            victim=(start + 0.3 + spread * rng.normal(size=(*batch, *head))).astype(dtype),
            update=(0.3 + 0.1 * rng.normal(size=(*batch, *head))).astype(dtype),
            testable=rng.random((*batch, classes)) < 0.5,
            sent=sent,
        )

    return make
