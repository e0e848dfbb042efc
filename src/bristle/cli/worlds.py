"""Commands about worlds and results: `simulate`, `tune`, `reproduce`, `report`, `pretrain`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from bristle.cli.shared import LOOPBACK, Dashboard, DashboardAt, interruptible, page_at
from bristle.commands.jsonl import write_rows


def simulate(
    file: Annotated[Path, typer.Argument(help="A TOML file that describes the world.")],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="key=value that replaces the file's, e.g. rule.name=krum; give it several times."),
    ] = None,
    seeds: Annotated[
        int, typer.Option(help="Run so many seeds, from the file's on; rows have means and confidence intervals too.")
    ] = 1,
    baselines: Annotated[
        bool,
        typer.Option(
            "--baselines", help="Run peers that learn alone too, and one head trained on everybody's samples."
        ),
    ] = False,
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
    from bristle.commands.simulate import prepare, show  # noqa: PLC0415

    page = page_at(dashboard, dashboard_at)
    with interruptible("it had not begun"):
        experiment = prepare(
            file, set_ or (), checkpoint=checkpoint is not None, decisions=decisions or page is not None
        )
    kept = [f"the rows so far are in {json}"] if json else []
    kept += [f"--resume goes on from {checkpoint}"] if checkpoint else []
    with interruptible(" and ".join(kept) or "with --json FILE and --checkpoint FILE what was done would be kept"):
        show(
            experiment,
            seeds=seeds,
            baselines=baselines,
            json=json,
            checkpoint=checkpoint,
            resume=resume,
            decisions=decisions,
            page=page,
        )


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
    from bristle.commands.simulate import prepare  # noqa: PLC0415
    from bristle.commands.tune import import_optuna, search_of  # noqa: PLC0415
    from bristle.commands.tune.view import show  # noqa: PLC0415

    import_optuna()
    with interruptible("it had not begun"):
        experiment = prepare(file, set_ or ())
        names = [] if parameters is None else parameters.split(",")
        search = search_of(experiment, parameters=names, trials=trials, seeds=seeds, seed=seed)
    with interruptible(f"what was run is in {out}, and the same command goes on from there"):
        show(search, out=out, name=file.stem, json=json)


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
    engine: Annotated[Literal["local", "ray"], typer.Option(help="Processes on this machine, or Ray.")] = "local",
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
    from bristle.commands.reproduce import list_figures, show  # noqa: PLC0415
    from bristle.paper.reproduce import wanted_of  # noqa: PLC0415

    names = [name.strip() for name in rules.split(",")] if rules is not None else []
    wanted = wanted_of(figure or (), rules=names, seeds=seeds, full=full, quick=quick)
    if list_:
        list_figures(wanted)
        return
    if address is not None and engine != "ray":
        raise ValueError(f"--address {address} is of a Ray cluster: add --engine ray")
    with interruptible(f"finished runs are in {out}, and the same command goes on from there"):
        show(wanted, out, engine=engine, address=address, json_file=json)


def report(
    files: Annotated[list[Path], typer.Argument(help="Results as JSON Lines, from --json of other commands.")],
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("report"),
    title: Annotated[str | None, typer.Option(help="What the page is called.", show_default="Bristle: results")] = None,
) -> None:
    """Draw results: figures (PNG and SVG) and self-contained HTML pages, from any results files.

    report.html compares rules. run.html shows each run as its live page did: where the rows hold the last decisions
    (`simulate --decisions`, `demo`, `peer`), also who listened to whom, and why.

    Runs with the same figure name, attack, numbers and classes share a panel; seeds are averaged, with a band.
    Needs matplotlib, which the extra named plots brings.

    Example: bristle report krum.jsonl bristle.jsonl --out report
    """
    from bristle.commands.report import report_on  # noqa: PLC0415

    with interruptible("nothing is lost: run it again"):
        written = report_on(files, out=out, title=title)
    figures = f", {written[1].name} and {len(written) - 2} figure files beside it" if len(written) > 1 else ""
    print(f"{written[0]}{figures}")


def pretrain(
    data: Annotated[str, typer.Argument(help="A .npz file, a folder of class folders with images, or mnist.")],
    out: Annotated[Path, typer.Option(help="The ONNX file to write; its card goes beside it.")],
    epochs: Annotated[int, typer.Option(help="Passes over the data; the learning rate falls to 0 over them.")] = 40,
    seed: Annotated[int, typer.Option(help="Of every random draw.")] = 0,
    size: Annotated[int | None, typer.Option(help="Side in pixels that images of a folder are brought to.")] = None,
    rgb: Annotated[bool, typer.Option("--rgb", help="Keep the colours of a folder's images.")] = False,
    transfer: Annotated[
        str | None, typer.Option(help="Another dataset, to measure what the features are worth there.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="Where torch computes, e.g. cpu or cuda.")] = None,
    restart: Annotated[bool, typer.Option("--restart", help="Begin anew, whatever checkpoint is there.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write a row per epoch and the result as JSON Lines.")] = None,
) -> None:
    r"""Make a backbone: train the paper's network on any dataset and write its frozen layers as ONNX.

    Every epoch ends with a checkpoint; after an interruption the same command goes on from it, to the same result.
    Needs torch: pip install 'bristle\[pretrain]'.

    Example: bristle pretrain emnist_letters.npz --out letters.onnx --transfer mnist
    """
    from bristle.backbones.pretrain import About, Recipe  # noqa: PLC0415
    from bristle.backbones.pretrain import pretrain as make_backbone  # noqa: PLC0415
    from bristle.commands.progress import pretraining_progress  # noqa: PLC0415
    from bristle.data import load  # noqa: PLC0415
    from bristle.data.images import Channels  # noqa: PLC0415

    channels: Channels = "rgb" if rgb else "gray"
    dataset = load(data, size=size, channels=channels)
    elsewhere = None if transfer is None else load(transfer, size=size, channels=channels)
    command = f"bristle pretrain {data} --out {out.name} --epochs {epochs} --seed {seed}"
    about = About(data=f"{dataset.name}.", command=command, transfer=elsewhere.name if elsewhere else "another dataset")
    with interruptible("the same command goes on from the last epoch"), pretraining_progress() as progress:
        made = make_backbone(
            dataset,
            out=out,
            recipe=Recipe(epochs=epochs),
            seed=seed,
            device=device,
            resume=not restart,
            transfer=elsewhere,
            about=about,
            progress=progress,
        )
    if json is not None:
        rows = [{"epoch": number, **asdict(epoch)} for number, epoch in enumerate(made.history, start=1)]
        rows.append({"backbone": str(made.backbone), "digest": made.digest, "accuracy": made.accuracy})
        write_rows(json, rows)
    print(f"{made.backbone}: {made.accuracy:.2%} on the test images of {dataset.name}; see {made.card}")
