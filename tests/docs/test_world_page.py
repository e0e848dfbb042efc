"""The page about world files names every key that there is."""

from __future__ import annotations

import json
import re
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


def stated() -> dict[str, str]:
    """Return the defaults that the page states, by table and key."""
    found: dict[str, str] = {}
    for part in re.split(r"^## ", PAGE, flags=re.M)[1:]:
        for table in re.findall(r"`\[(\w+)\]`", part.splitlines()[0]):
            for keys, values in re.findall(r"^\| (`[^|]+`) \| ([^|]+) \| ", part, re.M):
                names = [name.removeprefix(f"{table}.") for name in re.findall(r"`([\w.]+)`", keys)]
                texts = values.split(", ") if not values.startswith("[") else [values]
                texts = texts * len(names) if len(texts) == 1 else texts
                found |= {f"{table}.{name}": text for name, text in zip(names, texts, strict=False)}
            found |= {f"{table}.{name}": text for name, text in re.findall(r"`(\w+)` \(([\d.e-]+)\)", part)}
    return found


def test_defaults_on_the_page_are_those_of_the_code() -> None:
    words = {"none": None, "all": None, "for good": None, "true": True, "false": False}
    page, checked = stated(), 0
    for table, section in SimulationConfig():
        for key, value in section:
            if (text := page.get(f"{table}.{key}")) is not None:
                assert (words[text] if text in words else json.loads(text)) == value, key
                checked += 1
    assert checked > 35
