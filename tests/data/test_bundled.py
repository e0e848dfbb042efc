import hashlib
import re
import subprocess
import sys
from importlib import import_module, resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bristle.data import bundled, mnist

sys.path.insert(0, str(Path(__file__).parents[2] / "packaging"))
make_mnist: Any = import_module("make_mnist")  # a maintainer's script, not part of the package

FILES = resources.files("bristle.data") / "bundled_mnist"


def test_mnist_is_complete() -> None:
    data = mnist()
    assert data.x_train.shape == (60_000, 28, 28)
    assert data.x_test.shape == (10_000, 28, 28)
    assert data.x_train.dtype == np.uint8
    assert data.classes == tuple("0123456789")
    assert np.bincount(data.y_test).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def test_mnist_is_bit_exact() -> None:
    stated = dict(re.findall(r"^ +([xy]_\w+) +([0-9a-f]{64})$", (FILES / "LICENCE.txt").read_text(), re.M))
    data = mnist()
    arrays = {"x_train": data.x_train, "y_train": data.y_train, "x_test": data.x_test, "y_test": data.y_test}
    found = {key: hashlib.sha256(array.astype(np.uint8).tobytes()).hexdigest() for key, array in arrays.items()}
    assert found == stated


def test_mnist_is_read_once_and_cannot_be_changed() -> None:
    data = mnist()
    assert mnist() is data
    for array in (data.x_train, data.y_train, data.x_test, data.y_test):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_mnist_is_small() -> None:
    sizes = [len(path.read_bytes()) for path in FILES.iterdir() if path.name.endswith((".xz", ".npz"))]
    assert len(sizes) == 5
    assert sum(sizes) < 8_000_000
    assert max(sizes) < 3_000_000


def test_files_can_be_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = mnist()
    source = tmp_path / "some.npz"
    parts = (data.x_train[:200], data.y_train[:200], data.x_test[:50], data.y_test[:50])
    np.savez(source, x_train=parts[0], y_train=parts[1], x_test=parts[2], y_test=parts[3])
    assert make_mnist.main([str(source), str(tmp_path / "packed")]) == 0
    assert "images-4.xz" in capsys.readouterr().out
    again = bundled.read_packed(tmp_path / "packed", name="some")
    for found, expected in zip((again.x_train, again.y_train, again.x_test, again.y_test), parts, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_only_256_classes_can_be_packed(tmp_path: Path) -> None:
    images, labels = np.zeros((2, 3, 3), dtype=np.uint8), np.array([0, 256])
    np.savez(tmp_path / "many.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    with pytest.raises(ValueError, match=r"many\.npz: has the label 256"):
        make_mnist.write_packed(tmp_path / "many.npz", tmp_path / "packed")
    assert not (tmp_path / "packed").exists()


def test_nothing_heavy_is_imported() -> None:
    code = "import sys, bristle.data; print(sorted({'PIL', 'torch', 'onnxruntime'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
