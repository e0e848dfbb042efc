"""A folder of somebody's own, with a world file, data and backbone; and somebody who presses Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

BLOBS = """
import numpy as np

from bristle.data import Dataset
from bristle.backbones.backbone import CallableBackbone


def blobs():
    rng = np.random.default_rng(0)
    middle = rng.standard_normal((4, {features}))
    y = np.arange({samples}) % 4
    x = (128 + {apart} * middle[y] + {noise} * rng.standard_normal(({samples}, {features}))).clip(0, 255)
    x = x.astype(np.uint8)
    return Dataset(x[:{train}], y[:{train}], x[{train}:], y[{train}:], name="blobs")


def less(x):
    return np.asarray(x, np.float32) - 0.5


same = CallableBackbone(less, name="same", version="1", features={features}, input_shape=({features},))
"""


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Make a folder and go there: own_folder(world, samples=..., train=..., features=..., apart=..., noise=...).

    The world finds four classes as "blobs:blobs", and what makes features of them as "blobs:same".
    """

    def make(world: str, **sizes: int) -> Path:
        (tmp_path / "blobs.py").write_text(BLOBS.format(**sizes))
        (tmp_path / "world.toml").write_text(world)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("BRISTLE_CACHE", str(tmp_path / "cache"))
        monkeypatch.delitem(sys.modules, "blobs", raising=False)
        return tmp_path

    return make


@pytest.fixture
def interrupted() -> Callable[..., str]:
    """Press Ctrl-C in a command when something is there: interrupted(words, lambda: file.exists()); return its stderr.

    It has to end with the exit code for that, and without a traceback.
    """

    def press(words: Sequence[str], there: Callable[[], bool]) -> str:
        running = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            deadline = time.monotonic() + 180
            while not there() and time.monotonic() < deadline:
                time.sleep(0.01)
            os.kill(running.pid, signal.SIGINT)
            try:
                _, errors = running.communicate(timeout=20)
            except subprocess.TimeoutExpired:  # Python drops what is raised while it collects garbage: press again.
                os.kill(running.pid, signal.SIGINT)
                _, errors = running.communicate(timeout=160)
        finally:
            if running.poll() is None:
                running.kill()
        assert running.returncode == 130, errors
        assert "Traceback" not in errors
        return errors

    return press
