"""The documentation builds without a warning, and needs nothing from outside; its pictures can be drawn anew."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FETCHED = re.compile(
    r"""(?:<script[^>]*\ssrc|<link[^>]*\shref|<img[^>]*\ssrc|@import|url\()\s*[=(]?\s*["']?https?://[^"'\s)]+"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return folder


@pytest.mark.slow
def test_builds_strictly(site: Path) -> None:
    assert "Start in five minutes" in (site / "index.html").read_text(encoding="utf-8")
    reference = (site / "api" / "rules.html").read_text(encoding="utf-8")
    assert all(name in reference for name in ("Prioritiser", "Integrator", "Evidence"))


@pytest.mark.slow
def test_nothing_comes_from_outside(site: Path) -> None:
    pages = [path for path in site.rglob("*") if path.suffix in (".html", ".css") and path.name != "report.html"]
    assert len(pages) > 20
    found = {path.name: FETCHED.findall(path.read_text(encoding="utf-8")) for path in pages}
    assert {name: what for name, what in found.items() if what} == {}


@pytest.mark.slow
def test_every_default_in_the_reference_is_its_own(site: Path) -> None:
    """Parameters that share a line of a docstring must not share the first one's default."""
    reference = (site / "api" / "rules.html").read_text(encoding="utf-8")
    plain = re.sub(r"<[^>]+>|\s+", " ", reference)
    assert re.search(r"\bbeta\s+\(\s*int\s*, default\s+30\s*\)", plain)


@pytest.mark.slow
def test_pictures_can_be_drawn(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(ROOT / "docs" / "make_figures.py"), "--quick", "--out", str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    drawn = {path.name for path in tmp_path.iterdir()}
    assert drawn == {path.name for path in (ROOT / "docs" / "pictures").glob("how-*.svg")}
    assert all(b"<svg" in (tmp_path / name).read_bytes() for name in drawn)
