import os
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bristle.backbones import CallableBackbone
from bristle.backbones.features import array_digest, cache_folder, extract

X = np.random.default_rng(0).integers(0, 256, (11, 4, 5), dtype=np.uint8)


@dataclass
class Counting:
    """A function of images that remembers how many it was given."""

    seen: list[int] = field(default_factory=list)

    def __call__(self, x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        self.seen.append(len(x))
        return np.cumsum(x.reshape(len(x), -1), axis=1)


def make(*, version: str = "1") -> tuple[CallableBackbone, Counting]:
    function = Counting()
    return CallableBackbone(function, name="sums", version=version, features=20, input_shape=(4, 5)), function


def test_features_are_made_in_batches_and_only_once(tmp_path: Path) -> None:
    backbone, calls = make()
    told: list[tuple[int, int]] = []
    first = extract(backbone, X, batch=4, cache=tmp_path, progress=lambda done, total: told.append((done, total)))
    assert calls.seen == [4, 4, 3]
    assert told == [(4, 11), (8, 11), (11, 11)]
    np.testing.assert_allclose(first, np.cumsum(X.reshape(11, -1) / 255, axis=1), rtol=1e-5)
    other, more_calls = make()
    again = extract(other, X, cache=tmp_path, progress=lambda *_: pytest.fail("nothing was to be done"))
    np.testing.assert_array_equal(again, first)
    again += 1  # what comes from the cache is the caller's own
    assert more_calls.seen == []


@given(batch=st.integers(1, 15))
def test_the_batch_size_changes_nothing(batch: int) -> None:
    backbone, _ = make()
    np.testing.assert_array_equal(extract(backbone, X, batch=batch, cache=False), backbone(X))


def test_another_version_or_another_image_is_another_entry(tmp_path: Path) -> None:
    extract(make()[0], X, cache=tmp_path)
    changed = X.copy()
    changed[3, 2, 1] ^= 1
    for backbone, calls, x in ((*make(version="2"), X), (*make(), changed), (*make(), X[:10])):
        extract(backbone, x, cache=tmp_path)
        assert calls.seen
    assert len(list(tmp_path.rglob("*.npy"))) == 4


@given(data=st.data())
def test_a_damaged_file_is_noticed_and_made_again(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        expected = extract(make()[0], X, cache=folder)
        (path,) = Path(folder).rglob("*.npy")
        content = bytearray(path.read_bytes())
        position = data.draw(st.integers(0, len(content) - 1))
        match data.draw(st.sampled_from(["flip", "cut", "grow"])):
            case "flip":
                content[position] ^= data.draw(st.integers(1, 255))
            case "cut":
                del content[position:]
            case _:
                content += b"more"
        path.write_bytes(content)
        backbone, calls = make()
        np.testing.assert_array_equal(extract(backbone, X, cache=folder), expected)
        repaired, no_calls = make()
        np.testing.assert_array_equal(extract(repaired, X, cache=folder), expected)
        assert (calls.seen, no_calls.seen) == ([11], [])


def test_a_kept_file_is_a_plain_npy_file_and_nothing_else_is_left(tmp_path: Path) -> None:
    features = extract(make()[0], X, cache=tmp_path)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 1
    np.testing.assert_array_equal(np.load(files[0], allow_pickle=False), features)


def test_without_a_cache_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRISTLE_CACHE", str(tmp_path))
    extract(make()[0], X, cache=False)
    assert list(tmp_path.iterdir()) == []
    extract(make()[0], X)
    assert len(list(tmp_path.rglob("*.npy"))) == 1


def test_the_folder_is_the_one_given_else_the_variable_else_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRISTLE_CACHE", str(tmp_path / "variable"))
    assert cache_folder(tmp_path / "given") == tmp_path / "given"
    assert cache_folder() == tmp_path / "variable"
    monkeypatch.delenv("BRISTLE_CACHE")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "bristle"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "bristle"


def test_a_cache_that_cannot_be_written_costs_a_warning_and_not_the_features(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file where the folder should be")
    with pytest.warns(UserWarning, match="features cannot be kept in .*taken"):
        features = extract(make()[0], X, cache=tmp_path / "taken")
    assert features.shape == (11, 20)


def test_pixels_and_features_that_are_not_finite_are_refused_and_not_kept(tmp_path: Path) -> None:
    x = (X / 255).astype(np.float32)
    x[7, 0, 0] = np.nan
    x[9, 0, 0] = np.inf
    with pytest.raises(ValueError, match=r"sample 7 has values that are not finite \(2 such samples in all\)"):
        extract(make()[0], x, cache=tmp_path)
    with np.errstate(divide="ignore"):
        broken = CallableBackbone(np.log, name="log", version="1", features=20, input_shape=(4, 5))
        with pytest.raises(ValueError, match=r"sample 2 has features that are not finite .* check the backbone log"):
            extract(broken, np.where(np.arange(11)[:, None, None] == 2, 0, X | 1).astype(np.uint8), cache=tmp_path)
    assert list(tmp_path.rglob("*.npy")) == []


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="batch is at least 1, not 0"):
        extract(make()[0], X, batch=0)
    with pytest.raises(ValueError, match=r"not of shape \[5\]"):
        extract(make()[0], X[0, 0])


def test_no_images_have_no_features() -> None:
    assert extract(make()[0], X[:0], cache=False).shape == (0, 20)


@given(shape=st.sampled_from([(6,), (2, 3), (3, 2), (1, 6)]), dtype=st.sampled_from(["u1", "i1", "<u2", ">u2"]))
def test_the_digest_of_an_array_tells_type_shape_and_order(shape: tuple[int, ...], dtype: str) -> None:
    values = np.arange(6).reshape(shape).astype(dtype)
    reference = np.arange(6, dtype="u1")
    assert (array_digest(values) == array_digest(reference)) == (shape == (6,) and dtype == "u1")
    if len(shape) == 2:
        assert array_digest(np.asfortranarray(values)) == array_digest(values)


def test_a_cache_folder_may_be_any_path_like(tmp_path: Path) -> None:
    assert cache_folder(os.fspath(tmp_path)) == tmp_path
