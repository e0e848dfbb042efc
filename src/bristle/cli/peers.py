"""Commands about real peers: `demo`, `peer` and `status`."""

from __future__ import annotations

from enum import StrEnum
from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from bristle.cli.shared import INTERRUPTED, LOOPBACK, Dashboard, DashboardAt, interruptible, page_at
from bristle.commands.jsonl import write_rows


class LogFormat(StrEnum):
    """How the log is written."""

    TEXT = "text"
    JSON = "json"


class HeadEncoding(StrEnum):
    """How the numbers of a head are sent."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    INT8 = "int8"


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
    from bristle.commands.demo import PROCESSES, Demo  # noqa: PLC0415
    from bristle.commands.demo.relay import Impairment  # noqa: PLC0415
    from bristle.commands.demo.view import show  # noqa: PLC0415

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
    with interruptible(f"the rows so far are in {json or out}"):
        show(wanted, out=out, json=json, page=page_at(dashboard, dashboard_at))


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
    given = dict(locals())
    from bristle.commands.peer import PeerOptions, log_to_stderr, run_peer  # noqa: PLC0415

    for name in ("dashboard", "dashboard_at", "log_format"):
        del given[name]
    # All other options have the same names there.
    given |= {"known": tuple(known or ()), "encoding": encoding.value, "page": page_at(dashboard, dashboard_at)}
    log_to_stderr(as_json=log_format is LogFormat.JSON)
    with interruptible(f"the same command goes on from {folder}"):
        finished = run_peer(PeerOptions(**given))
    if not finished:
        raise typer.Exit(INTERRUPTED)


def status(
    folder: Annotated[Path, typer.Argument(help="The folder of the peer.")],
    json: Annotated[Path | None, typer.Option(help="Write the status as JSON; - for the screen.")] = None,
) -> None:
    """Say what a peer does, or did before it stopped: iteration, neighbours, bytes, refusals and the last decision.

    A running peer with --http is asked itself; otherwise its folder is read, which changes nothing.

    Example: bristle status peer-1
    """
    from bristle.commands.status import get_status, show  # noqa: PLC0415

    found = get_status(folder)
    if json is None:
        show(found)
    elif str(json) == "-":
        print(dumps(found.to_dict()))
    else:
        write_rows(json, [found.to_dict()])
