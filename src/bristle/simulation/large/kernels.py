"""Kernels for CUDA devices, in Triton: what would otherwise copy every head that anybody hears reads it where it lies.

Only imported where there is such a device. Every program works for one receiver, or for one row of its head; arrays are
contiguous. Positions are 64-bit, since a pool of a million heads has more numbers than 32 bits can count.
"""

# mypy: disable-error-code="misc, no-untyped-def, no-untyped-call, untyped-decorator"

import triton
import triton.language as tl


@triton.jit
def _outputs(
    pool,
    head_at,
    real_row,
    table,
    sample_at,
    real_sample,
    features: tl.constexpr,
    SAMPLES: tl.constexpr,
    ROWS: tl.constexpr,
    DEPTH: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Return the inner products [SAMPLES, ROWS] of samples of the table and rows of heads in the pool."""
    total = tl.zeros((SAMPLES, ROWS), dtype=tl.float32)
    for start in range(0, features, DEPTH):
        column = start + tl.arange(0, DEPTH)
        real = column < features
        x = tl.load(table + sample_at[:, None] + column[None, :], mask=real_sample[:, None] & real[None, :], other=0.0)
        w = tl.load(pool + head_at[:, None] + column[None, :], mask=real_row[:, None] & real[None, :], other=0.0)
        total = tl.dot(x, tl.trans(w), total, input_precision=PRECISION)
    return total


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
    total = _outputs(pool, head_at, real_row, table, sample_at, real_sample, features, SAMPLES, ROWS, DEPTH, PRECISION)
    width = heads * classes
    at = out + (receiver * samples + sample[:, None]) * width + row[None, :]
    tl.store(at, total, mask=real_sample[:, None] & real_row[None, :])


@triton.jit
def f1_kernel(
    pool,
    index,
    table,
    rows,
    labels,
    out,
    features: tl.constexpr,
    classes: tl.constexpr,
    heads: tl.constexpr,
    samples: tl.constexpr,
    HEADS: tl.constexpr,
    ROWS: tl.constexpr,
    SPACES: tl.constexpr,
    CLASSES: tl.constexpr,
    SAMPLES: tl.constexpr,
    DEPTH: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """out[b, m, c] = F1 of head index[b, m] in class c, on the samples rows[b]: one program a receiver and HEADS heads.

    Outputs and predictions stay in registers. Rows (m, c) are packed for the products, so that little of these is
    padding, and then spread to SPACES heads of CLASSES rows, so that the best class of each head is found along an
    axis; the lowest among equals.
    """
    receiver = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * HEADS
    row = tl.arange(0, ROWS)
    member = first + row // classes
    real_row = (row < HEADS * classes) & (member < heads)
    head = tl.load(index + receiver * heads + member, mask=real_row, other=0).to(tl.int64)
    head_at = (head * classes + row % classes) * features
    number = tl.arange(0, CLASSES)
    spread = tl.arange(0, SPACES * CLASSES)
    source = tl.minimum((spread // CLASSES) * classes + spread % CLASSES, ROWS - 1)
    predicted = tl.zeros((SPACES, CLASSES), dtype=tl.int32)
    hits = tl.zeros((SPACES, CLASSES), dtype=tl.int32)
    present = tl.zeros((CLASSES,), dtype=tl.int32)
    for start in range(0, samples, SAMPLES):
        sample = start + tl.arange(0, SAMPLES)
        at = receiver * samples + sample
        label = tl.load(labels + at, mask=sample < samples, other=-1).to(tl.int32)
        used = label >= 0
        sample_at = tl.load(rows + at, mask=used, other=0).to(tl.int64) * features
        total = _outputs(pool, head_at, real_row, table, sample_at, used, features, SAMPLES, ROWS, DEPTH, PRECISION)
        total = tl.gather(total, tl.broadcast_to(source[None, :], (SAMPLES, SPACES * CLASSES)), axis=1)
        total = tl.reshape(total, (SAMPLES, SPACES, CLASSES))
        total = tl.where((number < classes)[None, None, :], total, float("-inf"))
        best = tl.argmax(total, axis=2, tie_break_left=True)
        best = tl.where(used[:, None], best, -1)
        chosen = best[:, :, None] == number[None, None, :]
        right = chosen & (best == label[:, None])[:, :, None]
        predicted += tl.sum(chosen.to(tl.int32), axis=0)
        hits += tl.sum(right.to(tl.int32), axis=0)
        present += tl.sum((label[:, None] == number[None, :]).to(tl.int32), axis=0)
    counts = predicted + present[None, :]
    # Rounded as plain operations round: an approximate quotient could part heads that tie.
    f1 = tl.div_rn((2 * hits).to(tl.float32), tl.maximum(counts, 1).to(tl.float32))
    space = tl.arange(0, SPACES)
    real = (space < HEADS) & (first + space < heads)
    at = out + (receiver * heads + first + space[:, None]) * classes + number[None, :]
    tl.store(at, f1, mask=real[:, None] & (number < classes)[None, :])


@triton.jit
def _mixed(
    own,
    pool,
    index,
    weights,
    row,
    column,
    real,
    features: tl.constexpr,
    classes: tl.constexpr,
    weight_classes: tl.constexpr,
    MODELS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """Return w[b, 0, c] own[b, c] + sum over m of w[b, 1 + m, c] pool[index[b, m], c] for the row (b, c).

    Rows of weight 0 are not read.
    """
    receiver, number = row // classes, row % classes
    weight_at = weights + receiver * (MODELS + 1) * weight_classes + number % weight_classes
    total = tl.load(weight_at) * tl.load(own + row * features + column, mask=real, other=0.0)
    for model in tl.static_range(MODELS):
        weight = tl.load(weight_at + (model + 1) * weight_classes)
        head = tl.load(index + receiver * MODELS + model).to(tl.int64)
        at = pool + (head * classes + number) * features + column
        weight = tl.zeros((DEPTH,), dtype=tl.float32) + weight
        total += weight * tl.load(at, mask=real & (weight != 0), other=0.0).to(tl.float32)
    return total


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
    """out[b, c] = the weighted sum that `_mixed` describes: one program a row (b, c)."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, DEPTH)
    real = column < features
    total = _mixed(own, pool, index, weights, row, column, real, features, classes, weight_classes, MODELS, DEPTH)
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
    share = (1 / tl.maximum(count, 1))[:, None] + tl.zeros((PEERS, SAMPLES), dtype=tl.float32)
    tl.store(shares + target, share, mask=chosen)


@triton.jit
def train_kernel(
    head,
    pool,
    index,
    weights,
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
    weight_classes: tl.constexpr,
    MODELS: tl.constexpr,
    CLASSES: tl.constexpr,
    SAMPLES: tl.constexpr,
    DEPTH: tl.constexpr,
    MIX: tl.constexpr,
    LEVEL: tl.constexpr,
    KEEP: tl.constexpr,
    ROOT: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """One step of softmax regression with Adam, in place: one program a peer.

    It starts from `head`, or with `MIX` from the weighted sum of `combine_kernel`; `LEVEL` subtracts from each row its
    own mean. The samples stay in registers. Rows are read one at a time: first all of them, for the outputs, where
    `KEEP` stores them in `new_head`; then those that are trained again, from the cache, for the update. `ROOT` says
    that `second` holds roots.
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
        row = peer * classes + c
        if MIX:
            w = _mixed(head, pool, index, weights, row, column, real, features, classes, weight_classes, MODELS, DEPTH)
        else:
            w = tl.load(head + row * features + column, mask=real, other=0.0)
        if LEVEL:
            w = tl.where(real, w - tl.sum(w, axis=0) / features, 0.0)
        if KEEP:
            tl.store(new_head + row * features + column, w, mask=real)
        output = tl.sum(x * w[None, :], axis=1)
        outputs = tl.where(number[:, None] == c, output[None, :], outputs)
    odds = tl.exp(outputs - tl.max(outputs, axis=0)[None, :])
    pull = odds / tl.sum(odds, axis=0)[None, :] - (number[:, None] == label[None, :]).to(tl.float32)
    pull = pull * share[None, :]
    rate, epsilon = tl.load(rates + peer), tl.load(epsilons + peer)
    if KEEP:
        tl.debug_barrier()  # What other threads have stored is read from here on.
    for c in tl.range(0, classes, loop_unroll_factor=UNROLL):
        if tl.load(trained + peer * classes + c) != 0:
            at = (peer * classes + c) * features + column
            w = tl.load(new_head + at, mask=real, other=0.0)
            mine = tl.sum(tl.where(number[:, None] == c, pull, 0.0), axis=0)
            g = tl.sum(x * mine[:, None], axis=0) + l2 * w
            m = beta1 * tl.load(first + at, mask=real, other=0.0).to(tl.float32) + (1 - beta1) * g
            v = tl.load(second + at, mask=real, other=0.0).to(tl.float32)
            v = beta2 * (v * v if ROOT else v) + (1 - beta2) * g * g
            root = tl.sqrt(v)
            tl.store(first + at, m.to(first.dtype.element_ty), mask=real)
            tl.store(second + at, (root if ROOT else v).to(second.dtype.element_ty), mask=real)
            tl.store(new_head + at, w - rate * m / (root + epsilon), mask=real)
