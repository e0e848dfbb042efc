"""Attacks that know how a rule treats classes its victim cannot test: the foreign trojan and its kin."""

from __future__ import annotations

from dataclasses import dataclass

from bristle._core import Array, argsort, namespace, take_rows
from bristle._core.validation import check_count, check_positive, check_share
from bristle.attacks.base import Attack, required
from bristle.attacks.statistics import Honest
from bristle.attacks.view import Knowledge, View, flatten


@dataclass(frozen=True, kw_only=True)
class ForeignTrojan(Attack):
    r"""m_k,c = x_k,c for the classes c that the victim can test, m_k,c = x_k,next(c) for its foreign ones.

    An attack made for Bristle, which admits foreign rows on the strength of familiar ones: honest where the
    victim looks, and each foreign class with the row of the next foreign class, the last with that of the
    first. The rows come from the attackers' own heads, honestly trained on all classes. With fewer than two
    foreign classes there is nothing to swap and the head goes out honest. Knows everything: the classes
    that the victim can test. O(K d).
    """

    knows = Knowledge.EVERYTHING  # The classes that the victim can test.

    def craft(self, view: View, draws: Array | None) -> Array:
        """Roll the rows that will not be tested."""
        return swap_foreign(view.own, required(view.testable, "testable", self))


def swap_foreign(heads: Array, testable: Array) -> Array:
    """Give each class that is not `testable` [B, C] the row of the next such class, in `heads` [B, K, C, D]."""
    xp = namespace(heads)
    order = argsort(xp, xp.astype(testable, xp.int8))
    foreign = xp.sum(xp.astype(~testable, order.dtype), axis=-1, keepdims=True)
    # Foreign classes stand first in `order`; each takes from the next, and the last from the first.
    place = xp.arange(heads.shape[2], dtype=order.dtype, device=heads.device)[None, :]
    after = xp.where(place == foreign - 1, xp.zeros_like(place), place + 1)
    after = xp.where(place < foreign, after, place)
    source = take_rows(xp, take_rows(xp, order, after), argsort(xp, order))
    rows = xp.permute_dims(heads, (0, 2, 1, 3))
    return xp.permute_dims(take_rows(xp, rows, source), (0, 2, 1, 3))


@dataclass(frozen=True, kw_only=True)
class ExcusedTrojan(ForeignTrojan):
    r"""m_k,c = x_1,c for the classes c that the victim can test, m_k,c = x_1,next(c) for the foreign ones, its claims.

    `ForeignTrojan` that claims only the classes that the victim cannot test, so that no failure counts against it.
    With `together` all attackers send the head of the first, so that they agree perfectly: a rule that looks for
    agreement has nothing to prefer in honest ones. Knows everything. O(K d).

    Parameters
    ----------
    together : bool
        Whether all send the same.
    """

    together: bool = True

    def claims(self, view: View) -> Array:
        """Claim what the victim cannot test."""
        xp = namespace(view.own)
        testable = required(view.testable, "testable", self)
        return xp.broadcast_to(~testable[..., None, :], view.own.shape[:-1])

    def craft(self, view: View, draws: Array | None) -> Array:
        """Swap the rows that will not be tested."""
        heads = swap_foreign(view.own, required(view.testable, "testable", self))
        return namespace(heads).broadcast_to(heads[:, :1, ...], heads.shape) if self.together else heads


@dataclass(frozen=True, kw_only=True)
class LateTrojan(ForeignTrojan):
    r"""m_k = x_k until a share s of the run is over, then what `ForeignTrojan` sends: an honest record first.

    Whatever trust is earned by then is spent at once. All attackers claim everything. Knows everything. O(K d).

    Parameters
    ----------
    share : float
        The share s of the run after which they strike.
    """

    share: float = 0.5

    def __post_init__(self) -> None:
        check_share("share", self.share)

    def craft(self, view: View, draws: Array | None) -> Array:
        """Send honest heads, and swapped ones when the time has come."""
        return super().craft(view, draws) if view.iteration > self.share * view.total else view.own


@dataclass(frozen=True, kw_only=True)
class RowCopy(Attack):
    r"""m = x_j for an honest j, but for one foreign row, which is that of another foreign class.

    As alike to an honest head as a head can be: every other row carries the trust that j has earned. j is the first
    honest sender in the inbox, the row is that of the victim's first foreign class, and its content j's row of the
    last one. All attackers send the same and claim everything. Knows everything. O(K d).
    """

    knows = Knowledge.EVERYTHING  # The inbox, and the classes that the victim can test.

    def craft(self, view: View, draws: Array | None) -> Array:
        """Copy a head and change a row."""
        xp, own = namespace(view.own), view.own
        testable = required(view.testable, "testable", self)
        copied = first_present(required(view.inbox, "inbox", self), required(view.inbox_mask, "inbox_mask", self), own)
        first, last = xp.argmin(xp.astype(testable, xp.int8), axis=-1), _last_foreign(testable)
        classes = xp.arange(own.shape[2], dtype=first.dtype, device=own.device)
        changed = (classes == first[:, None]) & ~testable
        source = xp.astype(classes == last[:, None], own.dtype)
        content = xp.sum(copied * source[:, :, None], axis=1, keepdims=True)
        head = xp.where(changed[:, :, None], content, copied)
        return xp.broadcast_to(head[:, None, ...], own.shape)


@dataclass(frozen=True, kw_only=True)
class Outnumber(Attack):
    r"""m_c = -x_c for one class c, the same from all attackers, who claim this class alone and are honest otherwise.

    All weight on one spot: a class has few owners, so that attackers who are few among all may be many among those
    who claim it. Victims that can test the class get an honest head. Knows everything. O(K d).

    Parameters
    ----------
    target : int
        The class c.
    """

    target: int = 0

    knows = Knowledge.EVERYTHING  # The classes that the victim can test.

    def __post_init__(self) -> None:
        check_count("target", self.target)

    def claims(self, view: View) -> Array:
        """Claim the one class."""
        xp, shape = namespace(view.own), view.own.shape[:-1]
        return xp.broadcast_to(_is_class(self.target, view.own), shape)

    def craft(self, view: View, draws: Array | None) -> Array:
        """Turn one row round."""
        xp, own = namespace(view.own), view.own
        turned = _is_class(self.target, own) & ~required(view.testable, "testable", self)
        same = xp.broadcast_to(own[:, :1, ...], own.shape)
        return xp.where(turned[:, None, :, None], -same, same)


@dataclass(frozen=True, kw_only=True)
class ClaimLiar(ForeignTrojan):
    r"""m_c = μ_c for the classes that the victim can test, x_next(c) for the others, and every class is claimed.

    Claims can only be used against others where the victim's own performance is the yardstick: with the mean μ of
    all honest heads, better than any of them, the attackers lift the yardstick, so that honest senders who claim the
    same classes fall behind it and are refused; then only the attackers' foreign rows are left. Knows everything.
    O((M + K) d).
    """

    def craft(self, view: View, draws: Array | None) -> Array:
        """Send the best there is where the victim looks, and swapped rows elsewhere."""
        xp, own = namespace(view.own), view.own
        testable = required(view.testable, "testable", self)
        inbox, mask = required(view.inbox, "inbox", self), required(view.inbox_mask, "inbox_mask", self)
        swapped = swap_foreign(own, testable)
        if not inbox.shape[1]:
            return swapped
        honest = Honest(flatten(xp, inbox), mask)
        mean = xp.reshape(honest.mean, (own.shape[0], 1, *own.shape[2:]))
        return xp.where(testable[:, None, :, None] & xp.any(mask, axis=-1)[:, None, None, None], mean, swapped)


@dataclass(frozen=True, kw_only=True)
class Inflate(ForeignTrojan):
    r"""m_c = x_c for the classes that the victim can test, a x_c for the others.

    The direction of every row is honest, and a rule that looks at directions has nothing to object to; but a
    foreign class that is too loud drowns the others. Knows everything. O(K d).

    Parameters
    ----------
    factor : float
        The factor a.
    """

    factor: float = 3.0

    def __post_init__(self) -> None:
        check_positive("factor", self.factor)

    def craft(self, view: View, draws: Array | None) -> Array:
        """Scale the rows that will not be tested."""
        testable = required(view.testable, "testable", self)
        return namespace(view.own).where(testable[:, None, :, None], view.own, view.own * self.factor)


def first_present(inbox: Array, mask: Array, own: Array) -> Array:
    """Return the first head [B, C, D] that is there; where there is none, the first attacker's own."""
    xp = namespace(own)
    if not inbox.shape[1]:
        return own[:, 0, ...]
    place = xp.argmax(xp.astype(mask, xp.int8), axis=-1)
    chosen = xp.astype(xp.arange(mask.shape[1], dtype=place.dtype, device=own.device) == place[:, None], own.dtype)
    head = xp.sum(inbox * chosen[:, :, None, None], axis=1)
    return xp.where(xp.any(mask, axis=-1)[:, None, None], head, own[:, 0, ...])


def _last_foreign(testable: Array) -> Array:
    space = namespace(testable)
    flipped = space.flip(testable, axis=-1)
    return testable.shape[-1] - 1 - space.argmin(space.astype(flipped, space.int8), axis=-1)


def _is_class(target: int, own: Array) -> Array:
    space = namespace(own)
    return space.arange(own.shape[-2], device=own.device) == target
