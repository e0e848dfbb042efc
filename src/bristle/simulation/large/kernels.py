"""Kernels for CUDA devices, in Triton: what would otherwise copy every head that anybody hears reads it where it lies.

Only imported where there is such a device. Every program works for one receiver, or for one row of its head; arrays are
contiguous. Positions are 64-bit, since a pool of a million heads has more numbers than 32 bits can count.
"""

# mypy: disable-error-code="misc, no-untyped-def, no-untyped-call, untyped-decorator"

import triton
import triton.language as tl


@triton.jit
def outputs_kernel(
    pool,
    index,
    table,
    rows,
    out,
    features: tl.constexpr,
    classes: tl.constexpr,
    heads: tl.constexpr,
    samples: tl.constexpr,
    SAMPLES: tl.constexpr,
    ROWS: tl.constexpr,
    DEPTH: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """out[b, t, (m, c)] = <table[rows[b, t]], pool[index[b, m], c]>: one program a receiver and ROWS rows (m, c)."""
    receiver = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    real_row = row < heads * classes
    head = tl.load(index + receiver * heads + row // classes, mask=real_row, other=0).to(tl.int64)
    head_at = (head * classes + row % classes) * features
    sample = tl.arange(0, SAMPLES)
    real_sample = sample < samples
    sample_at = tl.load(rows + receiver * samples + sample, mask=real_sample, other=0).to(tl.int64) * features
    total = tl.zeros((SAMPLES, ROWS), dtype=tl.float32)
    for start in range(0, features, DEPTH):
        column = start + tl.arange(0, DEPTH)
        real = column < features
        x = tl.load(table + sample_at[:, None] + column[None, :], mask=real_sample[:, None] & real[None, :], other=0.0)
        w = tl.load(pool + head_at[:, None] + column[None, :], mask=real_row[:, None] & real[None, :], other=0.0)
        total = tl.dot(x, tl.trans(w), total, input_precision=PRECISION)
    width = heads * classes
    at = out + (receiver * samples + sample[:, None]) * width + row[None, :]
    tl.store(at, total, mask=real_sample[:, None] & real_row[None, :])


@triton.jit
def best_kernel(
    outputs,
    out,
    rows,
    heads: tl.constexpr,
    samples: tl.constexpr,
    classes: tl.constexpr,
    ROWS: tl.constexpr,
    CLASSES: tl.constexpr,
):
    """out[b, m, t] = argmax over c of outputs[b, t, m, c], the lowest among equals: one program a few (b, t, m)."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    number = tl.arange(0, CLASSES)
    there = (row < rows)[:, None] & (number < classes)[None, :]
    values = tl.load(outputs + row[:, None] * classes + number[None, :], mask=there, other=float("-inf"))
    best = tl.argmax(values, axis=1, tie_break_left=True).to(tl.int64)
    head, sample, receiver = row % heads, (row // heads) % samples, row // (heads * samples)
    tl.store(out + (receiver * heads + head) * samples + sample, best, mask=row < rows)


@triton.jit
def combine_kernel(
    own,
    pool,
    index,
    weights,
    out,
    features: tl.constexpr,
    classes: tl.constexpr,
    weight_classes: tl.constexpr,
    MODELS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """out[b, c] = w[b, 0, c] own[b, c] + sum over m of w[b, 1 + m, c] pool[index[b, m], c]: one program a row (b, c).

    Rows of weight 0 are not read.
    """
    row = tl.program_id(0).to(tl.int64)
    receiver, number = row // classes, row % classes
    column = tl.arange(0, DEPTH)
    real = column < features
    weight_at = weights + receiver * (MODELS + 1) * weight_classes + number % weight_classes
    total = tl.load(weight_at) * tl.load(own + row * features + column, mask=real, other=0.0)
    for model in tl.static_range(MODELS):
        weight = tl.load(weight_at + (model + 1) * weight_classes)
        head = tl.load(index + receiver * MODELS + model).to(tl.int64)
        at = pool + (head * classes + number) * features + column
        weight = tl.zeros((DEPTH,), dtype=tl.float32) + weight
        total += weight * tl.load(at, mask=real & (weight != 0), other=0.0).to(tl.float32)
    tl.store(out + row * features + column, total, mask=real)


@triton.jit
def batch_kernel(
    draws,
    labels,
    index,
    batch_labels,
    batch_rows,
    shares,
    peers,
    samples: tl.constexpr,
    size: tl.constexpr,
    PEERS: tl.constexpr,
    SAMPLES: tl.constexpr,
):
    """Pick the mini-batches: of each peer's real samples the `size` with the smallest draws, in their order.

    What is written to is full of -1, 0 and 0 before.
    """
    peer = tl.program_id(0).to(tl.int64) * PEERS + tl.arange(0, PEERS)
    place = tl.arange(0, SAMPLES)
    there = (peer < peers)[:, None] & (place < samples)[None, :]
    at = peer[:, None] * samples + place[None, :]
    label = tl.load(labels + at, mask=there, other=-1)
    key = tl.where(label >= 0, tl.load(draws + at, mask=there, other=2.0), 2.0)
    one, other = key[:, :, None], key[:, None, :]
    first = (place[None, :] < place[:, None])[None, :, :]
    rank = tl.sum(((other < one) | ((other == one) & first)).to(tl.int32), axis=2)
    chosen = (label >= 0) & (rank < size)
    where = tl.sum((chosen[:, None, :] & first).to(tl.int32), axis=2)
    count = tl.sum(chosen.to(tl.float32), axis=1)
    target = peer[:, None] * size + where
    tl.store(batch_labels + target, label, mask=chosen)
    tl.store(batch_rows + target, tl.load(index + at, mask=chosen, other=0), mask=chosen)
    tl.store(shares + target, (1 / count)[:, None] + tl.zeros((PEERS, SAMPLES), dtype=tl.float32), mask=chosen)


@triton.jit
def train_kernel(
    head,
    new_head,
    first,
    second,
    table,
    rows,
    labels,
    shares,
    trained,
    rates,
    epsilons,
    l2,
    beta1,
    beta2,
    features: tl.constexpr,
    classes: tl.constexpr,
    samples: tl.constexpr,
    CLASSES: tl.constexpr,
    SAMPLES: tl.constexpr,
    DEPTH: tl.constexpr,
    LEVEL: tl.constexpr,
    ROOT: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """One step of softmax regression with Adam, in place: one program a peer.

    The samples stay in registers; the head goes by row by row, twice: for the outputs, and, from the cache, for the
    update. `LEVEL` subtracts from each row its own mean first; `ROOT` says that `second` holds roots.
    """
    peer = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, DEPTH)
    real = column < features
    sample = tl.arange(0, SAMPLES)
    share = tl.load(shares + peer * samples + sample, mask=sample < samples, other=0.0)
    used = share > 0
    label = tl.load(labels + peer * samples + sample, mask=used, other=-1).to(tl.int32)
    sample_at = tl.load(rows + peer * samples + sample, mask=used, other=0).to(tl.int64) * features
    x = tl.load(table + sample_at[:, None] + column[None, :], mask=used[:, None] & real[None, :], other=0.0)
    number = tl.arange(0, CLASSES)
    outputs = tl.full((CLASSES, SAMPLES), float("-inf"), dtype=tl.float32)
    for c in tl.range(0, classes, loop_unroll_factor=UNROLL):
        w = tl.load(head + (peer * classes + c) * features + column, mask=real, other=0.0)
        if LEVEL:
            w = tl.where(real, w - tl.sum(w, axis=0) / features, 0.0)
        output = tl.sum(x * w[None, :], axis=1)
        outputs = tl.where(number[:, None] == c, output[None, :], outputs)
    odds = tl.exp(outputs - tl.max(outputs, axis=0)[None, :])
    pull = odds / tl.sum(odds, axis=0)[None, :] - (number[:, None] == label[None, :]).to(tl.float32)
    pull = pull * share[None, :]
    rate, epsilon = tl.load(rates + peer), tl.load(epsilons + peer)
    for c in tl.range(0, classes, loop_unroll_factor=UNROLL):
        at = (peer * classes + c) * features + column
        changes = tl.load(trained + peer * classes + c) != 0
        w = tl.load(head + at, mask=real, other=0.0)
        if LEVEL:
            w = tl.where(real, w - tl.sum(w, axis=0) / features, 0.0)
        if changes:
            mine = tl.sum(tl.where(number[:, None] == c, pull, 0.0), axis=0)
            g = tl.sum(x * mine[:, None], axis=0) + l2 * w
            m = beta1 * tl.load(first + at, mask=real, other=0.0).to(tl.float32) + (1 - beta1) * g
            v = tl.load(second + at, mask=real, other=0.0).to(tl.float32)
            v = beta2 * (v * v if ROOT else v) + (1 - beta2) * g * g
            root = tl.sqrt(v)
            tl.store(first + at, m.to(first.dtype.element_ty), mask=real)
            tl.store(second + at, (root if ROOT else v).to(second.dtype.element_ty), mask=real)
            w = w - rate * m / (root + epsilon)
        tl.store(new_head + at, w, mask=real)
