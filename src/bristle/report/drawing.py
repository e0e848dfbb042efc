"""Drawing the sections of a report, by one process or by several."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from bristle.report.content import Section
from bristle.report.figure import section_files
from bristle.report.page import section_part
from bristle.report.style import Styles

Drawn = tuple[str, dict[str, bytes]]
"""A section of the page, and its figures by the names of their files."""


def draw(sections: Sequence[Section], styles: Styles, *, processes: int) -> Iterator[Drawn]:
    """Yield the sections drawn, in order."""
    work, processes = partial(_draw, styles), min(processes, len(sections))
    if processes <= 1:
        yield from map(work, sections)
        return
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as others:
        yield from others.map(work, sections)


def _draw(styles: Styles, section: Section) -> Drawn:
    part, files = section_part(section, styles), {}
    if section.panels:
        files[f"{section.name}.png"], files[f"{section.name}.svg"] = section_files(section, styles)
    return part, files
