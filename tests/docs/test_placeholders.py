"""No page is published with a placeholder such as `@COST@` where a figure belongs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
PLACEHOLDER = re.compile(r"@[A-Z0-9]+@")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_placeholder_is_left(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    assert [f"line {n}: {line}" for n, line in enumerate(lines, 1) if PLACEHOLDER.search(line)] == []
