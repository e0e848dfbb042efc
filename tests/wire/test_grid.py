from __future__ import annotations

import tracemalloc
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from bristle.wire import Refusal
from bristle.wire.grid import HIGHEST, GridHead, decode_grid, encode_grid, largest_grid_body, on_grid

Shape = tuple[int, int]
SHAPE = (3, 5)


def deflated(raw: bytes) -> bytes:
    deflater = zlib.compressobj(wbits=-15)
    return deflater.compress(raw) + deflater.flush()


def shape_of(head: NDArray[Any]) -> Shape:
    return head.shape[0], head.shape[1]


def same(first: GridHead | Refusal, second: GridHead) -> bool:
    assert isinstance(first, GridHead)
    np.testing.assert_array_equal(first.exponents, second.exponents)
    np.testing.assert_array_equal(first.steps, second.steps)
    return first.content() == second.content()


shapes = arrays.array_shapes(min_dims=2, max_dims=2, max_side=12)
numbers = st.one_of(*(st.floats(-(2.0**power), 2.0**power, width=32) for power in (1, 99, -110)))
sequences = st.tuples(st.integers(1, 4), shapes).flatmap(
    lambda drawn: arrays.arrays(np.float32, (drawn[0], *drawn[1]), elements=numbers)
)


@given(sequences)
def test_differences_lead_to_the_same_public_head_whatever_they_start_from(heads: NDArray[np.float32]) -> None:
    public: list[GridHead | None] = [None]
    for head in heads:
        public.append(on_grid(head, public[-1]))
    newest = public[-1]
    assert newest is not None
    for base in public[:-1]:
        body = encode_grid(newest, base)
        assert len(body) <= largest_grid_body(shape_of(newest.steps))
        assert same(decode_grid(body, shape=shape_of(newest.steps), base=base), newest)


@given(sequences)
def test_the_public_head_is_close_to_the_exact_one(heads: NDArray[np.float32]) -> None:
    previous = None
    for head in heads:
        previous = on_grid(head, previous)
        values, exact = previous.values(), head.astype(np.float64)
        assert values.dtype == np.float32
        size = np.sqrt(np.mean(exact**2, axis=1))
        # A step is at most a twentieth of the size, rounded to a power of two; a single large number has 16 bits.
        step = np.maximum(np.sqrt(2) * size / 20, np.abs(exact).max(axis=1) * 2 / 32_767)
        assert (np.abs(values - exact) <= (0.5001 * step + 2.0**-120)[:, None]).all()


def test_the_error_shrinks_as_the_head_comes_to_rest() -> None:
    rng = np.random.default_rng(0)
    goal, head = rng.normal(0, 1, (10, 200)), np.zeros((10, 200))
    public: GridHead | None = None
    errors, sizes = [], []
    for _ in range(60):
        head = head + 0.2 * (goal - head)
        before, public = public, on_grid(head, public)
        errors.append(np.linalg.norm(public.values() - head) / np.linalg.norm(head))
        sizes.append(len(encode_grid(public, before)))
    assert public is not None
    assert max(errors) < 0.03
    assert errors[-1] < 1e-4
    assert max(sizes[20:]) < 2000 * 3 / 8  # Three bits a number.
    resting = on_grid(public.values(), public)
    assert same(resting, public)
    assert len(encode_grid(resting, public)) < 2000 * 1.2 / 8


def test_what_is_lost_in_one_message_is_made_up_in_the_next() -> None:
    rng = np.random.default_rng(1)
    head = rng.normal(0, 1, (2, 400))
    public, mean = None, np.zeros_like(head)
    for time in range(1, 30):
        public = on_grid(head, public)
        mean += (public.values() - mean) / time
    assert np.abs(mean - head).max() < np.abs(on_grid(head).values() - head).max() / 4


def test_the_page_is_enough_to_decode() -> None:
    """Decode as docs/wire-format.md says, number by number."""
    rng = np.random.default_rng(2)
    first = on_grid(rng.normal(0, 1, SHAPE))
    second = on_grid(first.values() * [[1.0], [4.0], [0.2]] + rng.normal(0, 0.1, SHAPE), first)
    assert len(set((second.exponents - first.exponents).tolist())) > 1
    for new, base in ((first, None), (second, first), (second, None)):
        raw = zlib.decompress(encode_grid(new, base), wbits=-15)
        digits, rows, features = raw[0], *SHAPE
        exponents = [byte - 128 for byte in raw[1 : 1 + rows]]
        at, found = 1 + rows, list[int]()
        while len(found) < rows * features:
            found += [raw[at] - 127] if digits == 1 else [raw[at] // 15 - 7, raw[at] % 15 - 7]
            at += 1
        found = found[: rows * features]
        outer = [place for place, digit in enumerate(found) if abs(digit) == (127 if digits == 1 else 7)]
        assert len(raw) == at + 2 * len(outer)
        for number, place in enumerate(outer):
            more = raw[at + number] + 256 * raw[at + len(outer) + number]
            found[place] += more if found[place] > 0 else -more
        for place, difference in enumerate(found):
            row, column = divmod(place, features)
            foreseen = 0
            if base is not None:
                coarser = exponents[row] - int(base.exponents[row])
                foreseen = int(base.steps[row, column])
                foreseen = (foreseen + (1 << coarser >> 1)) >> coarser if coarser > 0 else foreseen << -coarser
            assert int(new.steps[row, column]) == foreseen + difference
            assert new.values()[row, column] == int(new.steps[row, column]) * 2.0 ** exponents[row]


@pytest.mark.parametrize("far", [2.0**40, 2.0**-40])
def test_grids_too_far_apart_to_foresee_anything(far: float) -> None:
    head = np.random.default_rng(3).normal(0, 1, SHAPE)
    first, second = on_grid(head), on_grid(far * head)
    assert same(decode_grid(encode_grid(second, first), shape=SHAPE, base=first), second)


def test_a_number_much_larger_than_the_others_fits() -> None:
    head = np.full((2, 3000), 1e-6)
    head[0, 7] = 1e6
    public = on_grid(head)
    np.testing.assert_allclose(public.values()[0, 7], 1e6, rtol=1e-3)
    np.testing.assert_allclose(public.values()[1], head[1], rtol=0.05)
    assert same(decode_grid(encode_grid(public, None), shape=(2, 3000), base=None), public)


@pytest.mark.parametrize(
    ("head", "why"),
    [
        (np.array([[np.nan, 1.0]]), "not finite"),
        (np.array([[-np.inf, 1.0]]), "not finite"),
        (np.array([[2.0**HIGHEST, 1.0]]), "beyond 2"),
    ],
)
def test_heads_without_a_grid(head: NDArray[Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        on_grid(head)


def a_base() -> GridHead:
    return on_grid(np.random.default_rng(4).normal(0, 1, SHAPE))


@given(st.binary(max_size=120), st.booleans(), st.booleans())
def test_any_bytes_are_a_head_or_a_reason(data: bytes, compressed: bool, known: bool) -> None:
    found = decode_grid(deflated(data) if compressed else data, shape=SHAPE, base=a_base() if known else None)
    if isinstance(found, GridHead):
        assert found.steps.shape == SHAPE
        assert np.isfinite(found.values()).all()
    else:
        assert found in (Refusal.BAD_BODY, Refusal.BOMB)


@given(st.sampled_from([1, 2]), st.binary(min_size=3, max_size=3), st.data())
def test_bytes_of_the_right_size_too(digits: int, exponents: bytes, data: st.DataObject) -> None:
    size = -(-SHAPE[0] * SHAPE[1] // digits)
    packed = data.draw(st.binary(min_size=size, max_size=size))
    rest = data.draw(st.binary(max_size=2 * SHAPE[0] * SHAPE[1]))
    found = decode_grid(deflated(bytes([digits]) + exponents + packed + rest), shape=SHAPE, base=a_base())
    assert found is Refusal.BAD_BODY or (isinstance(found, GridHead) and np.isfinite(found.values()).all())


@given(st.data())
def test_a_changed_body_never_has_the_content_of_the_right_one(data: st.DataObject) -> None:
    base = a_base()
    public = on_grid(base.values() + 0.1, base)
    raw = bytearray(zlib.decompress(encode_grid(public, base), wbits=-15))
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] ^= data.draw(st.integers(1, 255))
    found = decode_grid(deflated(bytes(raw)), shape=SHAPE, base=base)
    assert isinstance(found, Refusal) or found.content() != public.content()


def test_malformed_bodies_are_refused() -> None:
    base = a_base()
    body = encode_grid(on_grid(base.values() + 0.1, base), base)
    raw = zlib.decompress(body, wbits=-15)
    digits_end = 4 + 8
    assert raw[0] == 2

    def taken(changed: bytes) -> GridHead | Refusal:
        return decode_grid(deflated(changed), shape=SHAPE, base=base)

    assert isinstance(taken(raw), GridHead)
    for name, changed in {
        "no digits": b"",
        "three digits a byte": b"\x03" + raw[1:],
        "cut off": raw[:6],
        "a byte more": raw + b"\x00",
        "a byte less": raw[:-1],
        "a step too small": raw[:1] + b"\x07" + raw[2:],
        "a step too large": raw[:1] + b"\xe5" + raw[2:],
        "no such pair": raw[:4] + b"\xe1" + raw[5:],
        "something in the padding": raw[: digits_end - 1] + bytes([raw[digits_end - 1] + 1]) + raw[digits_end:],
    }.items():
        assert taken(changed) is Refusal.BAD_BODY, name
    assert decode_grid(body + b"\x00", shape=SHAPE, base=base) is Refusal.BAD_BODY
    assert decode_grid(body[:-1], shape=SHAPE, base=base) is Refusal.BAD_BODY
    assert decode_grid(b"", shape=SHAPE, base=base) is Refusal.BAD_BODY


def test_steps_beyond_the_grid_are_refused() -> None:
    largest = GridHead(np.zeros(1, np.int8), np.full((1, 2), 32_767, np.int16))
    up = deflated(b"\x02" + bytes([128]) + bytes([15 * 8 + 7]))
    assert decode_grid(up, shape=(1, 2), base=largest) is Refusal.BAD_BODY
    down = decode_grid(deflated(b"\x02" + bytes([128]) + bytes([15 * 6 + 7])), shape=(1, 2), base=largest)
    assert isinstance(down, GridHead)
    assert down.steps.tolist() == [[32_766, 32_767]]


def test_a_bomb_is_not_unpacked() -> None:
    bomb = deflated(bytes(20_000_000))
    tracemalloc.start()
    try:
        assert decode_grid(bomb, shape=(10, 800), base=None) is Refusal.BOMB
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


def test_no_body_takes_more_memory_than_a_few_heads() -> None:
    rng = np.random.default_rng(5)
    worst = GridHead(np.zeros(10, np.int8), rng.integers(-32_767, 32_768, (10, 800)).astype(np.int16))
    body = encode_grid(worst, None)
    tracemalloc.start()
    try:
        assert same(decode_grid(body, shape=(10, 800), base=None), worst)
        assert tracemalloc.get_traced_memory()[1] < 12 * 4 * 8000
    finally:
        tracemalloc.stop()
