"""Parts of a document that scripts write: between two comments that name them."""

from __future__ import annotations

from pathlib import Path


def replace_section(document: Path, name: str, text: str) -> None:
    """Put a text between the comments that begin and end a section."""
    start, end = f"<!-- {name}: written by benchmarks/{name}.py -->", f"<!-- end of {name} -->"
    before, found, rest = document.read_text(encoding="utf-8").partition(start)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{document} has no part between {start!r} and {end!r}: add both lines")
    document.write_text(f"{before}{start}\n{text.strip()}\n{end}{after}", encoding="utf-8")
