"""The notebooks run from top to bottom, and give what is stored in them. No Jupyter is needed."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples" / "notebooks").glob("*.ipynb"))


def cells_of(path: Path) -> list[dict[str, Any]]:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def shown(value: Any) -> set[str]:
    """Return the kinds of output that a notebook shows of a cell's last value."""
    if value is None:
        return set()
    rich = {"text/html": "_repr_html_", "image/png": "_repr_png_"}
    return {"text/plain"} | {kind for kind, method in rich.items() if getattr(value, method, lambda: None)()}


def run(path: Path) -> None:
    """Run the cells as a notebook does: the last value of a cell is shown."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(cells_of(path), start=1):
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(tree, f"{path.name}, cell {number}", "exec"), names)
            value = None
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), f"{path.name}, cell {number}", "eval"), names)
        stored = {kind for output in cell["outputs"] for kind in output.get("data", {})}
        assert shown(value) == stored, number
        lines = [line for output in cell["outputs"] for line in output.get("text", [])]
        assert len(printed.getvalue().splitlines()) == len(lines), number


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_what_is_stored_is_a_whole_run(path: Path) -> None:
    cells = cells_of(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    kinds = {(output["output_type"], output.get("name", "stdout")) for cell in cells for output in cell["outputs"]}
    assert kinds
    assert kinds <= {("execute_result", "stdout"), ("stream", "stdout"), ("display_data", "stdout")}


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_it_runs(path: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", __file__, str(path)],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", "BRISTLE_CACHE": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    run(Path(sys.argv[1]))
