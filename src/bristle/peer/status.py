"""The status of a peer, running or not."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bristle.peer.record import Iteration
from bristle.peer.store import read_decisions
from bristle.peer.store_files import STORE, StoreError, check_version
from bristle.wire.group import Group

RECENT = 50
"""Number of latest iterations searched for received heads and a measured accuracy."""

LEAST_ROOM = 2**18
"""Free bytes on the disk below which an iteration may not be saved: its state, and SQLite's log."""


@dataclass(frozen=True, kw_only=True)
class NeighbourStatus:
    """A neighbour, and how it is reached.

    Parameters
    ----------
    key_id : str
        Its key id.
    address : str, optional
        Its address; None where another neighbour forwards.
    silent : float
        Seconds since its last message.
    reached : str
        ``"directly"``, ``"locally"`` (on this machine, or at a private address) or ``"forwarded"``.
    forwarder : str, optional
        Key id of the neighbour that forwards.
    difference : float, optional
        By how much its features of the group's test sample differ from this peer's, relative to their size.
    """

    key_id: str
    address: str | None
    silent: float
    reached: str = "directly"
    forwarder: str | None = None
    difference: float | None = None


@dataclass(frozen=True, kw_only=True)
class ClassCount:
    """Number of samples of a class."""

    name: str
    training: int
    held_out: int


@dataclass(frozen=True, kw_only=True)
class MemberStatus:
    """A member of a founded group, and who vouched for it.

    Parameters
    ----------
    key_id : str
        Its key id.
    inviter : str, optional
        Key id of the member by whose invitation it came in; None for a founder.
    generation : int
        Number of invitations between a founder and this member.
    seats, seats_left : int
        How many others may be invited through it, and how many of these seats are left.
    expires : int
        When its membership ends, in seconds since 1970; 0: never.
    """

    key_id: str
    inviter: str | None
    generation: int
    seats: int
    seats_left: int
    expires: int


@dataclass(frozen=True, kw_only=True)
class Status:
    """Status of a peer.

    Parameters
    ----------
    running : bool
        Whether a process runs it now.
    key_id, application : str
        Its key id, and the application of its group.
    iteration : int
        Number of iterations done.
    samples : tuple of ClassCount
        Samples of each class.
    counters : mapping of str to int
        Bytes, heads, retransmissions and refusals (``refused.REASON``) since the peer first ran.
    bytes_last_day : int
        Bytes sent in the last 24 hours.
    last : Iteration, optional
        Its last iteration.
    decided : Iteration, optional
        Its last iteration with received heads.
    accuracy : float, optional
        The latest measured accuracy.
    address : str, optional
        The address that it listens on.
    neighbours : tuple of NeighbourStatus
        Its current neighbours.
    members : tuple of MemberStatus
        The members of a founded group, inviters before those whom they invited.
    waiting : str, optional
        Why it is held back, as the end of a sentence that begins with "it".
    """

    running: bool
    key_id: str
    application: str
    iteration: int
    samples: tuple[ClassCount, ...]
    counters: Mapping[str, int]
    bytes_last_day: int
    last: Iteration | None = None
    decided: Iteration | None = None
    accuracy: float | None = None
    address: str | None = None
    neighbours: tuple[NeighbourStatus, ...] = ()
    members: tuple[MemberStatus, ...] = ()
    waiting: str | None = None

    @property
    def refused(self) -> dict[str, int]:
        """Number of refusals by reason."""
        start = "refused."
        return {
            name.removeprefix(start): count for name, count in self.counters.items() if count and name.startswith(start)
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the status as it is written to JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Status:
        """Read what `to_dict` returned."""
        return cls(
            **{
                **fields,
                "samples": tuple(ClassCount(**entry) for entry in fields["samples"]),
                "neighbours": tuple(NeighbourStatus(**entry) for entry in fields["neighbours"]),
                "members": tuple(MemberStatus(**entry) for entry in fields["members"]),
                "last": _iteration(fields["last"]),
                "decided": _iteration(fields["decided"]),
            }
        )


def _iteration(fields: dict[str, Any] | None) -> Iteration | None:
    if fields is None:
        return None
    return Iteration.from_dict(fields)


def read_status(folder: Path, *, running: bool) -> Status:
    """Read the status of a peer from its store, running or not, without changing anything."""
    path = folder / STORE
    if not path.is_file():
        raise FileNotFoundError(f"there is no peer in {folder}: name the folder that `bristle peer --folder` was given")
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=5)) as database:
            check_version(database, path)
            status = _read(database, running)
    except (sqlite3.DatabaseError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(f"{path} cannot be read: {error}; start the peer again to have it checked") from error
    free = shutil.disk_usage(folder).free
    if running and free < LEAST_ROOM:
        return replace(status, waiting=f"has no room to keep what it learns: {free} bytes are free on its disk")
    return status


def _read(database: sqlite3.Connection, running: bool) -> Status:
    about = database.execute("SELECT identity, grouping FROM about").fetchone()
    if about is None:
        raise sqlite3.DatabaseError("the peer was stopped before it had begun")
    group = Group.from_json(about[1])
    held = {
        (label, held_out): count
        for label, held_out, count in database.execute(
            "SELECT label, held_out, count(*) FROM samples GROUP BY label, held_out"
        )
    }
    saved = database.execute("SELECT iteration FROM state").fetchone()
    records = read_decisions(database, RECENT)
    measured = [record.accuracy for record in records if record.accuracy is not None]
    return Status(
        running=running,
        key_id=about[0],
        application=group.application,
        iteration=saved[0] if saved else 0,
        samples=tuple(
            ClassCount(name=name, training=held.get((label, 0), 0), held_out=held.get((label, 1), 0))
            for label, name in enumerate(group.classes)
        ),
        counters=dict(database.execute("SELECT name, value FROM counters ORDER BY name")),
        bytes_last_day=database.execute("SELECT coalesce(sum(bytes), 0) FROM spending").fetchone()[0],
        last=records[-1] if records else None,
        decided=next((record for record in reversed(records) if record.heard), None),
        accuracy=measured[-1] if measured else None,
    )
