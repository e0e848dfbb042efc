import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bristle.data import Dataset, load
from bristle.data.npz import read_arrays

X = np.arange(60, dtype=np.uint8).reshape(10, 2, 3)
Y = np.arange(10) % 3


def save(path: Path, **arrays: Any) -> Path:
    np.savez_compressed(path, **arrays)
    return path


def test_explicit_splits(tmp_path: Path) -> None:
    path = save(
        tmp_path / "own.npz",
        x_train=X,
        y_train=Y.astype(float),
        x_test=X[:2],
        y_test=Y[:2],
        user=np.arange(10),
        classes=np.array(["ant", "bee", "cow"]),
    )
    data = load(path)
    np.testing.assert_array_equal(data.x_train, X)
    np.testing.assert_array_equal(data.y_train, Y)
    np.testing.assert_array_equal(data.x_test, X[:2])
    assert data.classes == ("ant", "bee", "cow")
    assert data.user is not None
    assert data.user.tolist() == list(range(10))
    assert data.name == str(path)


def test_x_and_y_are_split_by_seed(tmp_path: Path) -> None:
    path = save(tmp_path / "own.npz", x=X, y=Y, user=np.arange(10))
    data = load(path, test_share=0.3, seed=1)
    assert np.bincount(data.y_test).tolist() == [1, 1, 1]
    assert data.user is not None
    np.testing.assert_array_equal(data.x_train, X[data.user])
    np.testing.assert_array_equal(load(path, test_share=0.3, seed=1).x_test, data.x_test)
    assert len(load(path, test_share=0).x_test) == 0


def test_fortran_order_is_read(tmp_path: Path) -> None:
    path = save(tmp_path / "own.npz", x=np.asfortranarray(X), y=Y)
    np.testing.assert_array_equal(load(path, test_share=0).x_train, X)


def bad(path: Path, message: str, **options: Any) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        load(path, **options)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x_train": X, "y_train": Y}, "holds x_train, y_train: save it with x_train, .*, or with x and y"),
        ({}, "holds nothing: save it with"),
        (
            {"x": X, "y": Y.astype(object)},
            "y holds Python objects, which need pickle, and pickles are never loaded",
        ),
        ({"x": X, "y": Y + 0.5}, r"y holds 0\.5 at 0, not an integer"),
        ({"x": X, "y": Y - 1}, "y holds the negative label -1"),
        ({"x": X, "y": Y[:4]}, "x and y have different lengths, 10 samples and 4 labels"),
        ({"x": X, "y": Y * 0}, "y_train has only class 0"),
        ({"x": np.where(X == 7, np.nan, X), "y": Y}, "x holds NaN or infinity in sample 1"),
        ({"x": X, "y": Y, "user": [1, 2]}, r"user has shape \(2,\) for 10"),
        ({"x": X, "y": Y, "classes": [1, 2, 3]}, "classes must be a list of texts, not int64"),
        ({"x": X, "y": np.zeros(10, dtype=[("a", int)])}, "y holds records, not integers"),
        ({"x": X, "y": np.zeros(10, dtype=[("ä漢", int)])}, "y is corrupt .*version"),
    ],
)
@pytest.mark.filterwarnings("ignore:Stored array in format 3.0")
def test_bad_content_gets_one_line(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    bad(save(tmp_path / "own.npz", **arrays), message)


def test_missing_key_for_read_arrays(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"own\.npz: has no y, z: save it with x, y, z"):
        read_arrays(save(tmp_path / "own.npz", x=X), ("x", "y", "z"))


def test_read_arrays_needs_the_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"gone\.npz: no such file: check the path"):
        read_arrays(tmp_path / "gone.npz", ("x",))


def test_format_version_2_is_read(tmp_path: Path) -> None:
    member = io.BytesIO()
    np.lib.format.write_array(member, X, version=(2, 0))
    labels = io.BytesIO()
    np.save(labels, Y)
    with zipfile.ZipFile(tmp_path / "own.npz", "w") as archive:
        archive.writestr("x.npy", member.getvalue())
        archive.writestr("y.npy", labels.getvalue())
    np.testing.assert_array_equal(load(tmp_path / "own.npz", test_share=0).x_train, X)


def test_text_is_not_an_npz(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    path.write_text("not a zip")
    bad(path, "corrupt or not an .npz .*: get or save it again")


def test_truncated_file(tmp_path: Path) -> None:
    path = save(tmp_path / "own.npz", x=X, y=Y)
    path.write_bytes(path.read_bytes()[:-40])
    bad(path, "corrupt or not an .npz")


def forge(path: Path, *, header: dict[str, Any], body: bytes = b"", version: bytes = b"\x01\x00") -> Path:
    """Write an `.npz` whose `x` has any header at all."""
    text = repr(header).encode()
    member = b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text + body
    labels = io.BytesIO()
    np.save(labels, Y)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", member)
        archive.writestr("y.npy", labels.getvalue())
    return path


def test_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    # Unpacking would need 10^15 bytes: this test can only pass if nobody tries.
    header = {"descr": "|u1", "fortran_order": False, "shape": (10, 10_000_000, 10_000_000)}
    path = forge(tmp_path / "bomb.npz", header=header, body=bytes(1000))
    bad(path, "would take 1,000,000,000,000,080 bytes of memory, the limit is 8,589,934,592: use fewer")


def test_limit_counts_all_arrays_and_can_be_set(tmp_path: Path) -> None:
    path = save(tmp_path / "own.npz", x=X, y=Y)
    assert len(load(path, max_bytes=60 + 80).classes) == 3
    bad(path, "would take 140 bytes of memory, the limit is 139", max_bytes=139)


@pytest.mark.parametrize(
    "shape",
    [(10, -1), (10, 6, 6), (0, 10**30), ("a",), (2.5, 3)],
    ids=["negative", "short", "huge", "text", "float"],
)
def test_headers_that_lie(tmp_path: Path, shape: tuple[Any, ...]) -> None:
    header = {"descr": "|u1", "fortran_order": False, "shape": shape}
    bad(forge(tmp_path / "own.npz", header=header, body=bytes(60)), "x is corrupt")


def test_python_objects_in_a_header_are_refused(tmp_path: Path) -> None:
    header = {"descr": "|O", "fortran_order": False, "shape": (10, 2)}
    bad(forge(tmp_path / "own.npz", header=header, body=b"cos\nsystem\n"), "x holds Python objects")


def load_or_reason(path: Path) -> Dataset | str:
    try:
        return load(path, test_share=0, max_bytes=1 << 20)
    except ValueError as error:
        return str(error)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    compressed=st.booleans(),
    damage=st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), min_size=1, max_size=4),
    kept=st.floats(0.3, 1) | st.just(1.0),
)
@pytest.mark.filterwarnings("ignore")
def test_damaged_files_are_refused_or_harmless(
    tmp_path: Path, compressed: bool, damage: list[tuple[float, int]], kept: float
) -> None:
    path = tmp_path / "own.npz"
    (np.savez_compressed if compressed else np.savez)(path, x=X, y=Y)
    content = bytearray(path.read_bytes())
    for position, value in damage:
        content[int(position * len(content))] = value
    path.write_bytes(content[: int(kept * len(content))])
    outcome = load_or_reason(path)
    if isinstance(outcome, str):
        assert outcome.startswith(str(path))
        assert "\n" not in outcome
    else:  # the damage hit what does not matter, such as a date
        np.testing.assert_array_equal(outcome.x_train, X)
        np.testing.assert_array_equal(outcome.y_train, Y)
