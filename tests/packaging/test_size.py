"""The wheel stays small: its size in bytes."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LARGEST = 9_000_000
"""Bytes. Most of them are the bundled images and the bundled backbone."""


def test_the_wheel_is_smaller_than_9_mb(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as content:
        files = sorted(content.infolist(), key=lambda each: -each.compress_size)
    largest = [f"{each.filename}: {each.compress_size:,}" for each in files[:8]]
    assert wheel.stat().st_size < LARGEST, f"{wheel.stat().st_size:,} bytes; the largest files are {largest}"
    assert all(each.filename.startswith("bristle") for each in files)
