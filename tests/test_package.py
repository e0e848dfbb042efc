"""The public face, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys

import bristle


def test_public_names() -> None:
    from bristle import Bristle, Context, Decision, Evaluation, Pace, Peer, Pool, attacks, rules, simulate  # noqa: PLC0415

    assert {Bristle, Context, Decision, Evaluation, Pace, Peer, Pool}
    assert bristle.TOPOLOGIES["ring"]
    assert rules.names()
    assert attacks.names()
    assert callable(simulate)
    assert bristle.__version__


def test_import_loads_nothing_heavy() -> None:
    heavy = (
        "torch",
        "onnxruntime",
        "pydantic",
        "typer",
        "rich",
        "ipv8",
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
