"""The published grid: every attack is in it, with settings that it takes."""

from __future__ import annotations

import pytest

from bristle import attacks
from bristle.attacks.grids import GRIDS


def test_every_attack_is_tried() -> None:
    assert set(GRIDS) == set(attacks.names())
    assert all(GRIDS.values())


@pytest.mark.parametrize("name", GRIDS)
def test_settings_are_taken_and_differ(name: str) -> None:
    made = [attacks.create(name, **dict(options)) for options in GRIDS[name]]
    assert len(set(map(repr, made))) == len(made)
