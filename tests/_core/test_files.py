import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from bristle._core.files import write_atomically


def test_a_file_and_its_folders_are_written(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "file"
    write_atomically(path, [b"one ", memoryview(b"two")])
    assert path.read_bytes() == b"one two"
    assert [p.name for p in path.parent.iterdir()] == ["file"]
    (tmp_path / "plain").touch()  # whoever may read an ordinary file may read this one
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise RuntimeError("out of data")

    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError, match="out of data"):
        write_atomically(path, pieces())
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
