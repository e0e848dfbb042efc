"""Real processes of `bristle peer`, and what may befall them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from fault_peers import Fleet


@pytest.fixture
def fleet(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    """Peers that end with the test."""
    monkeypatch.setenv("BRISTLE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    peers = Fleet(tmp_path)
    yield peers
    peers.close()
