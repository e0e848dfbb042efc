"""`bristle status`: the status of a peer, from the running peer or from its folder."""

from __future__ import annotations

import http.client
import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from bristle.commands.progress import terminal
from bristle.p2p.members.feature_check import TOLERANCE
from bristle.peer.admission import read_members
from bristle.peer.record import Iteration
from bristle.peer.status import MemberStatus, NeighbourStatus, Status, read_status
from bristle.peer.store_files import ENDPOINT, TOKEN, is_running

TIMEOUT = 5.0
MOST_SHOWN = 100
"""Members that are shown."""


def get_status(folder: Path) -> Status:
    """Return a peer's status: from the running peer over HTTP if possible, else from its store."""
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}: name the one that `bristle peer --folder` was given")
    # A token goes only to a peer that runs: a killed one leaves an address that others may have taken.
    running = is_running(folder)
    asked = _ask(folder) if running else None
    return asked or replace(read_status(folder, running=running), members=read_members(folder))


def _ask(folder: Path) -> Status | None:
    """Ask the running peer over HTTP; return None if it does not answer."""
    try:
        where = json.loads((folder / ENDPOINT).read_text(encoding="utf-8"))
        token = (folder / TOKEN).read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return None
    connection = http.client.HTTPConnection(where["host"], where["port"], timeout=TIMEOUT)
    try:
        connection.request("GET", "/status", headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        body = answer.read()
    except OSError:
        return None
    finally:
        connection.close()
    return Status.from_dict(json.loads(body)) if answer.status == http.client.OK else None


def show(status: Status, console: Console | None = None) -> None:
    """Print a status."""
    screen = console or terminal()
    state = "running" if status.running else "stopped"
    if status.waiting:
        state += f", held back: it {status.waiting}"
    about = Table.grid(padding=(0, 2))
    for name, value in (
        ("peer", f"{status.key_id} ({state})"),
        ("group", status.application),
        ("decisions" if _states(status) else "iteration", str(status.iteration)),
        ("accuracy", "not measured" if status.accuracy is None else f"{status.accuracy:.1%}"),
        ("samples", _samples(status)),
        ("traffic", _traffic(status)),
        ("refused", _refused(status)),
        ("listens on", status.address),
    ):
        if value is None:
            continue  # Only the running peer itself knows.
        about.add_row(Text(name, style="bold"), value)
    screen.print(about)
    if status.neighbours:
        screen.print(_neighbours(status))
    if status.members:
        screen.print(_members(status))
    if status.decided is not None:
        show_them = _show_statements if _states(status) else _show_heads
        show_them(status, status.decided, screen)
    elif status.last is not None:
        screen.print(f"\nNothing received lately; the last iteration ended {_when(status.last)}.")


def _show_statements(status: Status, decided: Iteration, screen: Console) -> None:
    names = [one.name for one in status.samples]
    table = Table(title=f"\nStatements weighed last ({_when(decided)})", title_justify="left")
    for name in ("author", "states", "share", "what became of it"):
        table.add_column(name, justify="right" if name == "share" else "left")
    for one in sorted(decided.heard, key=lambda one: -one.share):
        stated = ", ".join(f"{names[each.label]}: {each.count}" for each in one.classes)
        unlike = [f"class {names[each.label]}: {each.words}" for each in one.classes if each.reason != one.reason]
        table.add_row(one.sender[:16], stated, f"{one.share:.1%}", "\n".join([one.words, *unlike]))
    screen.print(table)


def _show_heads(_: Status, decided: Iteration, screen: Console) -> None:
    table = Table(
        title=f"\nDecisions about the heads received last, in iteration {decided.iteration} ({_when(decided)})",
        title_justify="left",
    )
    table.add_column("sender")
    table.add_column("its iteration", justify="right")
    table.add_column("share", justify="right")
    table.add_column("reason")
    for one in sorted(decided.heard, key=lambda one: -one.share):
        table.add_row(one.sender[:16], str(one.iteration), f"{one.share:.1%}", one.words)
    screen.print(table)


def _when(record: Iteration) -> str:
    return f"{datetime.fromtimestamp(record.at):%Y-%m-%d %H:%M:%S}"


def _neighbours(status: Status) -> Table:
    table = Table(title=f"\n{len(status.neighbours)} neighbours", title_justify="left")
    for name in ("peer", "reached", "last heard", "its features"):
        table.add_column(name)
    for one in status.neighbours:
        table.add_row(one.key_id[:16], _way(one), f"{one.silent:.0f} s ago", _features(one))
    return table


def _features(neighbour: NeighbourStatus) -> str:
    if neighbour.difference is None:
        return "not compared"
    if neighbour.difference <= TOLERANCE:
        return "the same"
    return f"differ by {neighbour.difference:.0%}: compare backbone, runtime and preprocessing"


def _members(status: Status) -> Tree:
    """Return who vouched for whom, from the founders on."""
    shown = Tree(Text(f"\n{len(status.members)} members, each below the one who invited it", style="italic"))
    places: dict[str | None, Tree] = {None: shown}
    for one in status.members[:MOST_SHOWN]:
        words = one.key_id + (" (this peer)" if one.key_id == status.key_id else "")
        places[one.key_id] = places[one.inviter].add(f"{words}  {_terms(one)}")
    if len(status.members) > MOST_SHOWN:
        shown.add(f"... and {len(status.members) - MOST_SHOWN} more: bristle status --json shows all")
    return shown


def _terms(member: MemberStatus) -> str:
    role = "founder" if member.inviter is None else f"until {datetime.fromtimestamp(member.expires):%Y-%m-%d %H:%M}"
    words = [role] if member.inviter is None or member.expires else []
    if member.seats:
        words.append(f"{member.seats_left} of {member.seats} seats left")
    return ", ".join(words)


def _way(neighbour: NeighbourStatus) -> str:
    if neighbour.forwarder is not None:
        return f"forwarded by {neighbour.forwarder[:16]}"
    return f"{neighbour.reached} at {neighbour.address}"


def _samples(status: Status) -> str:
    held = [f"{one.name}: {one.training}+{one.held_out}" for one in status.samples if one.training or one.held_out]
    return ", ".join(held) + " (training + held out)" if held else "none yet"


def _states(status: Status) -> bool:
    """Return whether the peer exchanges statements, by what it heard or sent last."""
    if status.decided is not None:
        return status.decided.heard[0].number is not None
    return status.counters.get("statements_out", 0) > 0 and not status.counters.get("heads_out", 0)


def _traffic(status: Status) -> str:
    count = status.counters.get
    what = "statements" if _states(status) else "heads"
    return (
        f"{_bytes(count('bytes_out', 0))} out in {count(f'{what}_out', 0)} {what}, {_bytes(count('bytes_in', 0))} in "
        f"with {count(f'{what}_in', 0)} {what}; {_bytes(status.bytes_last_day)} out in the last day; "
        f"{count('retransmissions', 0)} retransmissions; {_bytes(count('bytes_forwarded', 0))} forwarded for others"
    )


def _refused(status: Status) -> str:
    refused = [f"{count} x {kind}" for kind, count in sorted(status.refused.items())]
    return ", ".join(refused) or "nothing"


def _bytes(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
