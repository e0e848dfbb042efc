"""Founded groups to test on: identities, and a roster whose clock the test sets."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from bristle.p2p.members.roster import Roster
from bristle.wire import Group, Identity

DAY = 86_400
START = 1_800_000_000.0


class Clock:
    """Seconds since 1970, as the test says."""

    def __init__(self, now: float = START) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def identity(name: str) -> Identity:
    """Return the same identity for the same name."""
    return Identity(sha256(name.encode()).digest())


def founded(*names: str, **changes: Any) -> Group:
    """Return a group with founders of these names."""
    options: dict[str, Any] = {"application": "test", "backbone": "backbone", "classes": tuple("0123456789")}
    founders = frozenset(identity(name).key_id for name in names)
    return Group(**{**options, "features": 80, "founders": founders, **changes})


def invite(roster: Roster, inviter: str, invitee: str, **options: Any) -> None:
    """Let a member invite somebody who accepts."""
    invitation = roster.invite(identity(inviter), identity(invitee).key_id, **options)
    roster.accept(identity(invitee), invitation)
