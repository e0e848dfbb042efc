"""The roster of a founded group on the disk: its records, and what this peer has offered. An SQLite file of its own.

A running peer and the commands `bristle invite` and `bristle revoke` use it at the same time: each change is one
transaction, and the running peer looks every second whether somebody else made one. Records have signatures, so that
they need no checksums.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from types import TracebackType
from typing import Self

from bristle.p2p.members.roster import FoundedGroup, Roster
from bristle.peer.store_files import APPLICATION, VERSION, check_version, told_if_damaged, transaction
from bristle.wire.admission import Invitation, Offer, Revocation
from bristle.wire.group import Group
from bristle.wire.identity import Identity

ROSTER = "roster.sqlite"
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS founders (key_id BLOB PRIMARY KEY, grouping BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS records (id INTEGER PRIMARY KEY, data BLOB UNIQUE NOT NULL);
CREATE TABLE IF NOT EXISTS offers (slot INTEGER PRIMARY KEY, data BLOB NOT NULL);
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
"""


class RosterFile:
    """An open file with a roster. Every change is one transaction.

    Parameters
    ----------
    folder : Path
        The peer's.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / ROSTER
        self._seen = -1
        with told_if_damaged(self.path):
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            self._connection = sqlite3.connect(self.path, timeout=10, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode = WAL")
            if not self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                self._connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
            check_version(self._connection, self.path)

    @staticmethod
    def exists(folder: Path) -> bool:
        """Return whether a folder holds a roster."""
        return (folder / ROSTER).is_file()

    @classmethod
    def of_member(cls, folder: Path) -> Self:
        """Open the roster of a peer that is in a founded group.

        Raises
        ------
        ValueError
            If there is none.
        """
        if not folder.is_dir():
            raise FileNotFoundError(f"there is no folder {folder}: name the one that `bristle peer --folder` was given")
        if not cls.exists(folder):
            raise ValueError(f"the peer in {folder} is in no group with founders: start one with bristle peer --found")
        return cls(folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def group(self) -> FoundedGroup | None:
        """Return the group that the roster is of; None before it is known."""
        with told_if_damaged(self.path):
            rows = self._connection.execute("SELECT key_id, grouping FROM founders").fetchall()
        return FoundedGroup(rows[0][1], frozenset(row[0] for row in rows)) if rows else None

    def roster(self, group: Group | None = None) -> Roster:
        """Return the roster that the file holds.

        Parameters
        ----------
        group : Group, optional
            The group that it must be of; it is noted in a new file. By default the one that was noted.

        Raises
        ------
        ValueError
            If it is another group's, or no group's.
        """
        held = self.group()
        wanted = group or held
        if wanted is None:
            raise ValueError(f"{self.path} holds no group yet: start the peer first")
        if held is not None and group is not None and (held.id, held.founders) != (group.id, group.founders):
            raise ValueError(
                f"{self.path} is of another group: its application, backbone, classes, features, founders or secret "
                "differ; give this peer a folder of its own"
            )
        roster = Roster(wanted)
        if held is None:
            with transaction(self._connection, self.path, durable=False):
                rows = [(founder, wanted.id) for founder in sorted(wanted.founders or ())]
                self._connection.executemany("INSERT INTO founders VALUES (?, ?)", rows)
        roster.add_all(self._records())
        return roster

    def _records(self) -> list[bytes]:
        with told_if_damaged(self.path):
            return [data for (data,) in self._connection.execute("SELECT data FROM records ORDER BY id")]

    def changed(self) -> bool:
        """Return whether another process has written to the file since the last call."""
        before, self._seen = self._seen, self._connection.execute("PRAGMA data_version").fetchone()[0]
        return before != self._seen

    def keep(self, roster: Roster, *, durable: bool = False) -> None:
        """Add what another process has written to a roster, and write what it holds now.

        Parameters
        ----------
        roster : Roster
        durable : bool
            Whether it has to be on the disk when this returns; records that came from others can come again.
        """
        with transaction(self._connection, self.path, durable=durable):
            self._keep(roster)

    def _keep(self, roster: Roster) -> None:
        held = set(self._records())
        roster.add_all(held)
        wanted = roster.records()
        gone = [(data,) for data in held.difference(wanted)]
        self._connection.executemany("DELETE FROM records WHERE data = ?", gone)
        new = [(data,) for data in wanted if data not in held]
        self._connection.executemany("INSERT INTO records (data) VALUES (?)", new)

    def invite(
        self,
        identity: Identity,
        invitee: bytes | None = None,
        *,
        seats: int = 0,
        expires: int = 0,
        roster: Roster | None = None,
    ) -> Invitation:
        """Return an invitation; what was offered is on the disk before, so that no slot is given away twice.

        Parameters
        ----------
        identity, invitee, seats, expires
            As `Roster.invite` takes them.
        roster : Roster, optional
            That of a running peer; by default the one in the file.
        """
        roster = roster or self.roster()
        with transaction(self._connection, self.path, durable=True):
            self._keep(roster)
            rows = self._connection.execute("SELECT data FROM offers").fetchall()
            invitation = roster.invite(
                identity, invitee, seats=seats, expires=expires, outstanding=[Offer.decode(data) for (data,) in rows]
            )
            row = invitation.offer.slot, invitation.offer.data
            self._connection.execute("INSERT OR REPLACE INTO offers VALUES (?, ?)", row)
        return invitation

    def accept(self, identity: Identity, invitation: Invitation, roster: Roster) -> None:
        """Accept an invitation; the membership is on the disk when this returns."""
        roster.accept(identity, invitation)
        self.keep(roster, durable=True)

    def revoke(self, identity: Identity, key_id: bytes, *, roster: Roster | None = None) -> list[Revocation]:
        """Remove a member and all that it invited; the revocations are on disk when this returns."""
        roster = roster or self.roster()
        revocations = roster.revoke(identity, key_id)
        self.keep(roster, durable=True)
        return revocations
