"""Parts of a document that scripts write: between two comments that name them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path


def run_as_script(about: str | None, name: str, section: Callable[[], str]) -> None:
    """Print a section, and put it into the Markdown file that `--out` names, if any."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="replace the section in this Markdown file")
    options = parser.parse_args()
    made = section()
    print(made)
    if options.out:
        replace_section(options.out, name, made)


def table_of(title: str, words: list[str], columns: list[str], rows: list[str]) -> str:
    """Return a section with a heading, some lines of text and a table."""
    head = f"| {' | '.join(columns)} |"
    return "\n".join([f"## {title}", "", *words, "", head, "|---" * len(columns) + "|", *rows])


def replace_section(document: Path, name: str, text: str) -> None:
    """Put a text between the comments that begin and end a section."""
    start, end = f"<!-- {name}: written by benchmarks/{name}.py -->", f"<!-- end of {name} -->"
    before, found, rest = document.read_text(encoding="utf-8").partition(start)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{document} has no part between {start!r} and {end!r}: add both lines")
    document.write_text(f"{before}{start}\n{text.strip()}\n{end}{after}", encoding="utf-8")
