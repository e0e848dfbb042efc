"""A figure that notebooks show by themselves."""

from __future__ import annotations

import io

from matplotlib.figure import Figure


class NotebookFigure(Figure):
    """A matplotlib figure made without pyplot, whose state is the reader's own; a notebook draws it all the same."""

    def _repr_png_(self) -> bytes:
        """Return the picture, as notebooks ask for it."""
        picture = io.BytesIO()
        self.savefig(picture, format="png", dpi=110)
        return picture.getvalue()
