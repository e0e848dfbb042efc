"""What is installed with Bristle: locked by hash, audited, under licences looked at."""

from __future__ import annotations

import json
import re
import sysconfig
import tomllib
from collections.abc import Callable
from importlib.metadata import Distribution, distributions
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
LOCKS = ("lock-core.txt", "lock-dev.txt")
Script = Callable[[str], ModuleType]


def ours() -> list[Distribution]:
    """Return what is installed here, without packages that other tests put on the path to compare with."""
    folders = {path for name, path in sysconfig.get_paths().items() if name in ("purelib", "platlib")}
    return list(distributions(path=sorted(folders)))


def pins(name: str) -> dict[str, str]:
    """Return name and version of every package that a lock file pins."""
    text = (ROOT / "packaging" / name).read_text()
    return dict(re.findall(r"^([a-z0-9-]+)==([^\s;]+)", text, re.MULTILINE))


def requirements(*extras: str) -> set[str]:
    """Return the names that the project itself asks for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + [each for extra in extras for each in project["optional-dependencies"][extra]]
    return {Requirement(each).name for each in wanted} - {"bristle"}


@pytest.mark.parametrize("name", LOCKS)
def test_every_line_of_a_lock_has_hashes(name: str) -> None:
    text = (ROOT / "packaging" / name).read_text().replace("\\\n", " ")
    lines = text.splitlines()
    assert lines
    assert all(
        re.fullmatch(r"[a-z0-9-]+==[^\s;]+(\s+;[^\\]+?)?(\s+--hash=sha256:[0-9a-f]{64})+", line) for line in lines
    )


def test_the_locks_hold_what_the_project_asks_for() -> None:
    core, dev = pins("lock-core.txt"), pins("lock-dev.txt")
    assert requirements("plots") <= core.keys()
    assert requirements("dev", "docs", "images", "plots", "ray", "tune") <= dev.keys()
    assert core.items() <= dev.items(), "make lock"


def test_what_is_installed_is_what_is_locked() -> None:
    dev = pins("lock-dev.txt")
    found = {re.sub(r"[-_.]+", "-", each.name).lower(): each.version for each in ours()}
    assert {name: found[name] for name in dev if name in found} == {name: dev[name] for name in dev if name in found}


def test_torch_stays_apart_with_its_exact_version() -> None:
    assert re.search(r"^torch==\d+\.\d+\.\d+$", (ROOT / "packaging" / "torch.txt").read_text(), re.MULTILINE)
    for name in LOCKS:
        assert not [each for each in pins(name) if each.startswith(("torch", "triton", "nvidia", "cuda"))], (
            "what CUDA builds of torch bring belongs into packaging/lock-excludes.txt"
        )


def test_what_is_installed_has_a_licence_on_the_list(script: Script) -> None:
    assert script("licences").refused(ours()) == []


@pytest.mark.parametrize(
    ("metadata", "refused"),
    [
        ("License-Expression: MIT", False),
        ("License-Expression: Apache-2.0 OR GPL-2.0", False),
        ("License-Expression: Apache-2.0 AND GPL-2.0", True),
        ("License-Expression: GPL-3.0 AND (MIT OR ISC)", True),
        ("License-Expression: LGPL-3.0-or-later", True),
        ("Classifier: License :: OSI Approved :: GNU Lesser General Public License v3 (LGPLv3)", True),
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


def test_the_audit_is_of_everything_that_is_pinned(script: Script) -> None:
    pinned = pins("lock-dev.txt") | pins("torch.txt")
    assert set(script("audit").pins()) == {f"{name}=={version}" for name, version in pinned.items()}


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
    code, message = verdict(json.dumps({"dependencies": [good, bad]}), "")
    assert code == 1
    assert "thing 1.0: PYSEC-1, repaired in 2.0" in message
    for stdout, stderr in (
        ("", "ERROR: Could not connect to the service"),
        (json.dumps({"dependencies": [unknown]}), ""),
    ):
        code, message = verdict(stdout, stderr)
        assert code == 0
        assert "NOT DONE" in message
    assert verdict("", "ERROR: lock-dev.txt is wrong")[0] == 1


def test_no_file_names_an_index() -> None:
    for path in (ROOT / "Makefile", *(ROOT / "packaging").glob("*.txt")):
        text = path.read_text()
        assert "://" not in text, path
        assert "index-url" not in text, path
