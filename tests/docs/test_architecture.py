"""The walks in docs/architecture.md name files and functions that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "bristle"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
HOPS = sorted(set(re.findall(r"`([\w/]+\.py)`(?::\s+`(\w+)`)?", PAGE)))


def test_there_are_walks() -> None:
    assert sum(bool(name) for _, name in HOPS) > 30


@pytest.mark.parametrize(("file", "name"), [hop for hop in HOPS if not hop[0].startswith(("tests/", "benchmarks/"))])
def test_a_hop_exists(file: str, name: str) -> None:
    source = (SOURCES / file).read_text(encoding="utf-8")
    assert not name or re.search(rf"^\s*(async )?(def|class) {name}\b", source, re.MULTILINE), f"{file} has no {name}"


def test_every_package_is_listed() -> None:
    packages = {path.parent.name for path in SOURCES.glob("*/__init__.py")}
    assert packages == set(re.findall(r"^\| `(\w+)/` \|", PAGE, re.MULTILINE))
