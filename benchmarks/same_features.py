"""How far the features of one backbone differ, and what the rule evidence tolerates: the table of docs/faults.md.

    python benchmarks/same_features.py --out docs/faults.md

First the bundled backbone as other runtimes, precisions and settings compute it, against ONNX Runtime with all
optimisations; then ten peers of which half compute something else. Features of MNIST's test images; relative difference
is ‖a - b‖ over ‖a‖. The probe is what two peers compare when they meet (`bristle.backbones.probe`).
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import torch

from bristle.backbones import CallableBackbone, bundled
from bristle.backbones.base import Backbone
from bristle.backbones.onnx_file import _fields
from bristle.backbones.probe import probe
from bristle.data import load
from bristle.learning.metrics import Evaluation
from bristle.p2p.members.feature_check import difference
from bristle.rules import Reason
from bristle.rules.evidence import Evidence, Statement
from sections import replace_section

Images = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
GROUP = bytes(20)
GRAPH, INITIALIZER, NAME, RAW = 7, 5, 8, 9
"""Numbers of fields in ONNX files."""

PEERS, CLASSES, EACH = 10, 4, 25


def session(level: onnxruntime.GraphOptimizationLevel, threads: int = 1) -> Callable[[Floats], Floats]:
    """Return the bundled backbone in ONNX Runtime with an optimisation level and a number of threads."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level, options.intra_op_num_threads = level, threads
    run = onnxruntime.InferenceSession(bundled().read(), options, providers=["CPUExecutionProvider"])
    (name,) = (given.name for given in run.get_inputs())

    def compute(x: Floats) -> Floats:
        found: Floats = run.run([bundled().output], {name: np.clip(np.rint(x), 0, 255).astype(np.uint8)})[0]
        return found

    return compute


def weights() -> dict[str, Floats]:
    """Return the weights in the bundled file by name, without the onnx package."""
    graph = b"".join(content for number, _, content in _fields(bundled().read()) if number == GRAPH)
    found = {}
    for number, _, content in _fields(graph):
        if number == INITIALIZER:
            parts = {at: part for at, _, part in _fields(content)}
            found[parts[NAME].decode()] = np.frombuffer(parts[RAW], "<f4") if RAW in parts else np.zeros(0, np.float32)
    return found


def in_torch(dtype: torch.dtype, threads: int = 1, *, onednn: bool = True) -> Callable[[Floats], Floats]:
    """Return the bundled backbone in torch, with weights and arithmetic of a type."""
    found = {name: torch.from_numpy(values.copy()).to(dtype) for name, values in weights().items()}
    first, second = found["first.weight"].reshape(-1, 1, 5, 5), found["second.weight"].reshape(50, -1, 5, 5)

    def compute(x: Floats) -> Floats:
        torch.set_num_threads(threads)
        with torch.inference_mode(), torch.backends.mkldnn.flags(enabled=onednn):
            pixels = torch.from_numpy(x).to(dtype).reshape(-1, 1, 28, 28)
            pixels = (pixels - found["mean"].reshape(1, 1, 1, 1)) / found["deviation"].reshape(1, 1, 1, 1)
            for weight, bias in ((first, found["first.bias"]), (second, found["second.bias"])):
                pixels = torch.nn.functional.conv2d(pixels, weight, bias)
                pixels = torch.nn.functional.max_pool2d(torch.nn.functional.leaky_relu(pixels, 0.01), 2)
        return pixels.flatten(1).float().numpy()

    return compute


def one_by_one(compute: Callable[[Floats], Floats]) -> Callable[[Floats], Floats]:
    """Return the same with batches of one."""
    return lambda x: np.concatenate([compute(x[at : at + 1]) for at in range(len(x))])


def runtimes() -> dict[str, Callable[[Floats], Floats]]:
    """Return ways to compute the same features."""
    levels = onnxruntime.GraphOptimizationLevel
    usual = session(levels.ORT_ENABLE_ALL)
    half = in_torch(torch.float16)
    return {
        "ONNX Runtime, two threads": session(levels.ORT_ENABLE_ALL, 2),
        "ONNX Runtime, one image at a time": one_by_one(usual),
        "ONNX Runtime, extended optimisations": session(levels.ORT_ENABLE_EXTENDED),
        "ONNX Runtime, basic optimisations": session(levels.ORT_ENABLE_BASIC),
        "ONNX Runtime, no optimisations": session(levels.ORT_DISABLE_ALL),
        "torch, float32": in_torch(torch.float32),
        "torch, float32, two threads": in_torch(torch.float32, 2),
        "torch, float32, without oneDNN": in_torch(torch.float32, onednn=False),
        "torch, float64": in_torch(torch.float64),
        "torch, bfloat16": in_torch(torch.bfloat16),
        "torch, float16": half,
        "features rounded to float16": lambda x: usual(x).astype(np.float16).astype(np.float32),
    }


def mistakes(usual: Callable[[Floats], Floats]) -> dict[str, Callable[[Floats], Floats]]:
    """Return what peers may get wrong before or after a backbone whose digest is the same."""
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((800, 800)))[0].astype(np.float32)

    def noisy(size: float) -> Callable[[Floats], Floats]:
        """Return features of which a part is another linear map of them."""
        return lambda x: usual(x) + np.float32(size) * (usual(x) @ turn)

    return {
        **{f"{size:.0%} of another map": noisy(size) for size in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)},
        "pixels 0.1 brighter": lambda x: usual(np.minimum(x + np.float32(25.5), 255)),
        "pixels from 0 to 1, not 255": lambda x: usual(x / 255),
        "gamma 1.5": lambda x: usual((255 * (x / 255) ** 1.5).astype(np.float32)),
        "moved by one pixel": lambda x: usual(np.roll(x, 1, axis=2)),
        "moved by two pixels": lambda x: usual(np.roll(x, 2, axis=2)),
        "black and white exchanged": lambda x: usual(255 - x),
        "mirrored": lambda x: usual(np.ascontiguousarray(x[:, :, ::-1])),
        "rows and columns exchanged": lambda x: usual(np.ascontiguousarray(x.transpose(0, 2, 1))),
    }


def backbone_of(compute: Callable[[Floats], Floats]) -> Backbone:
    """Return it as the backbone that its peer takes it for."""
    return CallableBackbone(
        lambda x: compute(x.astype(np.float32)), name="same", version="1", features=800, input_shape=(28, 28),
        input_dtype="uint8",
    )  # fmt: skip


def relative(one: Floats, other: Floats) -> float:
    """Return ‖a - b‖ / ‖a‖ of features [n, D], over all."""
    return float(np.linalg.norm(one - other) / np.linalg.norm(one))


class Meeting:
    """Ten peers with 25 images of 4 of 10 digits each, of which every second computes features in another way."""

    def __init__(self, usual: Callable[[Floats], Floats], seeds: Sequence[int]) -> None:
        data = load("mnist")
        self.usual, self.images, self.labels = usual, data.x_train.astype(np.float32), data.y_train.astype(np.int64)
        self.test, self.test_labels = data.x_test[:2000].astype(np.float32), data.y_test[:2000].astype(np.int64)
        self.seeds = seeds

    def accuracy(self, other: Callable[[Floats], Floats]) -> tuple[float, float, float]:
        """Return the mean accuracy of the usual peers, of the others, and how many statements of others are refused."""
        rule = Evidence()
        found: tuple[list[float], list[float]] = ([], [])
        refused: list[bool] = []
        ways = (self.usual, other)
        tests = [way(self.test) for way in ways]
        for seed in self.seeds:
            rng = np.random.default_rng(seed)
            rows = {digit: rng.permutation(np.flatnonzero(self.labels == digit)) for digit in range(10)}
            held = []
            for peer in range(PEERS):
                mine = np.concatenate(
                    [rows[(peer + step) % 10][EACH * peer : EACH * (peer + 1)] for step in range(CLASSES)]
                )
                held.append(Evaluation(ways[peer % 2](self.images[mine]), self.labels[mine]))
            stated: list[Statement] = [rule.share(one, 10) for one in held]
            for peer, samples in enumerate(held):
                others = [one for place, one in enumerate(stated) if place != peer]
                decision = rule(stated[peer], others, evaluation=samples)
                whose = np.array([place % 2 for place in range(PEERS) if place != peer])
                refused += list(np.asarray(decision.reasons)[whose != peer % 2] == int(Reason.TOO_DIFFERENT))
                answer = decision.answers[0]
                scores = tests[peer % 2] @ answer.head.T + answer.bias
                found[peer % 2].append(float((scores.argmax(axis=1) == self.test_labels).mean()))
        return float(np.mean(found[0])), float(np.mean(found[1])), float(np.mean(refused))


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="300,301", help="comma-separated")
    parser.add_argument("--out", type=Path, help="put the tables into this document")
    given = parser.parse_args(words)
    usual = session(onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL)
    meeting = Meeting(usual, [int(seed) for seed in given.seeds.split(",")])
    features, own = usual(meeting.test), probe(backbone_of(usual), GROUP)
    assert own is not None
    same = meeting.accuracy(usual)[0]
    lines = [
        f"All ten peers compute the same: {same:.1%}.",
        "",
        "| half of the peers compute | features differ by | most, one image | probe | usual peers | others | refused |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, compute in {**runtimes(), **mistakes(usual)}.items():
        found, theirs = compute(meeting.test), probe(backbone_of(compute), GROUP)
        assert theirs is not None
        largest = (np.linalg.norm(found - features, axis=1) / np.linalg.norm(features, axis=1)).max()
        accuracies = meeting.accuracy(compute)
        lines.append(
            f"| {name} | {relative(features, found):.1e} | {largest:.1e} | {difference(own, theirs):.1e} | "
            f"{accuracies[0]:.1%} | {accuracies[1]:.1%} | {accuracies[2]:.0%} |"
        )
        print(lines[-1], flush=True)
    if given.out is not None:
        replace_section(given.out, "same_features", "\n".join(lines))


if __name__ == "__main__":
    main()
