"""Reports of results: figures as in a paper, and one self-contained HTML file.

`write(report, folder)` takes plain values; `report_of(rows)` makes them from the rows of any run.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bristle._core.files import write_atomically
from bristle.report.content import Better, Finding, Line, LineKind, Panel, Report, Section, Source, Table
from bristle.report.from_rows import report_of

__all__ = [
    "Better",
    "Finding",
    "Line",
    "LineKind",
    "Panel",
    "Report",
    "Section",
    "Source",
    "Table",
    "report_of",
    "write",
]


def write(
    report: Report,
    folder: str | Path,
    *,
    progress: Callable[[int, int], None] | None = None,
    processes: int = 1,
) -> list[Path]:
    """Write report.html, and for every section with panels its figure as PNG and as SVG; return their paths.

    The same report gives the same bytes. Nothing is written before all of it is made. Needs matplotlib. `progress` is
    called with (sections drawn, total). Several `processes` draw large reports faster; a script
    that asks for them needs its `if __name__ == "__main__"`.
    """
    from bristle.report.page import draw, page  # noqa: PLC0415 - matplotlib is an extra
    from bristle.report.style import Styles  # noqa: PLC0415

    styles = Styles.of(line for section in report.sections for panel in section.panels for line in panel.lines)
    figures: dict[str, bytes] = {}
    parts = []
    for part, files in draw(report.sections, styles, processes=processes):
        parts.append(part)
        figures |= files
        if progress is not None:
            progress(len(parts), len(report.sections))
    made = {"report.html": page(report, parts, styles).encode(), **figures}
    folder = Path(folder)
    for name, content in made.items():
        write_atomically(folder / name, [content])
    return [folder / name for name in made]
