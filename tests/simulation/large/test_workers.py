"""One world in several processes: each holds a part, and together they are the same world, to the bit."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bristle.simulation.large.workers import Territory, Workers, backend_of

PROGRAM = """
import sys
import numpy as np, torch
from bristle import attacks
from bristle.simulation import FeatureData, LargeWorld, Precision, RandomNeighbours, Scenario, Workers, on_device
from bristle.simulation.measurement import evaluated_peers, measure_large
rng = np.random.default_rng(0)
truth, labels = rng.standard_normal((6, 24)), np.repeat(np.arange(6), 250)
features = (truth[labels] + 0.8 * rng.standard_normal((len(labels), 24))).astype(np.float32)
data = on_device(FeatureData(features, labels, features[::5], labels[::5], tuple("abcdef")), "cpu")
scenario = Scenario(
    peers=31, attackers=11, attack=attacks.create("label-flip", classes=6), attackers_in_graph=True,
    classes_per_peer=3, topology=RandomNeighbours(k=4), reuse=True, receivers_at_once=5,
    precision=Precision(shared="bfloat16"),
)
workers = Workers.join()
world = LargeWorld(scenario, data, workers=workers)
for iteration in range(6):
    given = world.advance(weigh=iteration == 5)
measured = measure_large(world, given, peers=evaluated_peers(scenario, None))
held = world.territory.own_peers
np.savez(
    f"{sys.argv[1]}/{workers.size}-{workers.rank}.npz", heads=world.heads.numpy(), accuracy=measured.accuracy,
    weights=[measured.weight_benign, measured.weight_malicious],
)
workers.leave()
"""


def run(folder: Path, size: int) -> list[dict[str, np.ndarray]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running = []
    for rank in range(size):
        place = {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        command = [sys.executable, "-c", PROGRAM, str(folder)]
        running.append(subprocess.Popen(command, env={**os.environ, **place, "GLOO_SOCKET_IFNAME": "lo"}))
    assert [process.wait(timeout=120) for process in running] == [0] * size
    return [dict(np.load(folder / f"{size}-{rank}.npz")) for rank in range(size)]


@pytest.mark.slow
def test_two_workers_are_one_world_to_the_bit(tmp_path: Path) -> None:
    (alone,), both = run(tmp_path, 1), run(tmp_path, 2)
    np.testing.assert_array_equal(np.concatenate([part["heads"] for part in both]), alone["heads"])
    for part in both:
        np.testing.assert_array_equal(part["accuracy"], alone["accuracy"])
        np.testing.assert_allclose(part["weights"], alone["weights"], atol=1e-9)


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
