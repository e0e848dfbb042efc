"""The public face, and what importing it costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import bristle

SOURCES = Path(bristle.__file__).parent


def test_public_names() -> None:
    classes = {"Bristle", "Context", "Decision", "Evaluation", "Head", "Pace", "Peer", "Pool"}
    assert set(bristle.__all__) == classes | {"TOPOLOGIES", "attacks", "load_head", "rules", "save_head", "simulate"}
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


def test_one_name_stands_for_one_class_and_no_folder_is_a_flat_drawer() -> None:
    """Public classes have names of their own, and where a folder has more than 20 modules there are folders in it."""
    where: dict[str, list[str]] = {}
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where.setdefault(node.name, []).append(str(path.relative_to(SOURCES)))
    assert {name: files for name, files in where.items() if len(files) > 1} == {}
    flat = [folder for folder in SOURCES.rglob("*") if folder.is_dir() and len(list(folder.glob("*.py"))) > 20]
    assert [str(folder) for folder in flat if not any(folder.glob("*/__init__.py"))] == []
