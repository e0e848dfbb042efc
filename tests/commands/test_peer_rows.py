from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bristle.commands.jsonl import RowsFile
from bristle.peer.record import Iteration, Turn
from bristle.rules import Decision


def turn_of(iteration: int) -> Turn:
    nothing = np.zeros((0, 2))
    decision = Decision(head=np.zeros((2, 3)), weights=lambda: nothing, reasons=np.zeros(0, dtype=np.int64))
    return Turn(Iteration(iteration=iteration, at=1.5, seconds=0.25), decision, (), True)


def iterations(path: Path) -> list[int]:
    return [json.loads(line)["iteration"] for line in path.read_text().splitlines()]


@pytest.mark.parametrize("half", ['{"iteration": 3, "at"', "x" * 200_000])
def test_half_a_line_of_a_killed_process_is_removed(tmp_path: Path, half: str) -> None:
    path = tmp_path / "folder" / "rows.jsonl"
    with RowsFile(path) as rows:
        rows.write(turn_of(1))
        rows.write(turn_of(2))
    with path.open("a") as file:
        file.write(half)
    with RowsFile(path) as rows:
        rows.write(turn_of(3))
    assert iterations(path) == [1, 2, 3]


def test_a_file_of_half_a_line_is_emptied(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"iteration"')
    with RowsFile(path):
        assert path.read_text() == ""


WRITER = """
import resource, sys
sys.path.insert(0, sys.argv[2])
import logging
logging.basicConfig(format="%(message)s")
from pathlib import Path
from rows_child import RowsFile, turn_of
with RowsFile(Path(sys.argv[1])) as rows:
    for iteration in range(1, 31):
        if iteration == 10:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
        if iteration == 20:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        rows.write(turn_of(iteration))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits on the size of files are Unix's")
def test_without_room_whole_rows_are_left_out_and_told(tmp_path: Path) -> None:
    (tmp_path / "rows_child.py").write_text(Path(__file__).read_text(encoding="utf-8"), encoding="utf-8")
    path = tmp_path / "rows.jsonl"
    command = [sys.executable, "-c", WRITER, str(path), str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert said.splitlines() == ["rows are left out", "rows are written again"]
    assert iterations(path) == [*range(1, 10), *range(20, 31)]
