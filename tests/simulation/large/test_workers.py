"""One world in several processes: each holds a part, and together they are the same world, to the bit."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from bristle.simulation.large.shared_memory import open_shared, shared_zeros
from bristle.simulation.large.workers import Territory, Workers, backend_of

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="memory without a name is of Linux")
ON_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
PROGRAM = """
import os, sys, time
import numpy as np, torch
from bristle import attacks
from bristle.simulation import FeatureData, LargeWorld, Precision, RandomNeighbours, Scenario, Workers, on_device
from bristle.simulation.measurement import evaluated_peers, measure_large
rng = np.random.default_rng(0)
truth, labels = rng.standard_normal((6, 24)), np.repeat(np.arange(6), 250)
features = (truth[labels] + 0.8 * rng.standard_normal((len(labels), 24))).astype(np.float32)
data = on_device(FeatureData(features, labels, features[::5], labels[::5], tuple("abcdef")), sys.argv[2])
scenario = Scenario(
    peers=31, attackers=11, attack=attacks.create("label-flip", classes=6), attackers_in_graph=True,
    classes_per_peer=3, topology=RandomNeighbours(k=4), reuse=True, receivers_at_once=5,
    precision=Precision(shared="bfloat16"),
)
workers = Workers.join()
happens, select = sys.argv[3] if workers.rank == 1 else "nothing", torch.index_select
if workers.together and sys.argv[3] != "unable":
    torch.distributed.all_to_all_single = None  # No messages.
if happens == "unable":
    del os.memfd_create
if happens == "reads late":
    torch.index_select = lambda *some, **out: (time.sleep(0.1 * len(out)), select(*some, **out))[1]
world = LargeWorld(scenario, data, workers=workers)
for iteration in range(6):
    if happens == "writes late":
        time.sleep(0.1)
    if happens == "dies" and iteration == 3:
        os._exit(9)
    given = world.advance(weigh=iteration == 5)
measured = measure_large(world, given, peers=evaluated_peers(scenario, None))
held = world.territory.own_peers
np.savez(
    f"{sys.argv[1]}/{workers.size}-{workers.rank}.npz", heads=world.heads.cpu().numpy(), accuracy=measured.accuracy,
    weights=[measured.weight_benign, measured.weight_malicious],
)
workers.leave()
"""


def start(folder: Path, size: int, *, device: str, together: bool, happens: str) -> list[subprocess.Popen[str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running = []
    for rank in range(size):
        place = {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        # One device for all, so that there is no NCCL.
        environment = {**os.environ, **place, "GLOO_SOCKET_IFNAME": "lo", "CUDA_VISIBLE_DEVICES": "0"}
        if together:
            environment["LOCAL_WORLD_SIZE"] = str(size)
        command = [sys.executable, "-c", PROGRAM, str(folder), device, happens]
        running.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
    return running


def run(
    folder: Path, size: int, *, device: str = "cpu", together: bool = True, happens: str = "nothing"
) -> tuple[list[dict[str, np.ndarray]], list[str]]:
    """Return what each worker saved, and its warnings that heads go by gloo."""
    running = start(folder, size, device=device, together=together, happens=happens)
    said = [process.communicate(timeout=120)[1] for process in running]
    assert [process.returncode for process in running] == [0] * size, said
    saved = [dict(np.load(folder / f"{size}-{rank}.npz")) for rank in range(size)]
    return saved, [line for some in said for line in some.splitlines() if "go by gloo" in line]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    (saved,), _ = run(tmp_path_factory.mktemp("alone"), 1)
    return saved


def check_same(parts: list[dict[str, np.ndarray]], alone: dict[str, np.ndarray]) -> None:
    np.testing.assert_array_equal(np.concatenate([part["heads"] for part in parts]), alone["heads"])
    for part in parts:
        np.testing.assert_array_equal(part["accuracy"], alone["accuracy"])
        np.testing.assert_allclose(part["weights"], alone["weights"], atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("together", "size"), [pytest.param(True, 2, marks=ON_LINUX), pytest.param(True, 3, marks=ON_LINUX), (False, 2)]
)
def test_several_workers_are_one_world_to_the_bit(
    tmp_path: Path, alone: dict[str, np.ndarray], together: bool, size: int
) -> None:
    parts, warnings = run(tmp_path, size, together=together)
    check_same(parts, alone)
    assert not warnings


@pytest.mark.slow
@ON_CUDA
def test_two_workers_on_one_device_are_one_world_to_the_bit(tmp_path: Path) -> None:
    (one,), _ = run(tmp_path, 1, device="cuda")
    parts, warnings = run(tmp_path, 2, device="cuda")
    check_same(parts, one)
    assert not warnings


@pytest.mark.slow
@ON_LINUX
@pytest.mark.parametrize("happens", ["writes late", "reads late"])
def test_workers_wait_for_each_other(tmp_path: Path, alone: dict[str, np.ndarray], happens: str) -> None:
    parts, _ = run(tmp_path, 2, happens=happens)
    check_same(parts, alone)


@pytest.mark.slow
@ON_LINUX
def test_all_go_by_gloo_where_one_worker_cannot_share_its_memory(tmp_path: Path, alone: dict[str, np.ndarray]) -> None:
    parts, warnings = run(tmp_path, 2, happens="unable")
    check_same(parts, alone)
    assert len(warnings) == 1
    assert "memfd_create" in warnings[0]


@pytest.mark.slow
@ON_LINUX
def test_a_worker_that_dies_ends_the_others(tmp_path: Path) -> None:
    running = start(tmp_path, 2, device="cpu", together=True, happens="dies")
    said = [process.communicate(timeout=60)[1] for process in running]
    assert running[1].returncode == 9
    assert running[0].returncode not in {0, None}, said[0]


@ON_LINUX
def test_memory_that_is_opened_is_the_same_memory_and_has_no_name() -> None:
    like = torch.zeros(1, dtype=torch.bfloat16)
    with ExitStack() as until_open:
        pool, handle = shared_zeros((3, 4), like=like, until_open=until_open)
        other = open_shared(handle(), like=like).view(-1, 4)
        process, number, _, size = json.loads(handle())
        with pytest.raises(FileNotFoundError, match="not the memory of another worker"):
            open_shared(json.dumps([process, number, "another", size]), like=like)
    pool[1] = 2.0
    assert other.dtype == torch.bfloat16
    assert other.tolist() == [[0.0] * 4, [2.0] * 4, [0.0] * 4]
    with pytest.raises(FileNotFoundError):
        open_shared(handle(), like=like)


def test_a_handle_of_a_devices_memory_arrives_as_it_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    # What torch does with it needs a device; here is only what lies between.
    sent, opened = {}, []

    def share(storage: Any) -> tuple[Any, ...]:
        sent[b"\x01\xff"] = storage
        return (1, b"\x01\xff", storage.nbytes(), 512, b"/counters", 7, b"\x00event", True)

    def open_it(_: Any, device: int, handle: bytes, *rest: object) -> Any:
        opened.append((device, handle, *rest))
        return sent[handle]

    monkeypatch.setattr(torch.UntypedStorage, "_share_cuda_", share)
    monkeypatch.setattr(torch.UntypedStorage, "_new_shared_cuda", classmethod(open_it))
    zeros = torch.zeros(1)
    like = SimpleNamespace(
        device=SimpleNamespace(type="cuda", index=None), new_zeros=zeros.new_zeros, new_empty=zeros.new_empty
    )
    pool, handle = shared_zeros((3, 4), like=like, until_open=ExitStack())
    pool[2] = 1.0
    other = open_shared(handle(), like=like)
    assert opened == [(0, b"\x01\xff", 48, 512, b"/counters", 7, b"\x00event", True)]
    assert other.tolist() == [0.0] * 8 + [1.0] * 4


def test_devices_talk_directly_only_where_every_worker_has_its_own() -> None:
    assert backend_of(2, here=2) == backend_of(8, here=2) == "cpu:gloo,cuda:nccl"
    assert backend_of(0, here=2) == backend_of(1, here=2) == "gloo"


def test_every_node_has_one_holder_and_all_that_is_heard_is_there() -> None:
    rng = np.random.default_rng(0)
    index = np.stack([rng.choice(53, 5, replace=False) for _ in range(37)])
    parts = [Territory(Workers(rank, 3), 37, 16, index) for rank in range(3)]
    assert sum(part.nodes for part in parts) == 53
    assert sorted(peer for part in parts for peer in part.own_peers) == list(range(37))
    for part in parts:
        own = [*part.own_peers, *(37 + np.array(part.own_attackers))]
        pool = np.concatenate([own, *part.needed]).astype(np.int64)
        assert len(np.unique(pool)) == len(pool) == part.nodes + part.halo
        np.testing.assert_array_equal(pool[part.positions()], index[part.own_peers.start : part.own_peers.stop])
    whole = Territory(Workers(), 37, 16, index)
    assert whole.halo == 0
    np.testing.assert_array_equal(whole.positions(), index)
