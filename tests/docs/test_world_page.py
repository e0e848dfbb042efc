"""The page about world files names every key that there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from bristle.data import partitions
from bristle.simulation.build import TOPOLOGIES
from bristle.simulation.config import SimulationConfig

PAGE = (Path(__file__).parents[2] / "docs" / "world.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("table", SimulationConfig.model_fields)
def test_every_key_is_there(table: str) -> None:
    section = dict(SimulationConfig())[table]
    missing = [key for key in type(section).model_fields if f"`{key}`" not in PAGE and f"`{table}.{key}`" not in PAGE]
    assert not missing


@pytest.mark.parametrize("name", [*TOPOLOGIES, *partitions.names()])
def test_every_topology_and_partition_is_there(name: str) -> None:
    assert f"| `{name}` |" in PAGE
