"""Triton kernels for CUDA devices that count and order many short rows; imported only on such devices."""

# mypy: disable-error-code="misc, no-untyped-def, no-untyped-call, untyped-decorator"

import triton
import triton.language as tl


@triton.jit
def count_kernel(
    values,
    out,
    rows,
    width: tl.constexpr,
    kinds: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    KINDS: tl.constexpr,
):
    """out[r, c] = how many of values[r, :] are c: one program for ROWS rows."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    place = tl.arange(0, WIDTH)
    there = (row < rows)[:, None] & (place < width)[None, :]
    found = tl.load(values + row[:, None] * width + place[None, :], mask=there, other=-1).to(tl.int32)
    kind = tl.arange(0, KINDS)
    counts = tl.zeros((ROWS, KINDS), dtype=tl.float32)
    for c in range(kinds):
        count = tl.sum((found == c).to(tl.float32), axis=1)
        counts = tl.where(kind[None, :] == c, count[:, None], counts)
    mask = (row < rows)[:, None] & (kind < kinds)[None, :]
    tl.store(out + row[:, None] * kinds + kind[None, :], counts.to(out.dtype.element_ty), mask=mask)


@triton.jit
def order_kernel(values, out, rows, width: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """out[r, :] = the stable ascending order of values[r, :]: one program for ROWS rows, by comparing all pairs."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    place = tl.arange(0, WIDTH)
    there = (row < rows)[:, None] & (place < width)[None, :]
    found = tl.load(values + row[:, None] * width + place[None, :], mask=there, other=0)
    one, other = found[:, :, None], found[:, None, :]
    first = (place[None, :] < place[:, None])[None, :, :]
    earlier = ((other < one) | ((other == one) & first)) & (place < width)[None, None, :]
    rank = tl.sum(earlier.to(tl.int32), axis=2)
    where = place[None, :] + tl.zeros((ROWS, WIDTH), dtype=tl.int64)
    tl.store(out + row[:, None] * width + rank, where, mask=there)
