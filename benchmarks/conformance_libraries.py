"""How the rules of ByzFL and ByzPy take hostile models, and ByzPy's server hostile messages.

`make peers` installs both beside the project, without their dependencies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

import conformance_cases as cases
import peers

torch.set_warn_always(True)  # once for each process would tell of the first rule alone

Rules = dict[str, Callable[[list[torch.Tensor]], Any]]


def _vectors(case: str) -> list[torch.Tensor]:
    heads = [*cases.honest_heads(), *[cases.hostile_head(case)] * cases.HOSTILE]
    return [torch.from_numpy(head.reshape(-1).copy()) for head in heads]


def _numbers(make: Callable[[], Rules]) -> dict[str, str]:
    """Let every rule work on every case that is a matter of numbers, each time a fresh one."""
    seen = {}
    for case in cases.NUMBERS:
        rules = make()
        verdicts = {}
        for name, rule in rules.items():
            verdicts[name] = cases.judged(partial(rule, _vectors(case)))
        seen[case] = cases.summary(verdicts)
    return seen


def byzfl(folder: Path) -> dict[str, str]:
    """ByzFL: a library of rules, given a list of tensors."""
    fl, _ = peers.load()

    def make() -> Rules:
        return {
            "Average": fl.Average(),
            "Median": fl.Median(),
            "TrMean": fl.TrMean(f=cases.F),
            "GeometricMedian": fl.GeometricMedian(),
            "Krum": fl.Krum(f=cases.F),
            "MultiKrum": fl.MultiKrum(f=cases.F),
            "CenteredClipping": fl.CenteredClipping(),
            "MDA": fl.MDA(f=cases.F),
            "MoNNA": fl.MoNNA(f=cases.F),
            "Meamed": fl.Meamed(f=cases.F),
            "CAF": fl.CAF(f=cases.F),
            "SMEA": fl.SMEA(f=cases.F),
        }

    return {**_numbers(make), **dict.fromkeys(cases.CASES[6:], cases.NOT_APPLICABLE)}


def byzpy(folder: Path) -> dict[str, str]:
    """ByzPy: its rules, and its `RemoteNodeServer` on loopback."""
    _, py = peers.load()
    from byzpy.aggregators.geometric_wise.minimum_diameter_average import MinimumDiameterAveraging  # noqa: PLC0415
    from byzpy.aggregators.norm_wise.caf import CAF  # noqa: PLC0415
    from byzpy.aggregators.norm_wise.comparative_gradient_elimination import (  # noqa: PLC0415
        ComparativeGradientElimination,
    )

    def make() -> Rules:
        return {
            "Median": py.median.CoordinateWiseMedian().aggregate,
            "TrimmedMean": py.trimmed_mean.CoordinateWiseTrimmedMean(f=cases.F).aggregate,
            "MeanOfMedians": py.mean_of_medians.MeanOfMedians(f=cases.F).aggregate,
            "Krum": py.krum.Krum(f=cases.F).aggregate,
            "MultiKrum": py.krum.MultiKrum(f=cases.F, q=cases.HONEST + cases.HOSTILE - cases.F).aggregate,
            "GeometricMedian": py.geometric_median.GeometricMedian().aggregate,
            "MoNNA": py.monna.MoNNA(f=cases.F).aggregate,
            "CenteredClipping": py.center_clipping.CenteredClipping(c_tau=1.0).aggregate,
            "MDA": MinimumDiameterAveraging(f=cases.F).aggregate,
            "CAF": CAF(f=cases.F).aggregate,
            "CGE": ComparativeGradientElimination(f=cases.F).aggregate,
        }

    return {**_numbers(make), **asyncio.run(_byzpy_server(folder / "executed"))}


async def _byzpy_server(flag: Path) -> dict[str, str]:
    import cloudpickle  # noqa: PLC0415
    from byzpy.engine.node.remote_server import RemoteNodeServer  # noqa: PLC0415

    heard: list[str] = []

    class Node:
        """Writes down from whom its server says that messages are."""

        async def handle_incoming_message(self, *, from_node_id: str, message_type: str, payload: object) -> None:
            heard.append(from_node_id)

    server = RemoteNodeServer("127.0.0.1", 0)
    server._nodes["victim"] = Node()
    serving = asyncio.create_task(server.serve())
    while server._server is None or not server._server.sockets:
        await asyncio.sleep(0.01)
    port = server._server.sockets[0].getsockname()[1]

    async def send(*datas: bytes) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        for data in datas:
            writer.write(len(data).to_bytes(4, "big") + data)
        await writer.drain()
        await asyncio.sleep(0.5)
        writer.close()

    message = cloudpickle.dumps({"from": "alice", "to": "victim", "type": "model", "payload": [1.0]})
    await send(cases.bomb(flag))
    executed = flag.exists()
    await send(message, message)
    twice = heard.count("alice")
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    return {
        "pickle bomb": "executes the pickle" if executed else "not executed",
        "replay": f"handed to the node {twice} times",
        "forged sender": "believed: handed on as from alice, whoever sent it" if twice else "not handed on",
    }
