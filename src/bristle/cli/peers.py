"""Commands about real peers: `demo`, `peer` and `status`."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import Annotated, Literal

import typer

from bristle.cli.shared import INTERRUPTED, LOOPBACK, Dashboard, DashboardAt, identity_of, interruptible, page_at
from bristle.commands.jsonl import write_rows


def demo(
    peers: Annotated[int, typer.Option(help="Number of benign peers.")] = 10,
    attackers: Annotated[int, typer.Option(help="Number of attackers, in addition to the peers.")] = 5,
    attack: Annotated[
        str, typer.Option(help="The attack, e.g. label-flip, additive-noise, alie or sybil.")
    ] = "label-flip",
    rule: Annotated[str, typer.Option(help="Rule of the benign peers.")] = "evidence",
    classes: Annotated[int, typer.Option(help="Classes per peer, of 10.")] = 4,
    loss: Annotated[float, typer.Option(help="Fraction of datagrams lost by a relay between the peers.")] = 0.0,
    iterations: Annotated[int, typer.Option(help="Number of iterations.")] = 100,
    quick: Annotated[
        bool, typer.Option("--quick", help="Try it in a few seconds: at most 5 peers, 2 attackers and 20 iterations.")
    ] = False,
    processes: Annotated[
        int | None, typer.Option(help="Number of processes to run the peers in.", show_default="1")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of all random draws.")] = 0,
    json: Annotated[Path | None, typer.Option(help="Write measurements to this file as JSON Lines.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for rows, figures and report.")] = Path("out/demo"),
    dashboard: Dashboard = False,
    dashboard_at: DashboardAt = LOOPBACK,
) -> None:
    """Run a real network on this machine: peers with a few digits each learn all ten, despite attackers.

    Every peer and attacker has its own identity and UDP socket on 127.0.0.1; nothing leaves this machine. The result is
    compared with FedAvg under the same attack, with peers that learn alone, and with an oracle. Ctrl-C stops it and
    reports the results so far.

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
    application: Annotated[str, typer.Option(help="Name of the application; the same for all peers of the group.")],
    folder: Annotated[Path, typer.Option(help="Folder for identity and state; one per peer.")],
    data: Annotated[
        str | None, typer.Option(help="An .npz file, a folder of images with one subfolder per class, or mnist.")
    ] = None,
    classes: Annotated[
        str | None, typer.Option(help="Classes of the data to use, e.g. 0,1,2,3.", show_default="all")
    ] = None,
    group_classes: Annotated[
        str | None, typer.Option(help="All classes of the group, if the data do not have them all.")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(help="Largest number of samples per class.", show_default="all")
    ] = None,
    backbone: Annotated[
        str, typer.Option(help="bundled, none for data that are features already, an ONNX file, or module:name.")
    ] = "bundled",
    head: Annotated[
        Path | None,
        typer.Option(help="A head as safetensors to start from, if the folder holds none yet.", show_default="zeros"),
    ] = None,
    listen: Annotated[
        str,
        typer.Option(help="HOST:PORT to listen on; port 0 for any free one, 0.0.0.0 for access from outside."),
    ] = "127.0.0.1:0",
    known: Annotated[
        list[str] | None, typer.Option(help="HOST:PORT of a peer to contact first; may be repeated.")
    ] = None,
    beacon: Annotated[int | None, typer.Option(help="UDP port for discovery in the local network.")] = None,
    forward: Annotated[
        bool,
        typer.Option(help="Forward sealed datagrams between neighbours that cannot reach each other; not under a cap."),
    ] = True,
    secret_file: Annotated[
        Path | None, typer.Option(help="File with the secret of a closed group, at least 16 bytes.")
    ] = None,
    members_file: Annotated[
        Path | None, typer.Option(help="File with the key ids of a closed group, one per line.")
    ] = None,
    found: Annotated[
        bool, typer.Option("--found", help="Found a closed group of this peer and those that its members invite.")
    ] = False,
    founders_file: Annotated[
        Path | None,
        typer.Option(help="File with the key ids of several founders of such a group, one per line."),
    ] = None,
    invitation_file: Annotated[
        Path | None, typer.Option(help="File with an invitation to such a group, from: bristle invite.")
    ] = None,
    one_voice: Annotated[
        int | None,
        typer.Option(
            help="In such a group, count all members invited through one member as one owner of a class: 1, a member "
            "that a founder invited; 0, a founder.",
            show_default="every member counts",
        ),
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option(
            help="Rule: evidence, one that exchanges heads such as bristle, or your own as module:name.",
            show_default="evidence",
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(help="State with noise: differentially private for one sample more or less.", show_default="none"),
    ] = None,
    clip: Annotated[
        float | None, typer.Option(help="For --epsilon: the norm to clip features to, of a typical public sample.")
    ] = None,
    releases: Annotated[int, typer.Option(help="For --epsilon: how many statements it covers.")] = 1,
    share_clip: Annotated[
        float | None, typer.Option(help="Clip the rows of the shared head to this norm.", show_default="never")
    ] = None,
    share_noise: Annotated[
        float,
        typer.Option(help="Noise on the shared head, relative to its norm: it reveals less, and helps less."),
    ] = 0.0,
    interval: Annotated[float, typer.Option(help="Minimum seconds between the starts of iterations.")] = 1.0,
    only_on_power: Annotated[bool, typer.Option("--only-on-power", help="Pause on battery.")] = False,
    hours: Annotated[
        str | None, typer.Option(help="Work only at these hours, in local time, e.g. 22-6 or 21:30-06:15.")
    ] = None,
    max_bytes_per_hour: Annotated[int | None, typer.Option(help="Cap on sent bytes per hour.")] = None,
    max_bytes_per_day: Annotated[int | None, typer.Option(help="Cap on sent bytes per day.")] = None,
    cpu_share: Annotated[float | None, typer.Option(help="Largest share of one processor, e.g. 0.25.")] = None,
    http: Annotated[
        str | None,
        typer.Option(help="PORT or HOST:PORT to serve predictions, samples, status and metrics over HTTP."),
    ] = None,
    iterations: Annotated[
        int | None, typer.Option(help="Stop after this many iterations.", show_default="never")
    ] = None,
    test_every: Annotated[
        int, typer.Option(help="Iterations between measurements of the accuracy, if the data have a test set.")
    ] = 10,
    seed: Annotated[
        int | None, typer.Option(help="Seed of all random draws.", show_default="from the identity")
    ] = None,
    log_format: Annotated[
        Literal["text", "json"], typer.Option(help="Format of the log on stderr: text, or JSON Lines.")
    ] = "text",
    json: Annotated[
        Path | None, typer.Option(help="Append a row per iteration, with all decisions, to this file as JSON Lines.")
    ] = None,
    dashboard: Dashboard = False,
    dashboard_at: DashboardAt = LOOPBACK,
) -> None:
    """Run one peer of a group on your own data until stopped: publish a statement, and learn from those of others.

    With --rule bristle, or another rule for heads, it trains a head, shares it, and tests the heads of others.

    Its state is saved in its folder after every iteration; the same command continues from there. Ctrl-C and SIGTERM
    stop it gracefully. `bristle status FOLDER` shows what it is doing.

    Example: bristle peer --application digits --folder one --data mnist --classes 0,1,2,3,4,5,6 --listen 0.0.0.0:7700

    Another: bristle peer --application digits --folder two --data mnist --classes 3,4,5,6,7,8,9 --known HOST:7700
    """
    given = dict(locals())
    from bristle.commands.peer import PeerOptions, log_to_stderr, run_peer  # noqa: PLC0415

    for name in ("dashboard", "dashboard_at", "log_format"):
        del given[name]
    # All other options have the same names there.
    given |= {"known": tuple(known or ()), "page": page_at(dashboard, dashboard_at)}
    log_to_stderr(as_json=log_format == "json")
    with interruptible(f"the same command continues from {folder}"):
        finished = run_peer(PeerOptions(**given))
    if not finished:
        raise typer.Exit(INTERRUPTED)


def invite(
    folder: Annotated[Path, typer.Argument(help="Folder of a peer that is a member, running or not.")],
    whom: Annotated[
        str | None,
        typer.Option("--for", help="Key id of the invitee.", show_default="the first to use the invitation"),
    ] = None,
    seats: Annotated[int, typer.Option(help="How many others the invitee may invite.")] = 0,
    days: Annotated[
        float | None, typer.Option(help="How long the membership lasts.", show_default="without end")
    ] = None,
) -> None:
    """Invite a peer to a founded group: print an invitation, to be handed over in private.

    The invitee runs `bristle peer --invitation-file`, with the same application, classes, backbone and secret.

    Example: bristle invite one --seats 2 --days 90 > for-two.txt
    """
    from bristle.peer.admission import invite as invitation  # noqa: PLC0415
    from bristle.peer.roster_file import RosterFile  # noqa: PLC0415

    with RosterFile.of_member(folder) as file:
        print(invitation(file, identity_of(folder), whom, seats=seats, days=days))


def revoke(
    folder: Annotated[Path, typer.Argument(help="Folder of a peer that is a member, running or not.")],
    member: Annotated[str, typer.Argument(help="Key id of the member to remove; `bristle status` shows all.")],
) -> None:
    """Remove a member and all that it invited from a founded group. A running peer tells others within a second.

    Only its inviter, a member between it and its founder, or a founder can do that.

    Example: bristle revoke one 3f2c...
    """
    from bristle.peer.admission import key_id_from  # noqa: PLC0415
    from bristle.peer.roster_file import RosterFile  # noqa: PLC0415
    from bristle.peer.store_files import is_running  # noqa: PLC0415

    with RosterFile.of_member(folder) as file:
        before = len(file.roster().members())
        file.revoke(identity_of(folder), key_id_from(member))
        gone = before - len(file.roster().members())
    when = "now" if is_running(folder) else "when this peer runs again"
    print(f"removed {gone} of {before} members; others are notified {when}")


def status(
    folder: Annotated[Path, typer.Argument(help="Folder of the peer.")],
    json: Annotated[Path | None, typer.Option(help="Write the status as JSON to this file; - for stdout.")] = None,
) -> None:
    """Show the status of a peer, running or stopped: iteration, neighbours, traffic, refusals and last decisions.

    A running peer with --http is asked; otherwise its folder is read, without changing it.

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
