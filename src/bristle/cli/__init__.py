"""The command line: `bristle COMMAND`. Commands import what they need when they run, so that help is quick."""

from __future__ import annotations

import sys
from errno import EDQUOT, ENOSPC
from typing import Annotated

import typer

import bristle
from bristle.cli.peers import demo, invite, peer, revoke, status
from bristle.cli.shared import BAD_INPUT, FAULT
from bristle.cli.worlds import pretrain, report, reproduce, simulate, tune

app = typer.Typer(
    name="bristle",
    help="Learn together without a server and without trust.",
    epilog="Exit codes: 0 success, 1 internal or system error, such as a full disk, 2 invalid input, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for _command in (
    demo,
    simulate,
    tune,
    reproduce,
    pretrain,
    report,
    peer,
    invite,
    revoke,
    status,
):  # In the order of the help.
    app.command()(_command)


def main() -> None:
    """Run a command; report invalid input in one line."""
    try:
        app()
    except (ValueError, FileNotFoundError, FileExistsError, PermissionError, ModuleNotFoundError) as error:
        from bristle.peer.store_files import TryAgainError  # noqa: PLC0415

        print(f"bristle: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(FAULT if isinstance(error, TryAgainError) else BAD_INPUT)
    except OSError as error:
        if error.errno not in (ENOSPC, EDQUOT):
            raise
        print(f"bristle: {error}; free some space and start again", file=sys.stderr)
        sys.exit(FAULT)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"bristle {bristle.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Learn together without a server and without trust."""
