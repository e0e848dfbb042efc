"""The kernels, compiled for an H100 or H200 (sm_90) as a world of docs/scale.md launches them; no device is needed.

`test_kernels.py` runs this file in a process of its own, so that nothing else meets its cache of compiled kernels.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from bristle.learning import TrainingSettings
from bristle.rules import bristle_kernel
from bristle.rules.bristle import Integrator
from bristle.simulation.large.fused import Batches, Fused, Moments, WeightedSum

TYPES = {
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.int64: "*i64",
    torch.bool: "*i1",
}
# Shared memory of a block, in bytes; registers of a thread.
SHARED, REGISTERS = 227 << 10, 255
PEERS, MODELS, CLASSES, FEATURES, TESTS, BATCH = 2, 10, 10, 800, 40, 5

OPTIONS = ("num_warps", "num_stages", "enable_fp_fusion")

Resources = list[tuple[str, dict[str, int]]]


class _Compiled:
    """A kernel that is compiled, not launched."""

    def __init__(self, kernel: Any, found: Resources) -> None:
        self.kernel, self.found = kernel, found

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return self.compile

    def compile(self, *values: Any, **named: Any) -> None:
        options = {name: named.pop(name) for name in OPTIONS if name in named}
        given = {**dict(zip(self.kernel.arg_names, values, strict=False)), **named}
        signature, constants, aligned = {}, {}, {}
        for place, parameter in enumerate(self.kernel.params):
            value = given[parameter.name]
            if parameter.is_constexpr:
                signature[parameter.name], constants[place,] = "constexpr", value
            elif isinstance(value, torch.Tensor):
                signature[parameter.name], aligned[place,] = TYPES[value.dtype], [["tt.divisibility", 16]]
            else:
                signature[parameter.name] = "i32" if isinstance(value, int) else "fp32"
        source = ASTSource(fn=self.kernel, signature=signature, constexprs=constants, attrs=aligned)
        made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
        self.found.append((self.kernel.__name__, {"shared": made.metadata.shared, **_usage(made.asm["cubin"])}))


def _usage(cubin: bytes) -> dict[str, int]:
    """Return what cuobjdump says of a kernel: registers of a thread, and bytes of its stack, where spills go."""
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(cubin)
        said = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True)
    numbers = re.search(r"REG:(\d+) STACK:(\d+)", said.stdout + said.stderr)
    assert numbers is not None, said
    return {"registers": int(numbers[1]), "stack": int(numbers[2])}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_kernels_compile_for_sm_90_and_spill_nothing(dtype: Any) -> None:
    found: Resources = []
    fused = Fused()
    kernels: Any = fused._kernels
    names = [name for name in vars(kernels) if name.endswith("_kernel")]
    # What tensors hold is never read.
    fused._kernels = SimpleNamespace(**{name: _Compiled(getattr(kernels, name), found) for name in names})  # type: ignore[assignment]
    own, shape = torch.zeros(PEERS, CLASSES * FEATURES), (PEERS, CLASSES, FEATURES)
    pool, table = own.to(dtype), torch.zeros(9, FEATURES)
    index, rows = (torch.zeros(PEERS, size, dtype=torch.int64) for size in (MODELS + 1, TESTS))
    fused.outputs(pool, index, table.to(dtype), rows, CLASSES)
    fused.f1_scores(pool, index, table.to(dtype), rows, rows, CLASSES)
    asked = WeightedSum(own, pool, index[:, 1:], torch.zeros(PEERS, MODELS + 1, CLASSES))
    fused.combine(asked, CLASSES)
    labels, chosen, shares = fused.batches(torch.zeros(PEERS, 8), rows[:, :8].contiguous(), rows[:, :8], BATCH)
    moments = Moments(torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=dtype), root=dtype is torch.bfloat16)
    batches = Batches(table, chosen, labels, shares, torch.zeros(PEERS, CLASSES, dtype=torch.bool))
    pace = torch.zeros(PEERS), torch.zeros(PEERS)
    for head, level in ((asked, True), (asked, False), (own.view(shape), False)):
        fused.train(head, own.view(shape), moments, batches, pace, TrainingSettings(), level=level)
    assert {name for name, _ in found} == set(names)
    _check(found)


@pytest.mark.parametrize("score", ["split", "literal", "leave-out", "cubic"])
def test_weights_compile_for_sm_90_and_spill_nothing(score: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found: Resources = []
    monkeypatch.setattr(bristle_kernel, "weigh_kernel", _Compiled(bristle_kernel.weigh_kernel, found))
    f1, known = torch.zeros(PEERS, MODELS + 1, CLASSES), torch.ones(PEERS, CLASSES, dtype=torch.bool)
    bristle_kernel.weigh_on_device(Integrator(score=score), f1, known)
    _check(found)


def _check(found: Resources) -> None:
    for name, used in found:
        print(name, used)  # For `pytest -s`.
        assert used["shared"] <= SHARED, name
        assert used["registers"] <= REGISTERS, name
        assert used["stack"] <= 16, name  # Some versions set a few bytes aside and spill nothing.
