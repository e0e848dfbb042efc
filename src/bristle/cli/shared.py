"""What commands share: exit codes, options, and the answer to Ctrl-C."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

FAULT, BAD_INPUT, INTERRUPTED = 1, 2, 130

LOOPBACK = "127.0.0.1:0"
Dashboard = Annotated[
    bool, typer.Option("--dashboard", help="Serve a live page of the run; its address is shown on stderr.")
]
DashboardAt = Annotated[
    str,
    typer.Option(help="HOST:PORT of that page; port 0 is any that is free. Not encrypted: keep it on this machine."),
]


@contextmanager
def interruptible(what_stays: str) -> Iterator[None]:
    """Catch Ctrl-C and print one line that says what was kept."""
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
