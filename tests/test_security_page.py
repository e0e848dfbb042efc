"""Every test that the security page names is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from bristle.p2p import Limits
from bristle.p2p.contacts import BAN_SECONDS, MOST_BANS
from bristle.p2p.inbox import WAITING
from bristle.p2p.membership import MOST_GUESTS
from bristle.p2p.udp import POLL_DATAGRAMS, POLL_SECONDS

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))


def test_promises_name_tests() -> None:
    promises = [line for line in PAGE.splitlines() if line.startswith("| ") and "`tests/" in line]
    assert len(promises) >= 20
    # All that looks like a test is one that is looked for.
    assert PAGE.count("::test_") == len(re.findall(r"`tests/[\w/]+\.py::test_\w+`", PAGE))


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_is_there(file: str, name: str) -> None:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_the_numbers_are_those_of_the_code() -> None:
    limits = Limits()
    for said in (
        f"{limits.handshake_rate:.0f} a second (100 from 256",
        f"joins {limits.handshake_rate:.0f}, a host {limits.handshake_rate:.0f}",
        f"{limits.manifest_rate:.0f} manifests a second; {limits.useless_rate:.0f} useless messages",
        f"handshakes {30 * limits.handshake_rate:.0f}, joins {limits.handshake_rate:.0f} "
        f"({0.4 * limits.handshake_rate:.0f} while there is no room), "
        f"manifests {16 * limits.manifest_rate:.0f} a second",
        f"{POLL_DATAGRAMS} datagrams every {1000 * POLL_SECONDS:.0f} ms",
        f"{limits.memory >> 20} MiB of incoming bodies",
        f"{MOST_GUESTS} guests; {limits.contacts} addresses; {MOST_BANS} banned keys",
        f"{limits.sender_rate / 1e6:.0f} MB/s in",
        f"{limits.receive_rate / 1e6:.0f} MB/s in, half",
        f"{limits.send_rate / 1e6} MB/s out",
    ):
        assert said in PAGE, said
    assert (WAITING, BAN_SECONDS) == (2, 60.0)
