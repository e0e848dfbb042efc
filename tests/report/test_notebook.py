"""A figure in a notebook, asked as a notebook asks."""

from __future__ import annotations

from bristle.report.notebook import NotebookFigure


def test_a_notebook_gets_a_picture() -> None:
    figure = NotebookFigure(figsize=(2, 1))
    figure.add_subplot().plot([0, 1], [1, 0])
    assert figure._repr_png_().startswith(b"\x89PNG\r\n")
