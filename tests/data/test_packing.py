import lzma
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bristle.data.bundled import PackedImages, unpack

sys.path.insert(0, str(Path(__file__).parents[2] / "packaging"))
make_mnist: Any = import_module("make_mnist")  # a maintainer's script, not part of the package

shapes = st.tuples(st.integers(0, 6), st.integers(1, 7), st.integers(1, 7))


@settings(max_examples=60, deadline=None)
@given(images=hnp.arrays(np.uint8, shapes), parts=st.integers(1, 5))
def test_any_images_come_back_bit_for_bit(images: np.ndarray, parts: int) -> None:
    packed = make_mnist.pack(images, parts=parts)
    assert len(packed.parts) == parts
    assert packed.counts.sum() == images.size
    np.testing.assert_array_equal(unpack(packed), images)


def test_smooth_images_become_smaller_than_lzma_makes_them() -> None:
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:28, :28]
    centre = rng.uniform(8, 20, size=(400, 2, 1, 1))
    distance = np.hypot(rows - centre[:, 0], columns - centre[:, 1])
    blobs = np.clip(255 - 60 * np.maximum(distance - 4, 0) + rng.normal(0, 6, distance.shape), 0, 255)
    images = blobs.astype(np.uint8)
    packed = sum(map(len, make_mnist.pack(images).parts))
    assert packed < 0.95 * len(lzma.compress(images.tobytes()))


def test_refuses_other_types() -> None:
    with pytest.raises(ValueError, match=r"pack takes uint8 images .* not float64 \(2, 3\)"):
        make_mnist.pack(np.zeros((2, 3)))


def test_refuses_streams_that_do_not_fit() -> None:
    packed = make_mnist.pack(np.ones((3, 4, 4), dtype=np.uint8))
    with pytest.raises(ValueError, match=r"do not fit their shape \(3, 4, 5\)"):
        unpack(PackedImages((3, 4, 5), packed.counts, packed.parts))
