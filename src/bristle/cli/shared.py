"""Exit codes, options and Ctrl-C handling that commands share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from bristle.wire.identity import Identity

FAULT, BAD_INPUT, INTERRUPTED = 1, 2, 130

LOOPBACK = "127.0.0.1:0"
Dashboard = Annotated[
    bool, typer.Option("--dashboard", help="Serve a live page of the run; its address is shown on stderr.")
]
DashboardAt = Annotated[
    str,
    typer.Option(help="HOST:PORT of that page; port 0 for any free one. Not encrypted: keep it on this machine."),
]


def identity_of(folder: Path) -> Identity:
    """Return the identity of the peer in a folder."""
    from bristle.peer.store_files import IDENTITY  # noqa: PLC0415
    from bristle.wire.identity import Identity  # noqa: PLC0415

    if not (folder / IDENTITY).is_file():
        raise FileNotFoundError(f"{folder / IDENTITY}: there is no such file; put it back, or start the peer first")
    return Identity.load_or_create(folder / IDENTITY)


@contextmanager
def interruptible(what_stays: str) -> Iterator[None]:
    """Exit with one line on Ctrl-C, which says what was kept."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"\nbristle: interrupted; {what_stays}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None


def page_at(wanted: bool, at: str) -> tuple[str, int] | None:
    """Return where to serve a live page; None where none is wanted."""
    if not wanted and at == LOOPBACK:
        return None
    from bristle.commands.peer import address  # noqa: PLC0415 - it loads the network, which few commands need

    return address(at, "--dashboard-at")
