"""The command line: `bristle COMMAND`. Commands import what they need when they run, so that help is quick."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from errno import EDQUOT, ENOSPC
from json import dumps
from pathlib import Path
from typing import Annotated

import typer

import bristle
from bristle.apps.peer_choices import HeadEncoding, LogFormat
from bristle.apps.rows import write_rows

FAULT, BAD_INPUT, INTERRUPTED = 1, 2, 130


class Engine(StrEnum):
    """Who runs the worlds of a reproduction."""

    local = "local"
    ray = "ray"


LOOPBACK = "127.0.0.1:0"
Dashboard = Annotated[
    bool, typer.Option("--dashboard", help="Serve a live page of the run; its address is shown on stderr.")
]
DashboardAt = Annotated[
    str,
    typer.Option(help="HOST:PORT of that page; port 0 is any that is free. Not encrypted: keep it on this machine."),
]

app = typer.Typer(
    name="bristle",
    help="Learn together without a server and without trust.",
    epilog="Exit codes: 0 done, 1 a fault of ours or of the machine, such as a full disk, 2 something about the input "
    "is wrong, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run a command; what is wrong with the input is said in one line."""
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


@contextmanager
def _interruptible(what_stays: str) -> Iterator[None]:
    """Answer Ctrl-C with one line that says what was kept."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"\nbristle: interrupted; {what_stays}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None


def _page(wanted: bool, at: str) -> tuple[str, int] | None:
    """Return where to serve a live page; None where none is wanted."""
    from bristle.apps.peer_options import address  # noqa: PLC0415

    return address(at, "--dashboard-at") if wanted or at != LOOPBACK else None


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Learn together without a server and without trust."""


@app.command()
def demo(
    peers: Annotated[int, typer.Option(help="Benign peers.")] = 10,
    attackers: Annotated[int, typer.Option(help="Attackers on top of them.")] = 5,
    attack: Annotated[
        str, typer.Option(help="What the attackers send, e.g. label-flip, additive-noise, alie, sybil.")
    ] = "label-flip",
    rule: Annotated[str, typer.Option(help="What benign peers make of the heads that they receive.")] = "bristle-plus",
    classes: Annotated[int, typer.Option(help="Classes that each peer holds, of 10.")] = 4,
    loss: Annotated[float, typer.Option(help="Share of datagrams that a relay between the peers loses.")] = 0.0,
    iterations: Annotated[int, typer.Option(help="How long to learn.")] = 100,
    quick: Annotated[
        bool, typer.Option("--quick", help="See that all works: at most 5 peers, 2 attackers and 20 iterations.")
    ] = False,
    processes: Annotated[
        int | None, typer.Option(help="Processes that the peers are spread over.", show_default="1")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of every random draw.")] = 0,
    json: Annotated[Path | None, typer.Option(help="Write the measurements as JSON Lines, as they come.")] = None,
    out: Annotated[Path, typer.Option(help="The folder for rows, pictures and report.")] = Path("out/demo"),
    dashboard: Dashboard = False,
    dashboard_at: DashboardAt = LOOPBACK,
) -> None:
    """See a real network at work on this machine: peers with a few digits each learn all ten among attackers.

    Every peer and attacker has a UDP socket on 127.0.0.1 and an identity of its own; nothing leaves this machine. In
    the end it is compared with FedAvg under the same attack, with peers that learn alone, and with an oracle. Ctrl-C
    ends it with what there is.

    Example: bristle demo --attack additive-noise --attackers 8 --loss 0.2
    """
    from bristle.apps.demo import PROCESSES, Demo  # noqa: PLC0415
    from bristle.apps.demo_relay import Impairment  # noqa: PLC0415
    from bristle.apps.demo_view import show  # noqa: PLC0415

    wanted = Demo(
        peers=peers,
        attackers=attackers,
        attack=attack,
        rule=rule,
        classes_per_peer=classes,
        impairment=Impairment(loss=loss) if loss else None,
        iterations=iterations,
        processes=PROCESSES if processes is None else processes,
        seed=seed,
    )
    if quick:
        wanted = wanted.shortened()
    with _interruptible(f"the rows so far are in {json or out}"):
        show(wanted, out=out, json=json, page=_page(dashboard, dashboard_at))


@app.command()
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

    page = _page(dashboard, dashboard_at)
    with _interruptible("it had not begun"):
        experiment = prepare_experiment(file, set_ or ())
    kept = [f"the rows so far are in {json}"] if json else []
    kept += [f"--resume goes on from {checkpoint}"] if checkpoint else []
    with _interruptible(" and ".join(kept) or "with --json FILE and --checkpoint FILE what was done would be kept"):
        show(experiment, json=json, checkpoint=checkpoint, resume=resume, decisions=decisions, page=page)


@app.command()
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
    with _interruptible("it had not begun"):
        experiment = prepare_experiment(file, set_ or ())
        names = [] if parameters is None else parameters.split(",")
        search = search_of(experiment, parameters=names, trials=trials, seeds=seeds, seed=seed)
    with _interruptible(f"what was run is in {out}, and the same command goes on from there"):
        show(search, out=out, name=file.stem, json=json)


@app.command()
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
        bool, typer.Option("--full", help="Every other rule, score and attack too, and regular learning. Hours.")
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
    from bristle.apps.reproduce import wanted_of  # noqa: PLC0415
    from bristle.apps.reproduce_view import list_figures, show  # noqa: PLC0415

    names = [name.strip() for name in rules.split(",")] if rules is not None else []
    wanted = wanted_of(figure or (), rules=names, seeds=seeds, full=full, quick=quick)
    if list_:
        list_figures(wanted)
        return
    if address is not None and engine is not Engine.ray:
        raise ValueError(f"--address {address} is of a Ray cluster: add --engine ray")
    with _interruptible(f"finished runs are in {out}, and the same command goes on from there"):
        show(wanted, out, engine=engine.value, address=address, json_file=json)


@app.command()
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
    """Make a backbone: train the paper's network on any dataset and write its frozen layers as ONNX.

    Every epoch ends with a checkpoint; after an interruption the same command goes on from it, to the same result.
    Needs torch: pip install 'bristle[pretrain]'.

    Example: bristle pretrain emnist_letters.npz --out letters.onnx --transfer mnist
    """
    from bristle.apps.pretrain import About, Recipe  # noqa: PLC0415
    from bristle.apps.pretrain import pretrain as make_backbone  # noqa: PLC0415
    from bristle.apps.pretrain_progress import pretraining_progress  # noqa: PLC0415
    from bristle.data import load  # noqa: PLC0415
    from bristle.data.images import Channels  # noqa: PLC0415

    channels: Channels = "rgb" if rgb else "gray"
    dataset = load(data, size=size, channels=channels)
    elsewhere = None if transfer is None else load(transfer, size=size, channels=channels)
    command = f"bristle pretrain {data} --out {out.name} --epochs {epochs} --seed {seed}"
    about = About(data=f"{dataset.name}.", command=command, transfer=elsewhere.name if elsewhere else "another dataset")
    with _interruptible("the same command goes on from the last epoch"), pretraining_progress() as progress:
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


@app.command()
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

    with _interruptible("nothing is lost: run it again"):
        written = report_on(files, out=out, title=title)
    figures = f", {written[1].name} and {len(written) - 2} figure files beside it" if len(written) > 1 else ""
    print(f"{written[0]}{figures}")


@app.command()
def peer(
    application: Annotated[str, typer.Option(help="What the group learns; the same for all its peers.")],
    folder: Annotated[Path, typer.Option(help="Where identity and state are kept; one folder a peer.")],
    data: Annotated[
        str | None, typer.Option(help="An .npz file, a folder of class folders with images, or mnist.")
    ] = None,
    classes: Annotated[
        str | None, typer.Option(help="Which classes of the data are this peer's, e.g. 0,1,2,3.", show_default="all")
    ] = None,
    group_classes: Annotated[
        str | None, typer.Option(help="All classes of the group, where the data do not have them all.")
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Use at most so many of each class.", show_default="all")] = None,
    backbone: Annotated[str, typer.Option(help="bundled, an ONNX file, or your own as module:name.")] = "bundled",
    listen: Annotated[
        str, typer.Option(help="HOST:PORT to receive on; port 0 is any that is free. 0.0.0.0 lets others in.")
    ] = "127.0.0.1:0",
    known: Annotated[
        list[str] | None, typer.Option(help="HOST:PORT of a peer to begin with; give it several times.")
    ] = None,
    beacon: Annotated[int | None, typer.Option(help="Port on which to find peers in the local network.")] = None,
    secret_file: Annotated[
        Path | None, typer.Option(help="File with the secret of a closed group, at least 16 bytes.")
    ] = None,
    members_file: Annotated[
        Path | None, typer.Option(help="File with the key ids of a closed group, one a line.")
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option(help="What to make of received heads: a name, or module:name.", show_default="bristle-plus"),
    ] = None,
    encoding: Annotated[
        HeadEncoding, typer.Option(help="How numbers are sent: fewer bytes, or more digits.")
    ] = HeadEncoding.FLOAT32,
    share_clip: Annotated[
        float | None, typer.Option(help="Shorten rows of the shared head to that norm.", show_default="never")
    ] = None,
    share_noise: Annotated[
        float, typer.Option(help="Noise on the shared head, 1 as loud as itself: it reveals less, and teaches less.")
    ] = 0.0,
    interval: Annotated[float, typer.Option(help="Seconds between iterations, at least.")] = 1.0,
    only_on_power: Annotated[bool, typer.Option("--only-on-power", help="Rest while on battery.")] = False,
    hours: Annotated[str | None, typer.Option(help="Work only then, in local time, e.g. 22-6 or 21:30-06:15.")] = None,
    max_bytes_per_hour: Annotated[int | None, typer.Option(help="Share no head beyond that.")] = None,
    max_bytes_per_day: Annotated[int | None, typer.Option(help="Share no head beyond that.")] = None,
    cpu_share: Annotated[float | None, typer.Option(help="Use at most that much of one processor, e.g. 0.25.")] = None,
    http: Annotated[
        str | None, typer.Option(help="PORT, or HOST:PORT, to serve predictions, samples, status and metrics on.")
    ] = None,
    iterations: Annotated[int | None, typer.Option(help="Stop after so many.", show_default="never")] = None,
    test_every: Annotated[int, typer.Option(help="Measure the accuracy on the data's test set every so many.")] = 10,
    seed: Annotated[int | None, typer.Option(help="Of every random draw.", show_default="from the identity")] = None,
    log_format: Annotated[
        LogFormat, typer.Option(help="Log on stderr for people, or a JSON object a line.")
    ] = LogFormat.TEXT,
    json: Annotated[Path | None, typer.Option(help="Append a row per iteration as JSON Lines, with reasons.")] = None,
    dashboard: Dashboard = False,
    dashboard_at: DashboardAt = LOOPBACK,
) -> None:
    """Run one peer of a group on your own data: learn, share, and check what others share, until stopped.

    What it has learnt is kept in its folder after every iteration; the same command goes on from there.
    Ctrl-C and SIGTERM end it gracefully. `bristle status FOLDER` says what it is doing.

    Example: bristle peer --application digits --folder one --data mnist --classes 0,1,2,3,4,5,6 --listen 0.0.0.0:7700

    Another: bristle peer --application digits --folder two --data mnist --classes 3,4,5,6,7,8,9 --known HOST:7700
    """
    from bristle.apps.peer import run_peer  # noqa: PLC0415
    from bristle.apps.peer_log import log_to_stderr  # noqa: PLC0415
    from bristle.apps.peer_options import PeerOptions  # noqa: PLC0415

    options = PeerOptions(
        application=application, folder=folder, data=data, classes=classes, group_classes=group_classes,
        samples=samples, backbone=backbone, listen=listen, known=tuple(known or ()), beacon=beacon,
        secret_file=secret_file, members_file=members_file, rule=rule, encoding=encoding.value, share_clip=share_clip,
        share_noise=share_noise, interval=interval,
        only_on_power=only_on_power, hours=hours, max_bytes_per_hour=max_bytes_per_hour,
        max_bytes_per_day=max_bytes_per_day, cpu_share=cpu_share, http=http, iterations=iterations,
        test_every=test_every, seed=seed, json=json, page=_page(dashboard, dashboard_at),
    )  # fmt: skip
    log_to_stderr(log_format)
    with _interruptible(f"the same command goes on from {folder}"):
        finished = run_peer(options)
    if not finished:
        raise typer.Exit(INTERRUPTED)


@app.command()
def status(
    folder: Annotated[Path, typer.Argument(help="The folder of the peer.")],
    json: Annotated[Path | None, typer.Option(help="Write the status as JSON; - for the screen.")] = None,
) -> None:
    """Say what a peer does, or did before it stopped: iteration, neighbours, bytes, refusals and the last decision.

    A running peer with --http is asked itself; otherwise its folder is read, which changes nothing.

    Example: bristle status peer-1
    """
    from bristle.apps.status import get_status, show  # noqa: PLC0415

    found = get_status(folder)
    if json is None:
        show(found)
    elif str(json) == "-":
        print(dumps(found.to_dict()))
    else:
        write_rows(json, [found.to_dict()])
