"""One world split over several workers, by torch.distributed: whether it is the same, and how long it takes.

    python benchmarks/scale_workers.py --out docs/scale/rows.jsonl                                # one worker
    torchrun --nproc-per-node 2 benchmarks/scale_workers.py --out docs/scale/rows.jsonl           # two of them

Every worker holds a part of the peers, and copies of the heads that these hear from others. `--device cuda` gives each
worker of a machine a device of its own, and heads go from device to device by NCCL. Where there are fewer devices they
are shared, and workers read the heads from each other's memory, as they do on processors. `--gloo` sends heads as
between machines, to compare.
"""

from __future__ import annotations

import argparse
import hashlib
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from bristle.simulation import LargeWorld, Precision, Workers, on_device
from bristle.simulation.measurement import evaluated_peers, measure_large
from scale import NARROW, add_row, machine, mnist, peak_bytes, synchronised, world_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--narrow", action="store_true", help="keep moments and share heads in 16 bits")
    parser.add_argument("--gloo", action="store_true", help="send heads by gloo where workers could read them")
    parser.add_argument("--out", type=Path, help="add a row to this file")
    options = parser.parse_args()
    workers = Workers.join()
    if options.gloo:
        workers = replace(workers, together=False)
    device = options.device
    if device == "cuda" and torch.cuda.device_count() > 1:
        device = f"cuda:{int(os.environ.get('LOCAL_RANK', workers.rank)) % torch.cuda.device_count()}"
    data = on_device(mnist(), device)
    precision = NARROW if options.narrow else Precision()
    scenario = world_of(options.nodes, iterations=options.iterations, precision=precision)
    world = LargeWorld(scenario, data, workers=workers)
    spent = []
    given = None
    for iteration in range(1, options.iterations + 1):
        begin = synchronised(device)
        given = world.advance(weigh=iteration == options.iterations)
        spent.append(synchronised(device) - begin)
    assert given is not None
    exchange = world._exchange
    exchanges: list[float] = []
    while exchange is not None and len(exchanges) < 9:
        begin = synchronised(device)
        exchange()  # Again, of the same heads.
        exchanges.append(synchronised(device) - begin)
    chosen = evaluated_peers(scenario, 200)
    measured = measure_large(world, given, peers=chosen)
    heads = torch.zeros((len(chosen), *world.head_shape))
    held = world.territory.own_peers
    mine = np.flatnonzero((chosen >= held.start) & (chosen < held.stop))
    heads[mine] = world.heads[torch.as_tensor(chosen[mine] - held.start, device=world.heads.device)].cpu()
    heads = workers.add(heads)
    slowest = float(max_of(workers, np.median(spent[1:-1])))
    row = {
        "what": "workers",
        "workers": workers.size,
        "gloo": options.gloo,
        "nodes": options.nodes,
        "iterations": options.iterations,
        "shared": precision.shared,
        "seconds_an_iteration": slowest,
        "seconds_an_exchange": float(max_of(workers, np.median(exchanges))) if exchanges else 0.0,
        "nodes_a_worker": world.territory.nodes,
        "copies_a_worker": world.territory.halo,
        "bytes_received_an_iteration": world.territory.halo * world.plan.heads * world.plan.shared_width // 4,
        "planned_bytes": world.plan.total,
        "peak_bytes": peak_bytes(device),
        "accuracy": float(measured.accuracy.mean()),
        "heads": hashlib.sha256(heads.numpy().tobytes()).hexdigest()[:16],
        "threads": torch.get_num_threads(),
        **machine(device),
    }
    if workers.rank == 0:
        add_row(row, options.out)
    workers.leave()


def max_of(workers: Workers, value: float) -> float:
    everyone = torch.zeros(workers.size, dtype=torch.float64)
    everyone[workers.rank] = value
    return float(workers.add(everyone).max())


if __name__ == "__main__":
    main()
