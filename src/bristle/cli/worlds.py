"""Commands about simulated worlds of one's own: `simulate` and `tune`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bristle.cli.shared import LOOPBACK, Dashboard, DashboardAt, interruptible, page_at


def simulate(
    file: Annotated[Path, typer.Argument(help="A TOML file that describes the world.")],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="key=value that replaces the file's, e.g. rule.name=krum; give it several times."),
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write the measurements as JSON Lines, as they come.")] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Where to keep a checkpoint of the run.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint, to the same results.")] = False,
    decisions: Annotated[
        bool, typer.Option("--decisions", help="Keep the last decisions in the rows, for `bristle report` to show.")
    ] = False,
    dashboard: Dashboard = False,
    dashboard_at: DashboardAt = LOOPBACK,
) -> None:
    """Run one experiment of your own: a world of peers and attackers, described in a TOML file.

    The tables are world, data, partition, rule, attack, topology, asynchrony and training; all have defaults.
    Rule, attack, dataset, backbone, partition and topology may be your own: name = "module:name".

    Example: bristle simulate ring.toml --set world.peers=50 --set attack.name=alie --json ring.jsonl
    """
    from bristle.apps.simulate import prepare_experiment, show  # noqa: PLC0415

    page = page_at(dashboard, dashboard_at)
    with interruptible("it had not begun"):
        experiment = prepare_experiment(file, set_ or ())
    kept = [f"the rows so far are in {json}"] if json else []
    kept += [f"--resume goes on from {checkpoint}"] if checkpoint else []
    with interruptible(" and ".join(kept) or "with --json FILE and --checkpoint FILE what was done would be kept"):
        show(experiment, json=json, checkpoint=checkpoint, resume=resume, decisions=decisions, page=page)


def tune(
    file: Annotated[Path, typer.Argument(help="The world to search in, as TOML: that of `bristle simulate`.")],
    out: Annotated[Path, typer.Option(help="The folder for the study and what it finds.")] = Path("tuning"),
    parameters: Annotated[
        str | None,
        typer.Option(
            help="What to search for, of alpha,beta,phi,kappa,eta,familiar,foreign,learning_rate.",
            show_default="all of the rule's; learning_rate if the file has it",
        ),
    ] = None,
    trials: Annotated[int, typer.Option(help="How many settings to try; more later go on from there.")] = 50,
    seeds: Annotated[int, typer.Option(help="Worlds for each trial, with seeds from the file's on.")] = 3,
    seed: Annotated[int, typer.Option(help="Of what is tried.")] = 0,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Replace a setting: key=value. Give it several times.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write a row for each trial as JSON Lines.")] = None,
) -> None:
    """Search for the rule's parameters in a world with data like yours, and write the best as TOML.

    Take a related dataset that you have, not the one to be learned, and attackers such as you expect: without any,
    nothing speaks against trusting everybody. The first trial is the file as it is; trials that are behind after a seed
    are given up. In the end the best and the file as it is are run with new seeds. Needs Optuna, which the extra named
    tune brings.

    All is kept in the folder: after an interruption the same command goes on, to the same result.

    Example: bristle tune letters.toml --parameters eta,familiar,foreign --trials 40 --out letters
    """
    from bristle.apps.simulate import prepare_experiment  # noqa: PLC0415
    from bristle.apps.tune import import_optuna, search_of  # noqa: PLC0415
    from bristle.apps.tune_view import show  # noqa: PLC0415

    import_optuna()
    with interruptible("it had not begun"):
        experiment = prepare_experiment(file, set_ or ())
        names = [] if parameters is None else parameters.split(",")
        search = search_of(experiment, parameters=names, trials=trials, seeds=seeds, seed=seed)
    with interruptible(f"what was run is in {out}, and the same command goes on from there"):
        show(search, out=out, name=file.stem, json=json)
