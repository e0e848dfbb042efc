"""The scripts of `packaging/` are no package: `packaging` is a library's name."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "packaging"


@pytest.fixture
def script() -> Callable[[str], ModuleType]:
    """Return a script of that name as a module."""

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"packaging_{name}", FOLDER / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load
