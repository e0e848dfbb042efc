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
        typer.Option("--set", help="key=value that overrides the file's, e.g. rule.name=krum; may be repeated."),
    ] = None,
    seeds: Annotated[
        int, typer.Option(help="Number of seeds, from the file's on; with several, rows have confidence intervals too.")
    ] = 1,
    baselines: Annotated[
        bool,
        typer.Option(
            "--baselines", help="Also run peers that learn alone, and one head trained on all of their samples."
        ),
    ] = False,
    json: Annotated[Path | None, typer.Option(help="Write measurements to this file as JSON Lines.")] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="File for a checkpoint of the run.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the checkpoint, to the same results.")
    ] = False,
    decisions: Annotated[
        bool, typer.Option("--decisions", help="Keep the last decisions in the rows, for `bristle report` to show.")
    ] = False,
    dashboard: Dashboard = False,
    dashboard_at: DashboardAt = LOOPBACK,
) -> None:
    """Run one experiment: a world of peers and attackers, described in a TOML file.

    The tables are world, data, partition, rule, attack, topology, asynchrony and training; all have defaults.
    Rule, attack, dataset, backbone, partition and topology may be your own: name = "module:name".

    Example: bristle simulate ring.toml --set world.peers=50 --set attack.name=alie --json ring.jsonl
    """
    from bristle.commands.simulate import prepare, show  # noqa: PLC0415

    page = page_at(dashboard, dashboard_at)
    with interruptible("nothing was run"):
        experiment = prepare(
            file, set_ or (), checkpoint=checkpoint is not None, decisions=decisions or page is not None
        )
    kept = [f"the rows so far are in {json}"] if json else []
    kept += [f"--resume continues from {checkpoint}"] if checkpoint else []
    with interruptible(" and ".join(kept) or "use --json FILE and --checkpoint FILE to keep results"):
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
    file: Annotated[
        Path, typer.Argument(help="A TOML file that describes the world to search in, as for `bristle simulate`.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for the study and its result.")] = Path("tuning"),
    parameters: Annotated[
        str | None,
        typer.Option(
            help="Parameters to search, from alpha,beta,phi,kappa,eta,familiar,foreign,learning_rate.",
            show_default="all of the rule's; learning_rate if the file has it",
        ),
    ] = None,
    trials: Annotated[int, typer.Option(help="Number of trials; a later call with more continues from there.")] = 50,
    seeds: Annotated[int, typer.Option(help="Seeds per trial, from the file's on.")] = 3,
    seed: Annotated[int, typer.Option(help="Seed of the search.")] = 0,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="key=value that overrides the file's; may be repeated.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write a row per trial to this file as JSON Lines.")] = None,
) -> None:
    """Search for the rule's parameters in a world with data like yours, and write the best as TOML.

    Use a related dataset, not the one to be learned, and the attackers that you expect: without attackers, the best
    rule trusts all peers. The first trial is the file unchanged; trials that fall behind are pruned. In the end the
    best trial and the unchanged file are run with new seeds. Needs Optuna, from the extra named tune.

    The study is kept in the folder: after an interruption the same command continues, to the same result.

    Example: bristle tune letters.toml --parameters eta,familiar,foreign --trials 40 --out letters
    """
    from bristle.commands.simulate import prepare  # noqa: PLC0415
    from bristle.commands.tune import import_optuna, search_of  # noqa: PLC0415
    from bristle.commands.tune.view import show  # noqa: PLC0415

    import_optuna()
    with interruptible("nothing was run"):
        experiment = prepare(file, set_ or ())
        names = [] if parameters is None else parameters.split(",")
        search = search_of(experiment, parameters=names, trials=trials, seeds=seeds, seed=seed)
    with interruptible(f"finished trials are in {out}, and the same command continues from there"):
        show(search, out=out, name=file.stem, json=json)


def reproduce(
    figure: Annotated[
        list[str] | None, typer.Argument(help="Figures to reproduce; --list shows them.", show_default="all")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the figures and how many runs each needs.")] = False,
    rules: Annotated[
        str | None, typer.Option(help="Rules to run, separated by commas: bristle,fedavg.", show_default="the paper's")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds: 0, 1, ...", show_default="3")] = None,
    out: Annotated[Path, typer.Option(help="Folder for rows, figures and report.")] = Path("reproduction"),
    engine: Annotated[Literal["local", "ray"], typer.Option(help="Processes on this machine, or Ray.")] = "local",
    address: Annotated[
        str | None, typer.Option(help="Address of a Ray cluster, e.g. auto.", show_default="start one here")
    ] = None,
    full: Annotated[
        bool,
        typer.Option(
            "--full", help="Also every other rule, score and attack, and regular learning: about an hour on 2 cores."
        ),
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="A quick check: 1 seed, 50 iterations, some of the images.")
    ] = False,
    json: Annotated[Path | None, typer.Option(help="Also write the rows to this file as JSON Lines.")] = None,
) -> None:
    """Reproduce the paper's figures: run its worlds, and write tidy rows, figures and one report.

    The report shows our curves beside the author's, an oracle and peers that learn alone, and says which of the
    paper's claims held. Finished runs are kept in the folder: after an interruption the same command continues.

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
        raise ValueError(f"--address {address} is for a Ray cluster: add --engine ray")
    with interruptible(f"finished runs are in {out}, and the same command continues from there"):
        show(wanted, out, engine=engine, address=address, json_file=json)


def report(
    files: Annotated[list[Path], typer.Argument(help="Results as JSON Lines, from --json of other commands.")],
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("report"),
    title: Annotated[str | None, typer.Option(help="Title of the page.", show_default="Bristle: results")] = None,
) -> None:
    """Draw figures (PNG and SVG) and self-contained HTML pages from results files.

    report.html compares rules. run.html shows each run as its live page did; where the rows hold the last decisions
    (`simulate --decisions`, `demo`, `peer`), also how peers weighted each other, and why.

    Runs with the same figure name, attack, numbers and classes share a panel; seeds are averaged, with a band.
    Needs matplotlib, from the extra named plots.

    Example: bristle report krum.jsonl bristle.jsonl --out report
    """
    from bristle.commands.report import report_on  # noqa: PLC0415

    with interruptible("run the same command again"):
        written = report_on(files, out=out, title=title)
    figures = f", {written[1].name} and {len(written) - 2} figure files beside it" if len(written) > 1 else ""
    print(f"{written[0]}{figures}")


def pretrain(
    data: Annotated[
        str, typer.Argument(help="An .npz file, a folder of images with one subfolder per class, or mnist.")
    ],
    out: Annotated[Path, typer.Option(help="The ONNX file to write; a model card is written beside it.")],
    epochs: Annotated[int, typer.Option(help="Passes over the data; the learning rate decays to 0.")] = 40,
    seed: Annotated[int, typer.Option(help="Seed of all random draws.")] = 0,
    size: Annotated[int | None, typer.Option(help="Resize the images of a folder to this side in pixels.")] = None,
    rgb: Annotated[bool, typer.Option("--rgb", help="Keep the colours of a folder's images.")] = False,
    transfer: Annotated[
        str | None, typer.Option(help="Another dataset, to measure how well the features transfer.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="Device that torch uses, e.g. cpu or cuda.")] = None,
    restart: Annotated[bool, typer.Option("--restart", help="Start over, ignoring the checkpoint.")] = False,
    json: Annotated[
        Path | None, typer.Option(help="Write a row per epoch and the result to this file as JSON Lines.")
    ] = None,
) -> None:
    r"""Make a backbone: train the paper's network on any dataset and write its frozen layers as ONNX.

    Every epoch ends with a checkpoint; after an interruption the same command continues from it, to the same result.
    Needs torch: in the clone, pip install '.\[pretrain]'.

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
    with interruptible("the same command continues from the last epoch"), pretraining_progress() as progress:
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
