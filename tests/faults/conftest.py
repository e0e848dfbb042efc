"""Real processes of `bristle peer`, and what may befall them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fault_nursery import Nursery
from tests.support.fault_peers import Fleet, environment, write_digits


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few digits, as somebody's own .npz file."""
    return write_digits(tmp_path_factory.mktemp("digits") / "digits.npz", each=20, test=200)


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    """What starts peers, with everything loaded."""
    one = Nursery(environment={**environment(), "BRISTLE_CACHE": str(tmp_path_factory.getbasetemp() / "cache")})
    yield one
    one.close()


@pytest.fixture
def fleet(tmp_path: Path, digits: Path, nursery: Nursery) -> Iterator[Fleet]:
    """Peers that end with the test."""
    peers = Fleet(tmp_path, digits, nursery=nursery)
    yield peers
    peers.close()
