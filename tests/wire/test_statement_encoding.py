from __future__ import annotations

import tracemalloc
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from bristle.learning.metrics import Evaluation
from bristle.rules import Statement
from bristle.rules.evidence.statement import state
from bristle.wire import Refusal
from bristle.wire.encoding import PLAIN, ZLIB, decode_statement, encode_statement, largest_statement, narrowest
from bristle.wire.sizes import Encoding, raw_statement_bytes

SHAPE = (4, 6)
ENCODINGS: list[Encoding] = ["float16", "float32", "int8"]
values = st.floats(-9.9e8, 9.9e8)


@st.composite
def statements(draw: st.DrawFn) -> Statement:
    classes, features = SHAPE
    rank = draw(st.integers(0, features))
    counts = draw(arrays.arrays(np.int64, (classes,), elements=st.integers(0, 999_999_999)).filter(np.any))
    return Statement(
        draw(arrays.arrays(np.float64, SHAPE, elements=values)),
        counts,
        draw(arrays.arrays(np.float64, (rank, features), elements=values)),
        np.abs(draw(arrays.arrays(np.float64, (features,), elements=values))),
    )


def array(part: Any) -> NDArray[Any]:
    assert part is not None
    return np.asarray(part)


def decoded(statement: Statement, *, encoding: Encoding = "float16", compress: bool = True) -> Statement:
    assert statement.factors is not None
    body = encode_statement(statement, encoding=encoding, compress=compress)
    compression = ZLIB if compress else PLAIN
    rank = len(statement.factors)
    assert len(body) <= largest_statement(SHAPE, rank, encoding, compression)
    heard = decode_statement(body, shape=SHAPE, rank=rank, encoding=encoding, compression=compression)
    assert isinstance(heard, Statement), heard
    return heard


@settings(max_examples=300)
@given(statements(), st.sampled_from(ENCODINGS[:2]), st.booleans())
def test_what_is_encoded_is_decoded_within_what_the_encoding_holds(
    statement: Statement, encoding: Encoding, compress: bool
) -> None:
    heard = decoded(statement, encoding=encoding, compress=compress)
    np.testing.assert_array_equal(heard.counts, statement.counts)
    here = statement.counts > 0
    np.testing.assert_array_equal(heard.rows[~here], 0)
    said = np.concatenate([statement.rows[here], statement.factors, array(statement.diagonal)[None]])
    found = np.concatenate([heard.rows[here], heard.factors, array(heard.diagonal)[None]])
    largest = np.abs(said).max(axis=1, keepdims=True)
    digits = 2.0**-11 if encoding == "float16" else 2.0**-24
    # Rows whose largest value is below 2^-113 lose what is below the smallest exponent.
    assert (np.abs(found - said) <= digits * np.abs(said) + 2.0**-39 * largest + 2.0**-140).all()
    assert (array(heard.diagonal) >= 0).all()


@settings(max_examples=300)
@given(statements(), st.booleans())
def test_int8_rounds_to_a_128th_of_the_largest_value_of_a_line_and_factors_to_a_16th(
    statement: Statement, compress: bool
) -> None:
    heard = decoded(statement, encoding="int8", compress=compress)
    np.testing.assert_array_equal(heard.counts, statement.counts)
    here = statement.counts > 0
    said = np.concatenate([statement.rows[here], statement.factors, np.sqrt(array(statement.diagonal))[None]])
    found = np.concatenate([heard.rows[here], heard.factors, np.sqrt(array(heard.diagonal))[None]])
    largest = np.abs(said).max(axis=1, keepdims=True)
    steps = np.full(len(said), 128)
    steps[here.sum() : -1] = 16
    # Half a step; a value that would be 128 steps is stored as 127. Squares below the smallest float32 are zero.
    assert (np.abs(found - said) <= 1.001 * largest / steps[:, None] + 2.0**-70).all()


@given(statements())
def test_the_same_statement_makes_the_same_bytes(statement: Statement) -> None:
    again = Statement(*(np.array(part) for part in vars(statement).values()))
    assert encode_statement(statement) == encode_statement(again)
    # What a row without a count holds is not shared.
    rows = np.where(statement.counts[:, None] > 0, statement.rows, 7.0)
    assert encode_statement(replace(statement, rows=rows)) == encode_statement(statement)


def test_the_statement_of_samples_survives_float16() -> None:
    rng = np.random.default_rng(0)
    samples = Evaluation(rng.normal(size=(200, 40)) * np.geomspace(1e-4, 1e4, 40), rng.integers(0, 3, 200))
    said = state(samples, 5)
    assert said.factors is not None
    rank = len(said.factors)
    body = encode_statement(said, compress=False)
    assert len(body) == raw_statement_bytes(5, 40, present=3, rank=rank) == 4 * 5 + (3 + rank + 1) * (1 + 2 * 40)
    heard = decode_statement(body, shape=(5, 40), rank=rank, encoding="float16", compression=PLAIN)
    assert isinstance(heard, Statement)
    for found, row in zip(heard.rows, said.rows, strict=True):
        np.testing.assert_allclose(found, row, rtol=2.0**-11, atol=2.0**-39 * np.abs(row).max())
    left, right = array(heard.diagonal), array(said.diagonal)
    np.testing.assert_allclose(left, right, rtol=2.0**-11, atol=2.0**-39 * right.max())
    assert heard.freedom == said.freedom


def test_the_bytes_are_those_of_the_page() -> None:
    said = Statement(
        np.array([[1.0, -2.0], [9.0, 9.0], [0.0, 3e8]]), np.array([25, 0, 2]), np.array([[0.5, 0.25]]), np.zeros(2)
    )
    body = encode_statement(said, compress=False)
    low, high = "0000 0078 0000 0000", "70f4 0074 7470 0000"
    expected = (
        "00000019 00000000 00000002"  # counts
        "f3 0e f1 f1" + low + high  # exponents -13, 14, -15 and, of zeros, -15
    )
    values = np.array([[2**13, -(2**14)], [0, 3e8 / 2**14], [2**14, 2**13], [0, 0]], np.float16)
    assert bytes.fromhex(low + high) == values.astype("<f2").reshape(-1, 1).view(np.uint8).T.tobytes()
    assert body == bytes.fromhex(expected)


@given(st.binary(max_size=300), st.integers(0, 3), st.sampled_from(ENCODINGS), st.sampled_from([PLAIN, ZLIB]))
def test_any_bytes_are_a_statement_or_a_reason(body: bytes, rank: int, encoding: Encoding, compression: int) -> None:
    for candidate in (body, zlib.compress(body)):
        heard = decode_statement(candidate, shape=SHAPE, rank=rank, encoding=encoding, compression=compression)
        if isinstance(heard, Refusal):
            assert heard in (Refusal.BAD_BODY, Refusal.BOMB, Refusal.NOT_FINITE, Refusal.TOO_LARGE)
        else:
            assert np.isfinite(heard.rows).all()
            assert heard.factors is not None
            assert heard.factors.shape == (rank, SHAPE[1])


@given(st.data(), st.sampled_from(ENCODINGS), st.integers(0, 2))
def test_bytes_of_the_right_size_too(data: st.DataObject, encoding: Encoding, rank: int) -> None:
    counts = data.draw(st.lists(st.integers(0, 3), min_size=4, max_size=4))
    size = raw_statement_bytes(*SHAPE, present=sum(map(bool, counts)), rank=rank, encoding=encoding) - 16
    body = np.array(counts, ">u4").tobytes() + data.draw(st.binary(min_size=size, max_size=size))
    heard = decode_statement(body, shape=SHAPE, rank=rank, encoding=encoding, compression=PLAIN)
    if isinstance(heard, Refusal):
        assert heard in (Refusal.NOT_FINITE, Refusal.TOO_LARGE, Refusal.BAD_BODY)
    else:
        assert heard.diagonal is not None
        assert heard.diagonal.min() >= 0
        assert any(counts)


def test_a_negative_standard_deviation_is_refused() -> None:
    body = np.array((1, 0, 0, 0), ">u4").tobytes() + bytes(2) + bytes([1] * 6) + bytes([1] * 5 + [255])
    assert decode_statement(body, shape=SHAPE, rank=0, encoding="int8", compression=PLAIN) is Refusal.BAD_BODY
    heard = decode_statement(body[:-1] + b"\x02", shape=SHAPE, rank=0, encoding="int8", compression=PLAIN)
    assert isinstance(heard, Statement)
    assert array(heard.diagonal).tolist() == [1, 1, 1, 1, 1, 4]


def body_of(
    *,
    counts: tuple[int, ...] = (1, 0, 0, 0),
    exponents: tuple[int, ...] = (0, 0),
    value: float = 1.0,
    lines: int | None = None,
) -> bytes:
    lines = sum(map(bool, counts)) + 1 if lines is None else lines
    planes = np.full((lines, SHAPE[1]), value, "<f2").reshape(-1, 1).view(np.uint8).T.tobytes()
    return np.array(counts, ">u4").tobytes() + np.array(exponents, np.int8).tobytes() + planes


@pytest.mark.parametrize(
    ("body", "refusal"),
    [
        (body_of(value=np.nan), Refusal.NOT_FINITE),
        (body_of(value=-np.inf), Refusal.NOT_FINITE),
        (body_of(exponents=(127, 0), value=65_504.0), Refusal.TOO_LARGE),
        (body_of(exponents=(30, 0)), Refusal.TOO_LARGE),
        (body_of(counts=(1_000_000_000, 0, 0, 0)), Refusal.TOO_LARGE),
        (body_of(counts=(0, 0, 0, 0), exponents=(0,)), Refusal.BAD_BODY),
        (body_of(value=-1.0), Refusal.BAD_BODY),  # a negative variance
        (body_of(lines=1), Refusal.BAD_BODY),
        (body_of(lines=3, exponents=(0, 0, 0)), Refusal.BAD_BODY),
        (body_of() + b"x", Refusal.BAD_BODY),
        (b"", Refusal.BAD_BODY),
        (bytes(15), Refusal.BAD_BODY),
    ],
)
def test_what_no_statement_is_made_of_is_refused(body: bytes, refusal: Refusal) -> None:
    def heard(body: bytes, compression: int) -> object:
        return decode_statement(body, shape=SHAPE, rank=0, encoding="float16", compression=compression)

    assert heard(body, PLAIN) is refusal
    assert heard(zlib.compress(body), ZLIB) is refusal
    assert isinstance(heard(body_of(), PLAIN), Statement)


def test_another_rank_or_encoding_than_the_manifest_says_is_refused() -> None:
    body = encode_statement(Statement(np.ones(SHAPE), np.ones(4), np.ones((2, 6)), np.ones(6)), compress=False)
    for rank in (0, 1, 3):
        heard = decode_statement(body, shape=SHAPE, rank=rank, encoding="float16", compression=PLAIN)
        assert heard is Refusal.BAD_BODY
    wrong: tuple[Encoding, ...] = ("float32", "grid")
    for encoding in wrong:
        heard = decode_statement(body, shape=SHAPE, rank=2, encoding=encoding, compression=PLAIN)
        assert heard is Refusal.BAD_BODY


def test_a_bomb_is_not_unpacked() -> None:
    bomb = zlib.compress(bytes(20_000_000), 9)
    tracemalloc.start()
    try:
        heard = decode_statement(bomb, shape=(10, 800), rank=5, encoding="float16", compression=ZLIB)
        assert heard is Refusal.BOMB
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"factors": None}, "has factors"),
        ({"diagonal": None}, "and a diagonal"),
        ({"counts": np.zeros(4)}, "would be refused"),
        ({"counts": np.array([1, 0.5, 0, 0])}, "would be refused"),
        ({"rows": np.full(SHAPE, 1e9)}, "too large"),
        ({"rows": np.full(SHAPE, np.nan)}, "not finite"),
        ({"diagonal": np.full(6, -1.0)}, "would be refused"),
    ],
)
def test_mistakes_are_named(changes: dict[str, object], complaint: str) -> None:
    right = Statement(np.ones(SHAPE), np.ones(4), np.ones((2, 6)), np.ones(6))
    with pytest.raises(ValueError, match=complaint):
        encode_statement(replace(right, **changes))
    with pytest.raises(ValueError, match="float32, float16, int8"):
        encode_statement(right, encoding="grid")


@pytest.mark.parametrize(
    ("units", "offset", "encoding"),
    [(1.0, 0.0, "int8"), (1.0, 10.0, "int8"), (1e3, 0.0, "float16"), (1.0, 300.0, "float16"), (1.0, 1e5, "float32")],
)
def test_the_encoding_keeps_features_in_different_units(units: float, offset: float, encoding: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((48, 12)) * np.geomspace(1, units, 12) + offset
    assert narrowest(state(Evaluation(x, np.repeat(np.arange(4), 12)), 4)) == encoding
