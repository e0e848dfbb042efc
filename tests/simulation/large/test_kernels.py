"""The kernels of large worlds without a device: interpreted against plain operations, and compiled for one."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
@pytest.mark.parametrize(("file", "interpreted"), [("interpreted_kernels.py", "1"), ("compiled_kernels.py", "0")])
def test_kernels_without_a_device(file: str, interpreted: str, tmp_path: Path) -> None:
    # In a process of its own: triton looks for its interpreter when kernels are declared.
    settings = {"TRITON_INTERPRET": interpreted, "TRITON_CACHE_DIR": str(tmp_path), "TRITON_DEFAULT_FP_FUSION": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(HERE / file)]
    done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
