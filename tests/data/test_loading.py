from pathlib import Path

import pytest

from bristle.data import load, mnist


def test_mnist_by_name() -> None:
    assert load("mnist") is mnist()


@pytest.mark.parametrize("name", ["nowhere.npz", "nowhere"])
def test_missing_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileNotFoundError, match=f"{name}: no such file or folder: check the path, or use the"):
        load(tmp_path / name)


def test_unknown_kind(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("1,2,3")
    with pytest.raises(ValueError, match=r"data\.csv: unknown kind of data: give an \.npz file, a folder"):
        load(path)
