"""What a release consists of agrees with itself."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

import bristle

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_one_version_everywhere() -> None:
    version = tomllib.loads(read("pyproject.toml"))["project"]["version"]
    assert bristle.__version__ == version
    assert yaml.safe_load(read("CITATION.cff"))["version"] == version
    newest = next(line for line in read("CHANGELOG.md").splitlines() if line.startswith("## "))
    assert newest in (f"## {version}", "## Unreleased")


def test_one_home_everywhere() -> None:
    urls = tomllib.loads(read("pyproject.toml"))["project"]["urls"]
    home = urls["Homepage"]
    assert all(url.startswith(home) for url in urls.values())
    assert yaml.safe_load(read("CITATION.cff"))["repository-code"] == home
    for name in ("SECURITY.md", ".github/ISSUE_TEMPLATE/config.yml"):
        assert f"{home}/security/advisories/new" in read(name)


def test_python_versions_agree() -> None:
    project = tomllib.loads(read("pyproject.toml"))["project"]
    classified = {each.split()[-1] for each in project["classifiers"] if re.search(r"Python :: 3\.\d+$", each)}
    matrix = yaml.safe_load(read(".github/workflows/tests.yml"))["jobs"]["tests"]["strategy"]["matrix"]
    assert set(matrix["python"]) == classified
    assert len(matrix["system"]) == 3


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_of_others_are_pinned_and_get_no_more_rights_than_they_need(path: Path) -> None:
    text, workflow = path.read_text(encoding="utf-8"), yaml.safe_load(path.read_text(encoding="utf-8"))
    used = re.findall(r"uses: (.*)", text)
    assert used
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", each) for each in used)
    assert workflow["permissions"] == {"contents": "read"}
    more = {name: job["permissions"] for name, job in workflow["jobs"].items() if "permissions" in job}
    assert more in ({}, {"publish": {"id-token": "write"}})
    assert "secrets." not in text


def test_hooks_use_the_version_of_ruff_that_is_locked() -> None:
    locked = re.search(r"^ruff==\S+", read("packaging/lock-dev.txt"), re.MULTILINE)
    assert locked is not None
    hooks = yaml.safe_load(read(".pre-commit-config.yaml"))["repos"][0]["hooks"]
    assert {word for hook in hooks for word in hook["additional_dependencies"]} == {locked[0]}


def test_a_release_under_another_number_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", str(ROOT / "packaging" / "release.sh"), "v9.9.9"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert f"the version in pyproject.toml is {bristle.__version__}" in done.stderr
    assert len(done.stderr.splitlines()) == 1
