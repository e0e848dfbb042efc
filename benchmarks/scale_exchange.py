"""One exchange of `evidence` among very many peers: time, memory and accuracy, beside an ordinary world.

    python benchmarks/scale_exchange.py --device cpu  --out docs/scale/rows.jsonl     # 1,000 and 10,000 peers
    python benchmarks/scale_exchange.py --device cuda --out docs/scale/rows.jsonl --peers 1000000 --narrow

Every peer states what it holds, hears 10 random others once, and decides: vetting, robust means, scatter, head. 30 % of
the nodes flip labels, unless `--flippers` says otherwise. Each size runs in a process of its own. The ordinary world
(NumPy, one peer after another) does the same up to `--ordinary` peers.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from bristle import rules
from bristle.simulation import Precision, Scenario, World
from bristle.simulation.large.device import on_device
from bristle.simulation.large.exchange import LargeExchange
from bristle.simulation.measurement import evaluated_peers
from scale import NARROW, Row, add_row, machine, mnist, peak_bytes, synchronised, world_of


def scenario_of(peers: int, flippers: float, precision: Precision) -> Scenario:
    """Return a world of so many benign peers, and a share of flippers among all nodes."""
    scenario = world_of(30, rule=rules.create("evidence"), precision=precision)
    return replace(scenario, peers=peers, attackers=round(flippers / (1 - flippers) * peers))


def exchange(peers: int, device: str, narrow: bool, flippers: float) -> Row:
    """Run one exchange on a device."""
    data = on_device(mnist(), device)
    scenario = scenario_of(peers, flippers, NARROW if narrow else Precision())
    began = synchronised(device)
    world = LargeExchange(scenario, data)
    made = synchronised(device)
    found = world.decide()
    decided = synchronised(device)
    chosen = torch.as_tensor(evaluated_peers(scenario, min(1000, scenario.peers)), device=device)
    accuracy = world.accuracy(found, chosen)
    return {
        "way": "large", "peers": scenario.peers, "attackers": scenario.attackers, "narrow": narrow,
        "seconds_to_state": made - began, "seconds": decided - made, "one_by_one": int(found.unusual.sum()),
        "planned_bytes": world.plan.total, "peak_bytes": peak_bytes(device), "threads": torch.get_num_threads(),
        "accuracy": float(accuracy.mean()), "worst": float(accuracy.min()),
    }  # fmt: skip


def ordinary(peers: int, flippers: float) -> Row:
    """Run the first exchange of an ordinary world."""
    data = mnist()
    scenario = scenario_of(peers, flippers, Precision())
    world = World(scenario, data)
    assert world.exchange is not None
    began = time.perf_counter()
    _ = world.exchange.statements, world.exchange.attackers
    made = time.perf_counter()
    world.advance()
    decided = time.perf_counter()
    chosen = evaluated_peers(scenario, min(1000, scenario.peers))
    heads, features = world.scoring
    hits = [(features @ heads[peer].T).argmax(axis=1) == data.test_labels for peer in chosen]
    accuracy = np.mean(hits, axis=1)
    return {
        "way": "ordinary", "peers": scenario.peers, "attackers": scenario.attackers, "narrow": False,
        "seconds_to_state": made - began, "seconds": decided - made, "peak_bytes": peak_bytes("cpu"),
        "threads": os.environ.get("OMP_NUM_THREADS", "all"), "accuracy": float(accuracy.mean()),
        "worst": float(accuracy.min()),
    }  # fmt: skip


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--peers", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--ordinary", type=int, default=1_000, help="the largest ordinary world")
    parser.add_argument("--flippers", type=float, default=0.3)
    parser.add_argument("--narrow", action="store_true", help="keep statements in the 16 bits that travel")
    parser.add_argument("--out", type=Path, help="add rows to this file")
    options = parser.parse_args()
    for peers in options.peers:
        runs = [(exchange, (peers, options.device, options.narrow, options.flippers))]
        runs += [(ordinary, (peers, options.flippers))] if peers <= options.ordinary else []  # type: ignore[list-item]
        for run, given in runs:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                row = pool.apply(run, given)
            add_row({"what": "exchange", **row, **machine(options.device)}, options.out)


if __name__ == "__main__":
    main()
