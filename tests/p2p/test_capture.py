"""What somebody reads who records all packets between live peers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).parents[2]
_MAY = "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3)).bind(('lo', 0))"


def alone(*words: str) -> list[str]:
    """Return a command that runs another one in a network namespace of its own."""
    return ["unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *words]


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what was captured of peers that exchange statements and of peers that exchange heads."""
    for tool in ("unshare", "ip"):
        if shutil.which(tool) is None:
            pytest.skip(f"there is no `{tool}` here")
    tried = subprocess.run(alone(sys.executable, "-c", _MAY), capture_output=True, text=True, timeout=60, check=False)
    if tried.returncode:
        pytest.skip(f"packets cannot be captured in a network namespace here: {tried.stderr.strip()[-200:]}")
    words = [sys.executable, "-m", "tests.support.capture", str(tmp_path_factory.mktemp("captured"))]
    done = subprocess.run(alone(*words), cwd=_ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(("rule", "kind"), [("evidence", "statements"), ("bristle", "heads")])
def test_nothing_that_peers_say_can_be_read_on_the_way(captured: dict[str, Any], rule: str, kind: str) -> None:
    found = captured[rule]
    assert set(found["sources"]) == {str(port) for port in found["ports"]}, "every peer sends, and nobody else"
    assert min(found["sources"].values()) >= 3
    assert found[kind] >= 6, "each of three peers sent the two others something"
    # The search finds what is there: public keys in the handshakes, and statements before they were sealed.
    assert found["public"] > 0
    assert (found["sealed"] > 0) == (kind == "statements")
    assert found["readable"] == dict.fromkeys(found["readable"], 0)
    assert {"statements", "manifests", "rows", "features", "names"} == set(found["readable"])
