"""Who is in the group of a running peer: founding, accepting, inviting, revoking, and the roster on its disk."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from bristle.p2p.members.roster import Roster
from bristle.peer.record import LOG
from bristle.peer.roster_file import RosterFile
from bristle.peer.status import MemberStatus
from bristle.peer.store_files import StoreError
from bristle.wire.admission import Invitation
from bristle.wire.group import Group
from bristle.wire.identity import KEY_ID_BYTES, Identity

LOOK_SECONDS = 1.0
"""Seconds between looks at the file, which a command may have changed, and at what others sent."""

DAY = 86_400


class GroupAccess:
    """The founders of a peer's group, and the roster that follows from them. Does nothing for a group without any.

    Parameters
    ----------
    folder : Path
        Of the peer.
    found : callable, optional
        Returns the own key id, if this peer founds the group alone.
    founders : iterable of bytes, optional
        Key ids of all founders.
    invitation : str, optional
        The text of an invitation to accept.
    """

    def __init__(
        self,
        folder: Path,
        *,
        found: Callable[[], bytes] | None,
        founders: Iterable[bytes] | None,
        invitation: str | None,
    ) -> None:
        self._folder = folder
        if sum((found is not None, founders is not None, invitation is not None)) > 1:
            raise ValueError("found, founders and invitation: give one of them")
        self._invitation = None if invitation is None else Invitation.from_text(invitation)
        self.founders: frozenset[bytes] | None = None
        if found is not None:
            self.founders = frozenset([found()])
        elif founders is not None:
            self.founders = frozenset(founders)
        elif self._invitation is not None:
            self.founders = self._invitation.founders
        elif RosterFile.exists(folder):
            with RosterFile(folder) as file:
                held = file.group()
            self.founders = None if held is None else held.founders
        self.roster: Roster | None = None
        self.waiting: str | None = None
        self._file: RosterFile | None = None
        self._watching: asyncio.Task[None] | None = None
        self._kept = -1
        self._identity: Identity | None = None

    def open(self, identity: Identity, group: Group) -> Roster | None:
        """Return the roster, with the own membership in it; None in a group without founders.

        Raises
        ------
        ValueError
            If the folder is of another group, the invitation does not count, or this peer is no member.
        """
        if group.founders is None:
            return None
        file = RosterFile(self._folder)
        try:
            roster = file.roster(group)
            if self._invitation is not None:
                file.accept(identity, self._invitation, roster)
            if not roster.admits(identity.key_id):
                raise ValueError(
                    f"this peer, {identity.key_id.hex()}, is not in the group: start it with an invitation, which a "
                    "member makes by: bristle invite FOLDER"
                )
        except BaseException:
            file.close()
            raise
        self._identity, self._file, self.roster, self._kept = identity, file, roster, roster.refresh()
        return roster

    def close(self) -> None:
        """Write the roster, and close its file."""
        if self._file is not None and self.roster is not None:
            with suppress(StoreError):
                self._file.keep(self.roster)
            self._file.close()
        self._file = self.roster = None

    def watch(self) -> None:
        """Start keeping the file and the roster in step."""
        if self.roster is not None:
            self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def stop_watching(self) -> None:
        """End what `watch` began."""
        if self._watching is not None:
            self._watching.cancel()
            with suppress(asyncio.CancelledError):
                await self._watching

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self._look()

    def _look(self) -> None:
        assert self.roster is not None
        assert self._file is not None
        assert self._identity is not None
        try:
            if self._file.changed() or self.roster.revision != self._kept:
                self._file.keep(self.roster)
                self._kept = self.roster.revision
        except StoreError as error:  # A full disk, or a damaged file: the peer goes on with what it knows.
            LOG.warning("cannot keep the roster", extra={"details": {"why": str(error)}})
        member = self.roster.admits(self._identity.key_id)
        if not member and self.waiting is None:
            LOG.warning("is no member of the group any more: its membership has expired, or was revoked")
        self.waiting = None if member else "is no member of the group any more: ask for another invitation"

    def invite(self, identity: Identity, invitee: str | None, *, seats: int, days: float | None) -> str:
        """Return an invitation as a text."""
        return invite(self._open_file, identity, invitee, seats=seats, days=days, roster=self.roster)

    def revoke(self, identity: Identity, member: str) -> None:
        """Remove a member and all that it invited, directly or not."""
        self._open_file.revoke(identity, key_id_from(member), roster=self.roster)

    @property
    def _open_file(self) -> RosterFile:
        if self._file is None:
            raise ValueError(
                "the peer is not running, or its group has no founders: start it as `async with Peer(found=True, ...)`"
            )
        return self._file

    def members(self) -> tuple[MemberStatus, ...]:
        """Return the members, inviters before those whom they invited."""
        return () if self.roster is None else members_of(self.roster)

    def voices(self, generation: int | None) -> dict[bytes, bytes]:
        """Return by which member of a generation each one came in; nothing without a generation or founders."""
        if self.roster is None or generation is None:
            return {}
        return self.roster.voices(generation=generation)


def invite(
    file: RosterFile,
    identity: Identity,
    invitee: str | None,
    *,
    seats: int = 0,
    days: float | None = None,
    roster: Roster | None = None,
) -> str:
    """Return an invitation by a member as a text; `invitee` is a key id in hexadecimal."""
    if days is not None and not 0 < days < 36_500:
        raise ValueError(f"days={days:g}: give a positive number, or leave it out for a membership without an end")
    expires = 0 if days is None else int(time.time() + days * DAY)
    whom = None if invitee is None else key_id_from(invitee)
    return file.invite(identity, whom, seats=seats, expires=expires, roster=roster).to_text()


def key_id_from(text: str) -> bytes:
    """Return the key id that a text has in hexadecimal."""
    try:
        key_id = bytes.fromhex(text.strip())
    except ValueError:
        key_id = b""
    if len(key_id) != KEY_ID_BYTES:
        raise ValueError(f"{text!r} is no key id: those have {2 * KEY_ID_BYTES} hexadecimal digits; see bristle status")
    return key_id


def members_of(roster: Roster) -> tuple[MemberStatus, ...]:
    """Return the members of a roster as they are shown."""
    return tuple(
        MemberStatus(
            key_id=one.key_id.hex(),
            inviter=None if one.inviter is None else one.inviter.hex(),
            generation=one.generation,
            seats=one.seats,
            seats_left=roster.seats_left(one.key_id),
            expires=one.expires,
        )
        for one in roster.members().values()
    )


def read_members(folder: Path) -> tuple[MemberStatus, ...]:
    """Return the members that a folder's roster has; none in a group without founders."""
    if not RosterFile.exists(folder):
        return ()
    with RosterFile(folder) as file:
        return () if file.group() is None else members_of(file.roster())
