"""Commands that end with something to look at: `reproduce` and `report`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bristle.cli.shared import interruptible


class Engine(StrEnum):
    """Who runs the worlds of a reproduction."""

    local = "local"
    ray = "ray"


def reproduce(
    figure: Annotated[
        list[str] | None, typer.Argument(help="Which figures; --list names them.", show_default="all")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Name the figures and how many runs each needs.")] = False,
    rules: Annotated[
        str | None, typer.Option(help="Rules to run, with commas between: bristle,fedavg.", show_default="the paper's")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds: 0, 1, ...", show_default="3")] = None,
    out: Annotated[Path, typer.Option(help="The folder for rows, pictures and report.")] = Path("reproduction"),
    engine: Annotated[Engine, typer.Option(help="Processes on this machine, or Ray.")] = Engine.local,
    address: Annotated[
        str | None, typer.Option(help="Of a Ray cluster, e.g. auto.", show_default="a Ray of its own")
    ] = None,
    full: Annotated[
        bool,
        typer.Option(
            "--full", help="Every other rule, score and attack too, and regular learning: about an hour on 2 cores."
        ),
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="See that all works: 1 seed, 50 iterations, some of the images.")
    ] = False,
    json: Annotated[Path | None, typer.Option(help="Write the rows as JSON Lines here as well.")] = None,
) -> None:
    """Reproduce the paper's figures: run its worlds, and write tidy rows, pictures and one report.

    The report puts ours, the author's own curves, an oracle and peers that learn alone side by side, and says which of
    the paper's claims held. Finished runs are kept in the folder: after an interruption the same command goes on.

    Example: bristle reproduce byzantine-non-iid --rules bristle,fedavg,median --seeds 1 --out flips
    """
    from bristle.apps.reproduce_view import list_figures, show  # noqa: PLC0415
    from bristle.paper.reproduce import wanted_of  # noqa: PLC0415

    names = [name.strip() for name in rules.split(",")] if rules is not None else []
    wanted = wanted_of(figure or (), rules=names, seeds=seeds, full=full, quick=quick)
    if list_:
        list_figures(wanted)
        return
    if address is not None and engine is not Engine.ray:
        raise ValueError(f"--address {address} is of a Ray cluster: add --engine ray")
    with interruptible(f"finished runs are in {out}, and the same command goes on from there"):
        show(wanted, out, engine=engine.value, address=address, json_file=json)


def report(
    files: Annotated[list[Path], typer.Argument(help="Results as JSON Lines, from --json of other commands.")],
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("report"),
    title: Annotated[str | None, typer.Option(help="What the page is called.", show_default="Bristle: results")] = None,
) -> None:
    """Look at results: figures (PNG and SVG) and HTML pages that need nothing else, from any results files.

    report.html compares rules. run.html shows each run as its live page did: where the rows hold the last decisions
    (`simulate --decisions`, `demo`, `peer`), also who listened to whom, and why.

    Runs with the same figure name, attack, numbers and classes share a panel; seeds are averaged, with a band.
    Needs matplotlib, which the extra named plots brings.

    Example: bristle report krum.jsonl bristle.jsonl --out report
    """
    from bristle.apps.report import report_on  # noqa: PLC0415

    with interruptible("nothing is lost: run it again"):
        written = report_on(files, out=out, title=title)
    figures = f", {written[1].name} and {len(written) - 2} figure files beside it" if len(written) > 1 else ""
    print(f"{written[0]}{figures}")
