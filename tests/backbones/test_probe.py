from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bristle.backbones import CallableBackbone, NoBackbone, bundled
from bristle.backbones.probe import NUMBERS, made_up, probe
from bristle.p2p.members.feature_check import TOLERANCE, difference
from bristle.wire.messages import PROBE_NUMBERS

GROUP = bytes(range(20))


def images(function: Callable[[Any], Any], **options: Any) -> CallableBackbone:
    sizes = {"features": 800, "input_shape": (28, 28), "input_dtype": "uint8", **options}
    return CallableBackbone(function, name="images", version="1", **sizes)


def test_it_is_the_same_for_the_same_backbone_and_another_for_another_group() -> None:
    backbone = bundled(threads=1)
    one, two, other = (probe(backbone, group) for group in (GROUP, GROUP, bytes(20)))
    assert one is not None
    assert two is not None
    assert other is not None
    assert one.shape == (NUMBERS,) == (PROBE_NUMBERS,)
    np.testing.assert_array_equal(one, two)
    assert difference(one, other) > 0.01
    np.testing.assert_array_equal(made_up(backbone, GROUP), made_up(backbone, GROUP))
    assert made_up(backbone, GROUP).dtype == np.uint8


def test_its_difference_is_about_that_of_the_features() -> None:
    rng = np.random.default_rng(0)
    for size in (1e-3, 1e-2, 0.1, 0.5):
        a = rng.standard_normal((30, 28 * 28, 800), dtype=np.float32)[0]
        b = a + np.float32(size) * rng.standard_normal(a.shape, dtype=np.float32)
        found = [probe(images(lambda x, w=w: x.reshape(len(x), -1) @ w), GROUP) for w in (a, b)]  # type: ignore[misc]
        assert found[0] is not None
        assert found[1] is not None
        assert size / 1.5 < difference(found[0], found[1]) < 1.5 * size


def test_rounding_is_below_the_tolerance_and_wrong_preprocessing_above() -> None:
    real = bundled(threads=1)
    own = probe(real, GROUP)
    assert own is not None
    ways: dict[str, tuple[Callable[[Any], Any], bool]] = {
        "float16": (lambda x: real(x).astype(np.float16).astype(np.float32), True),
        "one by one": (lambda x: np.concatenate([real(x[at : at + 1]) for at in range(len(x))]), True),
        "inverted": (lambda x: real(255 - x), False),
        "mirrored": (lambda x: real(np.ascontiguousarray(x[:, ::-1])), False),
        "scaled twice": (lambda x: real(x // 255), False),
        "zeros": (lambda x: 0 * real(x), False),
    }
    for name, (way, same) in ways.items():
        theirs = probe(images(way), GROUP)
        assert theirs is not None
        assert (difference(own, theirs) <= TOLERANCE) == same, name


def test_what_has_nothing_to_compare(caplog: pytest.LogCaptureFixture) -> None:
    def words(x: Any) -> Any:
        raise KeyError("no such word")

    assert probe(NoBackbone(7), GROUP) is None
    with caplog.at_level(logging.INFO, "bristle.backbones"):
        assert probe(images(words), GROUP) is None
    assert "takes no made-up inputs, and is not compared" in caplog.text
    assert probe(images(lambda x: np.full((len(x), 800), np.nan)), GROUP) is None


@pytest.mark.parametrize(("shape", "dtype"), [((None, None, 3), "uint8"), ((5,), "float32"), ((5,), "uint8")])
def test_inputs_of_any_shape(shape: tuple[int | None, ...], dtype: str) -> None:
    seen: list[Any] = []

    def note(x: Any) -> Any:
        seen.append(x)
        return np.ones((len(x), 4), np.float32)

    assert probe(images(note, input_shape=shape, input_dtype=dtype, features=4), GROUP) is not None
    assert seen[0].shape == (4, *(size or 32 for size in shape))
    assert seen[0].dtype == dtype
    assert -1 <= seen[0].min() < seen[0].max()
