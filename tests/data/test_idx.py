"""Folders of idx files: read as they are, and refused with a reason where they are broken or hostile."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bristle.data import load
from bristle.data.idx import FILES, load_idx

TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS = FILES


def idx(array: np.ndarray) -> bytes:
    header = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(np.uint8).tobytes()


def content() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    found: dict[str, np.ndarray] = {}
    for images, labels, count in ((TRAIN_IMAGES, TRAIN_LABELS, 12), (TEST_IMAGES, TEST_LABELS, 6)):
        found[images] = rng.integers(0, 256, (count, 5, 4))
        found[labels] = np.arange(count) % 3
    return found


def write(folder: Path, *, packed: bool = False, **changed: bytes) -> Path:
    """Write the four files, some of them with another content (by the name with _ for -)."""
    for name, array in content().items():
        raw = changed.get(name.replace("-", "_"), idx(array))
        path = folder / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(raw) if packed else raw)
    return folder


@pytest.mark.parametrize("packed", [False, True])
def test_a_folder_is_loaded_as_it_is(tmp_path: Path, packed: bool) -> None:
    data, expected = load(write(tmp_path, packed=packed)), content()
    assert data.x_train.dtype == np.uint8
    np.testing.assert_array_equal(data.x_train, expected[TRAIN_IMAGES])
    np.testing.assert_array_equal(data.y_train, expected[TRAIN_LABELS])
    np.testing.assert_array_equal(data.x_test, expected[TEST_IMAGES])
    np.testing.assert_array_equal(data.y_test, expected[TEST_LABELS])
    assert data.classes == ("0", "1", "2")
    assert load(str(tmp_path)).name == str(tmp_path)


def good(name: str) -> bytes:
    return idx(content()[name])


BROKEN: list[tuple[str, Callable[[], bytes], str]] = [
    (TRAIN_IMAGES, lambda: b"", "ends 4 bytes early"),
    (TRAIN_IMAGES, lambda: good(TRAIN_IMAGES)[:9], "early"),
    (TRAIN_IMAGES, lambda: good(TRAIN_IMAGES)[:-1], "ends 1 bytes early"),
    (TRAIN_IMAGES, lambda: good(TRAIN_IMAGES) + b"x", "has more than the"),
    (TEST_LABELS, lambda: b"\x00\x00\x0d\x01" + good(TEST_LABELS)[4:], "begins with 00 00 0d 01"),
    (TEST_LABELS, lambda: good(TEST_IMAGES), "begins with 00 00 08 03"),
    (TEST_IMAGES, lambda: b"PK\x03\x04" + good(TEST_IMAGES)[4:], "begins with 50 4b"),
    (TRAIN_LABELS, lambda: idx(np.zeros(11)), "holds 12 images, and train-labels-idx1-ubyte 11 labels"),
    (TEST_IMAGES, lambda: idx(np.zeros((6, 4, 4))), "those to test on"),
    (TRAIN_IMAGES, lambda: bytes((0, 0, 8, 3)) + struct.pack(">3I", 2**32 - 1, 2**32 - 1, 9), "the limit is"),
]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("name", "made", "complaint"), BROKEN, ids=[words for _, _, words in BROKEN])
def test_what_is_broken_is_refused(
    tmp_path: Path, name: str, made: Callable[[], bytes], complaint: str, packed: bool
) -> None:
    write(tmp_path, packed=packed, **{name.replace("-", "_"): made()})
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared below
        load(tmp_path)
    said = str(caught.value).replace(".gz", "")
    assert complaint in said
    assert len(said.splitlines()) == 1
    assert str(tmp_path) in said


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / TEST_LABELS).unlink()
    with pytest.raises(ValueError, match="has no t10k-labels-idx1-ubyte"):
        load(tmp_path)


def test_what_gzip_cannot_unpack_is_refused(tmp_path: Path) -> None:
    write(tmp_path, packed=True)
    path = tmp_path / f"{TRAIN_IMAGES}.gz"
    raw = path.read_bytes()
    for wrong in (b"not gzip at all", raw[:20], raw[:-9], raw[:60] + b"\xff" * 8 + raw[68:]):
        path.write_bytes(wrong)
        with pytest.raises(ValueError, match="corrupt or not an idx file"):
            load(tmp_path)


def test_nothing_is_unpacked_beyond_what_is_announced(tmp_path: Path) -> None:
    """A bomb: a few kilobytes that unpack to 64 MiB behind an honest header, or that announce too much."""
    header = good(TRAIN_IMAGES)[:16]
    write(tmp_path, packed=True, train_images_idx3_ubyte=header + bytes(64 << 20))
    tracemalloc.start()
    with pytest.raises(ValueError, match="has more than the"):
        load(tmp_path)
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


def test_too_much_is_refused_before_it_is_read(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(ValueError, match=r"would take 378 bytes of memory, the limit is 300"):
        load_idx(tmp_path, max_bytes=300)
    assert len(load_idx(tmp_path, max_bytes=378).x_train) == 12


def test_a_header_that_promises_more_than_there_is_takes_no_memory(tmp_path: Path) -> None:
    large = bytes((0, 0, 8, 3)) + struct.pack(">3I", 50_000_000, 5, 4)
    labels = bytes((0, 0, 8, 1)) + struct.pack(">I", 50_000_000)
    write(tmp_path, train_images_idx3_ubyte=large, train_labels_idx1_ubyte=labels)
    tracemalloc.start()
    with pytest.raises(ValueError, match="early"):
        load(tmp_path)
    assert tracemalloc.get_traced_memory()[1] < 32 << 20
    tracemalloc.stop()


def test_a_folder_of_pictures_is_none_of_these(tmp_path: Path) -> None:
    (tmp_path / "cats").mkdir()
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        load(tmp_path)
    assert "idx3" not in str(caught.value)
