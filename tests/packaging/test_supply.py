"""What is installed with Bristle: pinned, hashed where one file serves all, audited, under licences looked at."""

from __future__ import annotations

import json
import re
import sysconfig
from collections.abc import Callable
from importlib.metadata import Distribution, distributions
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
HASHED = ("hashed-core.txt", "hashed-dev.txt")
Script = Callable[[str], ModuleType]


def test_hashes_are_of_what_is_pinned(script: Script) -> None:
    pinned = script("lock").pins((ROOT / "constraints.txt").read_text())
    seen: set[str] = set()
    for file in HASHED:
        text = (ROOT / "packaging" / file).read_text()
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        assert lines
        assert all(re.fullmatch(r"[a-z0-9-]+==\S+ --hash=sha256:[0-9a-f]{64}", line) for line in lines)
        found = script("lock").pins(text)
        assert found.items() <= pinned.items(), "run make lock"
        assert not seen & found.keys()
        seen |= found.keys()
    assert "torch" not in seen


def test_every_dependency_is_pinned(script: Script) -> None:
    lock = script("lock")
    pinned = lock.pins((ROOT / "constraints.txt").read_text())
    project = lock.tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = lock.closure(project["dependencies"] + project["optional-dependencies"]["plots"])
    assert {"numpy", "pyipv8", "aiohttp", "matplotlib"} <= needed
    # What CUDA builds of torch bring differs between systems.
    assert not {name for name in needed if name not in pinned and not name.startswith(("nvidia", "cuda"))}


def test_what_is_installed_has_a_licence_on_the_list(script: Script) -> None:
    # Without what is only compared with, which other tests may have put on the path.
    ours = {path for name, path in sysconfig.get_paths().items() if name in ("purelib", "platlib")}
    assert script("licences").refused(distributions(path=sorted(ours))) == []


@pytest.mark.parametrize(
    ("metadata", "refused"),
    [
        ("License-Expression: MIT", False),
        ("License-Expression: Apache-2.0 OR GPL-2.0", False),
        ("License-Expression: Apache-2.0 AND GPL-2.0", True),
        ("License-Expression: GPL-3.0 AND (MIT OR ISC)", True),
        ("License-Expression: Apache-2.0 WITH LLVM-exception AND MIT", False),
        ("Classifier: License :: OSI Approved :: BSD License", False),
        ("Classifier: License :: OSI Approved :: GNU Affero General Public License v3", True),
        ("License: Apache 2.0", False),
        ("License: All rights reserved", True),
        ("Summary: says nothing", True),
    ],
)
def test_licences_are_read_as_they_are_written(script: Script, tmp_path: Path, metadata: str, refused: bool) -> None:
    folder = tmp_path / "thing-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.4\nName: thing\nVersion: 1.0\n{metadata}\n")
    lines = script("licences").refused([Distribution.at(folder)])
    assert bool(lines) == refused
    assert all(line.startswith("thing 1.0: ") for line in lines)


def test_an_exception_holds_for_the_licence_that_was_looked_at(script: Script, tmp_path: Path) -> None:
    folder = tmp_path / "ipv8_rust_tunnels-9.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.4\nName: ipv8-rust-tunnels\nVersion: 9\nLicense: AGPL-3.0\n")
    assert script("licences").refused([Distribution.at(folder)]) == ["ipv8-rust-tunnels 9: AGPL-3.0"]


def test_the_audit_says_when_it_could_not_be_done(script: Script) -> None:
    verdict = script("audit").verdict
    flaw = {"id": "PYSEC-1", "fix_versions": ["2.0"]}
    bad = {"name": "thing", "version": "1.0", "vulns": [flaw]}
    good = {"name": "other", "version": "1.0", "vulns": []}
    unknown = {"name": "third", "skip_reason": "Dependency not found"}
    assert verdict(json.dumps({"dependencies": [good, unknown]}), "") == (
        0,
        "audit: 1 packages, no known vulnerability (1 not in the database)",
    )
    code, told = verdict(json.dumps({"dependencies": [good, bad]}), "")
    assert code == 1
    assert "thing 1.0: PYSEC-1, repaired in 2.0" in told
    for stdout, stderr in (
        ("", "ERROR: Could not connect to the service"),
        (json.dumps({"dependencies": [unknown]}), ""),
    ):
        code, told = verdict(stdout, stderr)
        assert code == 0
        assert "NOT DONE" in told
    assert verdict("", "ERROR: constraints.txt is wrong")[0] == 1


def test_no_file_names_an_index() -> None:
    for path in (ROOT / "constraints.txt", ROOT / "Makefile", *(ROOT / "packaging").glob("*.txt")):
        text = path.read_text()
        assert "://" not in text, path
        assert "index-url" not in text, path
