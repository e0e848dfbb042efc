"""The public face, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import bristle


def test_public_names() -> None:
    classes = {"Bristle", "Context", "Decision", "Evaluation", "Pace", "Peer", "Pool"}
    assert set(bristle.__all__) == classes | {"TOPOLOGIES", "attacks", "rules", "simulate"}
    assert {name for name in classes if isinstance(getattr(bristle, name), type)} == classes
    assert "ring" in bristle.TOPOLOGIES
    assert bristle.rules.names()
    assert bristle.attacks.names()
    assert callable(bristle.simulate)
    assert bristle.__version__


def test_import_loads_nothing_heavy() -> None:
    heavy = (
        "torch",
        "onnxruntime",
        "pydantic",
        "typer",
        "rich",
        "cryptography",
        "scipy",
        "matplotlib",
        "array_api_strict",
        "PIL",
        "aiohttp",
        "psutil",
        "sqlite3",
    )
    code = f"import sys, bristle; print([name for name in {heavy!r} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "[]"


def test_a_simulation_loads_no_network(tmp_path: Path) -> None:
    world = tmp_path / "world.toml"
    world.write_text("[world]\npeers = 2\niterations = 1\n[data]\ntest_samples = 10\n")
    code = f"import sys; from bristle.cli import main; sys.argv = ['bristle', 'simulate', {str(world)!r}]; main(); "
    ended = f"import atexit, sys; atexit.register(lambda: print('bristle.p2p.udp' in sys.modules)); {code}"
    loaded = subprocess.run([sys.executable, "-c", ended], capture_output=True, text=True, check=True).stdout
    assert loaded.split()[-1] == "False"
