"""Every path in CONTRIBUTING.md and docs/architecture.md exists, and what is said to be in it is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BASES = (ROOT, ROOT / "src" / "bristle", ROOT / ".github" / "workflows")
BUILT = {"site/"}
NAMED = re.compile(r"(?:`(?P<name>\w+)` in )?`(?P<path>[\w./-]*(?:/|\.(?:py|md|toml|yml|sh|txt|json)))`")


def named(page: str) -> Iterator[tuple[str, Path | None, str | None]]:
    """Yield every path of a page as it is written, the file or folder that it stands for, and a name said to be in it.

    A path is relative to the repository, to `src/bristle/`, or to a folder that the same line names before.
    """
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        folders: list[Path] = []
        for found in NAMED.finditer(line):
            path = next((base / found["path"] for base in (*BASES, *folders) if (base / found["path"]).exists()), None)
            if path is not None:
                folders.append(path if path.is_dir() else path.parent)
            if found["path"] not in BUILT:
                yield found["path"], path, found["name"]


@pytest.mark.parametrize(("page", "least"), [("CONTRIBUTING.md", 40), ("docs/architecture.md", 60)])
def test_every_path_exists(page: str, least: int) -> None:
    everything = list(named(page))
    assert len(everything) > least
    assert [written for written, path, _ in everything if path is None] == []


def test_what_is_said_to_be_in_a_file_is_there() -> None:
    said = [(path, name) for _, path, name in named("CONTRIBUTING.md") if path is not None and name is not None]
    assert len(said) > 5
    missing = [
        f"{path.relative_to(ROOT)} has no {name}"
        for path, name in said
        if not re.search(rf"^\s*((async )?(def|class) )?{name}\b", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert missing == []
