import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bristle.data import load


def write(path: Path, pixels: Any, **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(pixels)).save(path, **options)


def grey(value: int, height: int = 4, width: int = 6) -> np.ndarray:
    return np.full((height, width), value, dtype=np.uint8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five grey images of cats, brightness 10 to 14, and five of dogs, 20 to 24."""
    for offset in range(5):
        write(tmp_path / "pets" / "cat" / f"{offset}.png", grey(10 + offset))
        write(tmp_path / "pets" / "dog" / f"{offset}.png", grey(20 + offset))
    return tmp_path / "pets"


def test_class_folders_load(folder: Path) -> None:
    (folder / "cat" / "notes.txt").write_text("not an image")
    (folder / "cat" / ".hidden.png").write_text("not an image either")
    (folder / ".cache").mkdir()
    data = load(folder, test_share=0.2)
    assert data.classes == ("cat", "dog")
    assert data.x_train.shape == (8, 4, 6)
    assert data.x_train.dtype == np.uint8
    assert np.bincount(data.y_test).tolist() == [1, 1]
    every = np.concatenate([data.x_train, data.x_test])
    labels = np.concatenate([data.y_train, data.y_test])
    assert sorted(every[:, 0, 0]) == [10, 11, 12, 13, 14, 20, 21, 22, 23, 24]
    np.testing.assert_array_equal(labels, every[:, 0, 0] // 10 - 1)
    np.testing.assert_array_equal(load(str(folder), test_share=0.2).x_test, data.x_test)


def test_train_and_test_folders_load(tmp_path: Path) -> None:
    for part, count in (("train", 3), ("test", 2)):
        for at, name in enumerate(("one", "two")):
            for number in range(count):
                write(tmp_path / part / name / f"{number}.png", grey(100 * at + number))
    data = load(tmp_path)
    assert data.classes == ("one", "two")
    assert data.x_train[:, 0, 0].tolist() == [0, 1, 2, 100, 101, 102]
    assert data.y_train.tolist() == [0, 0, 0, 1, 1, 1]
    assert data.x_test[:, 0, 0].tolist() == [0, 1, 100, 101]
    assert data.y_test.tolist() == [0, 0, 1, 1]


def test_test_folder_may_leave_out_a_class(tmp_path: Path) -> None:
    for name in ("train/a/1.png", "train/b/1.png", "train/c/1.png", "test/b/1.png"):
        write(tmp_path / name, grey(5))
    assert load(tmp_path).y_test.tolist() == [1]


def test_size_and_colour(folder: Path) -> None:
    write(folder / "cat" / "wide.jpg", grey(50, height=10, width=30))
    data = load(folder, size=8, channels="rgb")
    assert data.x_train.shape[1:] == (8, 8, 3)
    assert load(folder, size=(3, 5)).x_train.shape[1:] == (3, 5)


def test_colours_become_grey_and_rgb(tmp_path: Path) -> None:
    red = np.zeros((4, 4, 3), dtype=np.uint8)
    red[..., 0] = 200
    write(tmp_path / "a" / "red.png", red)
    write(tmp_path / "b" / "grey.png", grey(9, 4, 4))
    rgb = load(tmp_path, channels="rgb", test_share=0)
    assert rgb.x_train[:, 0, 0].tolist() == [[200, 0, 0], [9, 9, 9]]
    assert load(tmp_path, test_share=0).x_train[:, 0, 0].tolist() == [60, 9]  # 0.299 * 200


def test_16_bits_are_scaled_not_cut_off(tmp_path: Path) -> None:
    write(tmp_path / "a" / "deep.png", np.full((4, 4), 0x80FF, dtype=np.uint16))
    write(tmp_path / "b" / "grey.png", grey(9, 4, 4))
    assert load(tmp_path, test_share=0).x_train[:, 0, 0].tolist() == [0x80, 9]


def test_photographs_are_turned_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    write(tmp_path / "a" / "1.jpg", grey(0, height=4, width=6), exif=exif)
    write(tmp_path / "b" / "1.png", grey(9, height=6, width=4))
    assert load(tmp_path, test_share=0).x_train.shape == (2, 6, 4)


def bad(path: Path, message: str, *, source: Path, **options: Any) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        load(source, **options)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_empty_class_folder(folder: Path) -> None:
    (folder / "emu").mkdir()
    bad(folder / "emu", r"class folder without images: add some \(.*\.png.*\) or remove it", source=folder)


def test_no_class_folders(tmp_path: Path) -> None:
    write(tmp_path / "1.png", grey(1))
    bad(tmp_path, "no class folders: make one folder per class", source=tmp_path)


def test_one_class_only(tmp_path: Path) -> None:
    write(tmp_path / "cat" / "1.png", grey(1))
    bad(tmp_path, "y_train has only class 0: learning needs samples of at least two classes", source=tmp_path)


@pytest.mark.parametrize("content", [b"", b"nonsense", "cut"])
def test_unreadable_image(folder: Path, content: bytes | str) -> None:
    broken = folder / "dog" / "2.png"
    rng = np.random.default_rng(0)
    write(broken, rng.integers(0, 255, (4, 6), dtype=np.uint8))
    broken.write_bytes(content if isinstance(content, bytes) else broken.read_bytes()[:60])
    bad(broken, r"unreadable image \(.*\): repair or remove it", source=folder)


def test_depth_that_has_no_scale(folder: Path) -> None:
    deep = folder / "dog" / "2.tif"
    write(deep, np.ones((4, 6), dtype=np.float32))
    bad(deep, "unreadable image .*mode F; save it with 8 or 16 bits", source=folder)


def test_bomb_image(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    huge = folder / "dog" / "2.png"
    write(huge, grey(1, 100, 100))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 9_000)
    bad(huge, "unreadable image .*exceeds limit", source=folder)


def test_different_sizes(folder: Path) -> None:
    write(folder / "dog" / "3.png", grey(1, 5, 6))
    message = r"is 5 x 6 \(height x width\), images before it are 4 x 6: give a size, e.g. size=\(28, 28\)"
    bad(folder / "dog" / "3.png", message, source=folder)


def test_test_images_of_another_size(tmp_path: Path) -> None:
    for name in ("train/a/1.png", "train/b/1.png"):
        write(tmp_path / name, grey(5))
    write(tmp_path / "test/a/1.png", grey(5, 7, 7))
    bad(tmp_path / "test/a/1.png", "is 7 x 7", source=tmp_path)


def test_class_that_is_only_in_the_test_folder(tmp_path: Path) -> None:
    for name in ("train/a/1.png", "train/b/1.png", "test/c/1.png"):
        write(tmp_path / name, grey(5))
    bad(tmp_path / "test" / "c", "no such class in .*train: add it there or remove it here", source=tmp_path)


def test_too_many_images_for_the_memory(folder: Path) -> None:
    assert len(load(folder, max_bytes=240).classes) == 2
    bad(folder, "10 images would take 240 bytes of memory, the limit is 239", source=folder, max_bytes=239)


def test_bad_options(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"size=\(0, 5\) is not \(height, width\)"):
        load(folder, size=(0, 5))
    with pytest.raises(ValueError, match="channels='cmyk' is unknown: use 'gray' or 'rgb'"):
        load(folder, channels="cmyk")  # type: ignore[arg-type]


def test_without_pillow(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(
        ImportError, match=r"0\.png: reading images needs Pillow: install the extra 'images' of bristle"
    ):
        load(folder)
