"""The container of a peer and the group of compose.yaml: their commands run in network namespaces, without a daemon."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from bristle.commands.status import get_status
from tests.support.fault_peers import wait_until
from tests.support.routers import Internet

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "packaging" / "Dockerfile").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load((ROOT / "packaging" / "compose.yaml").read_text(encoding="utf-8"))
BRISTLE = (sys.executable, "-c", "from bristle.cli import main; main()")


def entry_point() -> list[str]:
    """Return what the container runs; the words of a service's command follow."""
    lines = [line for line in DOCKERFILE.splitlines() if line.startswith("ENTRYPOINT ")]
    assert len(lines) == 1
    return list(json.loads(lines[0].removeprefix("ENTRYPOINT ")))


def test_all_that_is_copied_is_there_and_is_sent_to_the_builder() -> None:
    wanted = [word for line in DOCKERFILE.splitlines() if line.startswith("COPY ") for word in line.split()[1:-1]]
    sources = [word for word in wanted if not word.startswith(("--", "/"))]
    sent = (ROOT / "packaging" / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    assert "src" in sources
    assert {f"!{source.rstrip('/')}" for source in sources} == {line for line in sent if line.startswith("!")}
    assert all((ROOT / source).exists() for source in sources)


def test_services_differ_in_what_they_keep_and_share_the_rest() -> None:
    services = COMPOSE["services"]
    assert {name: service["volumes"] for name, service in services.items()} == {
        name: [f"{name}:/data"] for name in COMPOSE["volumes"]
    }
    for service in services.values():
        assert service["build"] == {"context": "..", "dockerfile": "packaging/Dockerfile"}
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])


@pytest.mark.slow
def test_the_group_learns(internet: Callable[..., Internet], tmp_path: Path) -> None:
    network = internet()
    services: dict[str, Any] = COMPOSE["services"]
    hosts = tmp_path / "hosts"
    hosts.write_text("".join(f"{network.public(name)} {name}\n" for name in services), encoding="utf-8")
    subprocess.run(network.inside(["mount", "--bind", str(hosts), "/etc/hosts"]), check=True)
    bristle, *options = entry_point()
    assert bristle == "bristle"
    for name, service in services.items():
        folder = tmp_path / name
        words = [word.replace("/data", str(folder)) for word in (*options, *shlex.split(service["command"]))]
        environment = network.environment() | {"BRISTLE_CACHE": str(folder / "cache")}
        command = network.inside([*BRISTLE, *words], name)
        network.services.append(subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL))
    for name in services:
        wait_until(partial(learns_from_two, tmp_path / name / "peer"), f"{name} learns from both others")


def learns_from_two(folder: Path) -> bool:
    """Return whether heads of two others are part of a peer's newest one."""
    with suppress(FileNotFoundError):
        decided = get_status(folder).decided
        return decided is not None and sum(one.share > 0 for one in decided.heard) == 2
    return False
