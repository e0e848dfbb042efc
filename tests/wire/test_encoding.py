from __future__ import annotations

import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from bristle.wire import Refusal
from bristle.wire.encoding import PLAIN, ZLIB, Head, decode_head, encode_head, largest_body
from bristle.wire.sizes import Encoding, raw_bytes

ENCODINGS: list[Encoding] = ["float32", "float16", "int8"]
shapes = arrays.array_shapes(min_dims=2, max_dims=2, max_side=12)
heads = shapes.flatmap(lambda shape: arrays.arrays(np.float32, shape, elements=st.floats(-6e4, 6e4, width=32)))


@given(heads, st.sampled_from(ENCODINGS), st.booleans())
def test_what_is_encoded_is_decoded(head: Head, encoding: Encoding, compress: bool) -> None:
    body = encode_head(head, encoding=encoding, compress=compress)
    shape = (head.shape[0], head.shape[1])
    compression = ZLIB if compress else PLAIN
    assert len(body) <= largest_body(shape, encoding, compression)
    decoded = decode_head(body, shape=shape, encoding=encoding, compression=compression)
    assert isinstance(decoded, np.ndarray)
    assert decoded.dtype == np.float32
    if encoding == "float32":
        np.testing.assert_array_equal(decoded, head)
    elif encoding == "float16":
        np.testing.assert_array_equal(decoded, head.astype(np.float16).astype(np.float32))
    else:
        # Half a step of the row's own scale, and a little for rounding in 32 bits.
        largest = np.abs(head).max(axis=1, keepdims=True)
        assert (np.abs(decoded - head) <= 0.502 * largest / 127 + 1e-37).all()


@pytest.mark.parametrize("value", [3e38, 1e-45, 0.0, np.finfo(np.float32).max])
def test_int8_holds_the_extremes(value: float) -> None:
    head = np.array([[value, -value, 0.0], [1.0, 2.0, 3.0]], np.float32)
    decoded = decode_head(
        encode_head(head, encoding="int8", compress=False), shape=(2, 3), encoding="int8", compression=PLAIN
    )
    assert isinstance(decoded, np.ndarray)
    np.testing.assert_allclose(decoded[1], head[1], atol=0.02)
    np.testing.assert_allclose(decoded[0], head[0], rtol=0.01, atol=1e-37)


@given(st.binary(max_size=400), st.sampled_from(ENCODINGS), st.sampled_from([PLAIN, ZLIB]))
def test_any_bytes_are_a_finite_head_or_a_reason(body: bytes, encoding: Encoding, compression: int) -> None:
    for candidate in (body, zlib.compress(body)):
        decoded = decode_head(candidate, shape=(3, 4), encoding=encoding, compression=compression)
        if isinstance(decoded, Refusal):
            assert decoded in (Refusal.BAD_BODY, Refusal.BOMB, Refusal.NOT_FINITE)
        else:
            assert decoded.shape == (3, 4)
            assert np.isfinite(decoded).all()


@given(st.data(), st.sampled_from(ENCODINGS))
def test_bytes_of_the_right_size_too(data: st.DataObject, encoding: Encoding) -> None:
    size = raw_bytes(3, 4, encoding)
    body = data.draw(st.binary(min_size=size, max_size=size))
    decoded = decode_head(body, shape=(3, 4), encoding=encoding, compression=PLAIN)
    assert decoded is Refusal.NOT_FINITE or (isinstance(decoded, np.ndarray) and np.isfinite(decoded).all())


def test_a_bomb_is_not_unpacked() -> None:
    bomb = zlib.compress(bytes(20_000_000), 9)
    tracemalloc.start()
    try:
        assert decode_head(bomb, shape=(10, 800), encoding="float32", compression=ZLIB) is Refusal.BOMB
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


def test_what_follows_a_compressed_head_or_is_missing_is_refused() -> None:
    body = encode_head(np.ones((3, 4), np.float32), encoding="float32", compress=True)
    for wrong in (body + b"x", body[:-1], zlib.compress(bytes(47)), zlib.compress(bytes(49))):
        assert isinstance(decode_head(wrong, shape=(3, 4), encoding="float32", compression=ZLIB), Refusal)


@pytest.mark.parametrize("scale", [np.nan, np.inf, -1.0, 3e38])
def test_scales_that_make_no_finite_rows_are_refused(scale: float) -> None:
    body = np.array([scale, 1.0], "<f4").tobytes() + bytes([127]) * 6
    assert decode_head(body, shape=(2, 3), encoding="int8", compression=PLAIN) is Refusal.NOT_FINITE


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="not finite"):
        encode_head(np.array([[np.nan]]), encoding="float32", compress=False)
    with pytest.raises(ValueError, match="use float32"):
        encode_head(np.array([[1e5]]), encoding="float16", compress=False)
    with pytest.raises(ValueError, match="shape"):
        encode_head(np.zeros(3), encoding="float32", compress=False)
    with pytest.raises(ValueError, match="float32, float16, int8"):
        encode_head(np.zeros((1, 1)), encoding="float64", compress=False)  # type: ignore[arg-type]


def test_heads_in_double_precision_that_float32_cannot_hold_are_named() -> None:
    with pytest.raises(ValueError, match="not finite"):
        encode_head(np.array([[1e300]]), encoding="float32", compress=False)
