"""The weights of Bristle's integrator in one Triton kernel, for CUDA devices; imported only on such devices."""

# mypy: disable-error-code="misc, no-untyped-def, no-untyped-call, untyped-decorator"

from typing import Any

import triton
import triton.language as tl

from bristle._core import Array

# Models of one program.
MODELS = 16


@triton.jit
def _weight(score, w1, w2):
    """Return max(0, w1 / (1 + exp(-s / 100)) - w2)."""
    decay = tl.exp(-tl.abs(score) / 100)
    return tl.maximum(w1 * (tl.where(score >= 0, 1.0, decay) / (1 + decay)) - w2, 0.0)


@triton.jit
def weigh_kernel(
    f1,
    known,
    weights,
    certainties,
    eta,
    familiar1,
    familiar2,
    foreign1,
    foreign2,
    models,
    phi: tl.constexpr,
    classes: tl.constexpr,
    SCORE: tl.constexpr,
    BEST: tl.constexpr,
    MODELS: tl.constexpr,
    CLASSES: tl.constexpr,
):
    """`Integrator.weigh`: one program a receiver and MODELS of its models.

    What is compared with 0 is rounded as plain operations round it: quotients and roots are exact, and the launch
    forbids to fuse products and sums.
    """
    receiver = tl.program_id(0).to(tl.int64)
    model = tl.program_id(1) * MODELS + tl.arange(0, MODELS)
    number = tl.arange(0, CLASSES)
    real = number < classes
    there = (model < models)[:, None] & real[None, :]
    tested = tl.load(known + receiver * classes + number, mask=real, other=0) != 0
    own = tl.load(f1 + receiver * (models + 1) * classes + number, mask=real, other=0.0)[None, :]
    at = (receiver * (models + 1) + 1 + model[:, None]) * classes + number[None, :]
    theirs = tl.load(f1 + at, mask=there, other=0.0)
    candidate = tl.where(tested[None, :], theirs, -1.0)
    rank = tl.zeros((MODELS, CLASSES), dtype=tl.int32)
    for c in range(classes):
        rival = tl.max(tl.where((number == c)[None, :], candidate, -2.0), axis=1)[:, None]
        rank += ((rival > candidate) | ((rival == candidate) & (c < number)[None, :])).to(tl.int32)
    familiar = tl.sum(tested.to(tl.int32), axis=0)
    best = (rank < tl.minimum(tl.maximum(familiar - 1, 1), phi)) & tested[None, :]
    chosen = best.to(tl.float32)
    count = tl.maximum(tl.sum(chosen, axis=1), 1.0)
    mean = tl.div_rn(tl.sum(theirs * chosen, axis=1), count)
    deviation = (theirs - mean[:, None]) * chosen
    spread = tl.sqrt_rn(tl.div_rn(tl.sum(deviation * deviation, axis=1), count))
    certainty = tl.maximum(mean - spread, 0.0)
    worse = theirs < own
    difference = tl.abs(theirs - own) * eta
    cubes = difference * difference * difference
    scores = tl.where(worse, -cubes, cubes)
    strict = tl.where(worse, float("-inf"), scores)
    summed = best if BEST else tested[None, :] & there
    if SCORE == "leave-out":
        summed = summed & (theirs >= own)
    total = tl.sum(tl.where(summed, strict if SCORE == "literal" else scores, 0.0), axis=1)
    total = tl.where(tl.max(summed.to(tl.int32), axis=1) > 0, total, float("-inf"))
    mine = _weight(scores if SCORE == "cubic" else strict, familiar1, familiar2)
    weight = tl.where(tested[None, :], mine, _weight(total, foreign1, foreign2)[:, None]) * certainty[:, None]
    tl.store(weights + (receiver * models + model[:, None]) * classes + number[None, :], weight, mask=there)
    tl.store(certainties + receiver * models + model, certainty, mask=model < models)


def weigh_on_device(integrator: Any, f1: Array, known: Array) -> tuple[Array, Array]:
    """Return what `integrator.weigh` returns; `f1` [B, 1 + M, C] in 32 bits, `known` [B, C]."""
    batch, models, classes = f1.shape[0], f1.shape[1] - 1, f1.shape[2]
    weights, certainties = f1.new_empty((batch, models, classes)), f1.new_empty((batch, models))
    if batch and models:
        width = max(2, 1 << (classes - 1).bit_length())
        weigh_kernel[(batch, -(-models // MODELS))](
            f1.contiguous(), known.contiguous(), weights, certainties, float(integrator.eta),
            *map(float, (*integrator.familiar, *integrator.foreign)), models, integrator.phi, classes,
            SCORE=integrator.score, BEST=integrator.score in ("split", "cubic"), MODELS=MODELS, CLASSES=width,
            num_warps=max(1, min(8, width // 32)), enable_fp_fusion=False,
        )  # fmt: skip
    return weights, certainties
