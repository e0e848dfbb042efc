"""The newest statement of every author that is known, within a budget of memory. No sockets, no clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from bristle.rules.evidence.statement import Statement
from bristle.wire.statements import Proof, SignedStatement

OVERHEAD = 1024
"""Bytes that an author counts for beside statement and signature."""

GONE = b""
"""Account of the statements that came from neighbours that have left, and from the own disk."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ReceivedStatement:
    """A statement that arrived complete, correctly signed, in time, and possible.

    Parameters
    ----------
    author : bytes
        Key id of the author.
    statement : Statement
        What it says.
    number : int
        Number of the statement, as the author states it: a larger one replaces a smaller one.
    expires : int
        When it ceases to count, in seconds since 1970; later than signed at first if the author has renewed it.
    signed : SignedStatement
        What the author signed, with which anybody can check it.
    source : bytes
        Key id of the neighbour that sent it; the own one if it was restored.
    """

    author: bytes
    statement: Statement
    number: int
    expires: int
    signed: SignedStatement
    source: bytes

    @property
    def size(self) -> int:
        """Bytes of memory that it takes."""
        said = self.statement
        arrays = sum(part.nbytes for part in (said.rows, said.counts, said.factors, said.diagonal) if part is not None)
        return len(self.signed.manifest) + len(self.signed.body) + int(arrays) + OVERHEAD


Entry = ReceivedStatement | Proof
"""What is known of an author: its newest statement, or a proof that it signed two of one number."""


def size_of(entry: Entry) -> int:
    """Return the bytes of memory that an entry takes."""
    return entry.size if isinstance(entry, ReceivedStatement) else len(entry.to_bytes()) + OVERHEAD


class StatementStore:
    """The newest statement of every author but the own one, and proofs against those who signed two of one number.

    Where memory is short, every neighbour has the same share of it for what it delivered, whatever the authors: new
    authors cost nothing to make up. A share that is too large loses what came last first, and the neighbour's own
    statement last.

    Parameters
    ----------
    budget : int
        Bytes of memory.
    holders : callable
        Returns the neighbours that have offered the newest statement of an author.
    """

    def __init__(self, budget: int, holders: Callable[[bytes], Iterable[bytes]]) -> None:
        self.budget, self._holders = budget, holders
        self._entries: dict[bytes, Entry] = {}
        self._accounts: dict[bytes, dict[bytes, int]] = {}
        self._account_of: dict[bytes, bytes] = {}
        self._weights: dict[bytes, int] = {}
        self._changed: dict[bytes, None] = {}
        self.memory = 0
        self.changed = False
        """Whether there is something that `take` has not returned, or an author turned out to be an equivocator."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._entries)

    def __contains__(self, author: bytes) -> bool:
        return author in self._entries

    def get(self, author: bytes) -> Entry | None:
        """Return what is known of an author."""
        return self._entries.get(author)

    def put(self, author: bytes, entry: Entry, account: bytes, *, news: bool = True) -> bool:
        """Take an entry in the place of an older one, at the cost of a neighbour; return False if it has no room."""
        before, charged = self._entries.get(author), self._account_of.get(author, account)
        size = size_of(entry)
        if before is not None:
            self.drop(author)
        if not self._make_room(author, account, size):
            if before is not None:
                self._charge(author, before, charged, size_of(before))
            return False
        self._charge(author, entry, account, size)
        if news:
            self.changed = True
            if isinstance(entry, ReceivedStatement):
                self._changed[author] = None
        return True

    def renewed(self, author: bytes, entry: ReceivedStatement) -> None:
        """Put the same statement with a later expiry in the place of itself."""
        self._entries[author] = entry

    def has_room(self, account: bytes, *, coming: int, mine: int) -> bool:
        """Return whether one more statement of a neighbour would find room, perhaps at others' cost.

        Statements are taken to be of usual size. `coming` are on their way already, `mine` of them from this neighbour.
        """
        size = self.memory // len(self._entries) if self._entries else OVERHEAD
        if self.memory + size * (1 + coming) <= self.budget:
            return True
        return max(self._weights.values(), default=0) > self._weights.get(account, 0) + size * (1 + mine)

    def _charge(self, author: bytes, entry: Entry, account: bytes, size: int) -> None:
        self._entries[author] = entry
        self._account_of[author] = account
        self._accounts.setdefault(account, {})[author] = size
        self._weights[account] = self._weights.get(account, 0) + size
        self.memory += size

    def _discharge(self, author: bytes) -> int:
        account = self._account_of.pop(author)
        size = self._accounts[account].pop(author)
        self._weights[account] -= size
        self.memory -= size
        if not self._accounts[account]:
            del self._accounts[account], self._weights[account]
        return size

    def drop(self, author: bytes) -> None:
        """Forget an author."""
        if author in self._entries:
            self._discharge(author)
            del self._entries[author]
            self._changed.pop(author, None)

    def _make_room(self, author: bytes, account: bytes, size: int) -> bool:
        """Free memory at the cost of the account that takes most of it; False if that is the one that asks.

        What a neighbour says itself is kept at the cost of what it passes on.
        """
        while self.memory + size > self.budget:
            mine = self._weights.get(account, 0) + size
            heaviest = max(self._weights, key=self._weights.__getitem__, default=account)
            if heaviest == account or self._weights[heaviest] <= mine:
                if author != account or account not in self._accounts:
                    return False
                self.drop(self._last_of(account))
                continue
            last = self._last_of(heaviest)
            if not self._shift(last, heaviest):
                self.drop(last)
        return True

    def _last_of(self, account: bytes) -> bytes:
        """Return the author whose statement came last from a neighbour, other than itself if there is one."""
        return next((author for author in reversed(self._accounts[account]) if author != account), account)

    def _shift(self, author: bytes, heaviest: bytes) -> bool:
        """Charge a statement to another neighbour that offers it, and takes less memory than the one charged."""
        size = self._accounts[heaviest][author]
        others = [other for other in self._holders(author) if other != heaviest]
        lightest = min(others, key=lambda other: self._weights.get(other, 0), default=None)
        if lightest is None or self._weights.get(lightest, 0) + size >= self._weights[heaviest]:
            return False
        entry = self._entries[author]
        self._discharge(author)
        self._charge(author, entry, lightest, size)
        return True

    def left(self, account: bytes) -> None:
        """Move what a neighbour delivered to the account of those that have left."""
        for author in list(self._accounts.get(account, ())):
            entry, size = self._entries[author], self._discharge(author)
            self._charge(author, entry, GONE, size)

    def expire(self, dead: Callable[[ReceivedStatement], bool]) -> None:
        """Forget the statements that have expired."""
        for author, entry in list(self._entries.items()):
            if isinstance(entry, ReceivedStatement) and dead(entry):
                self.drop(author)

    def in_turn(self) -> list[bytes]:
        """Return all authors, one of each neighbour in turn: no crowd stands before the others."""
        waiting, authors = [list(account) for account in self._accounts.values()], []
        for place in range(max(map(len, waiting), default=0)):
            authors += [account[place] for account in waiting if place < len(account)]
        return authors

    def statements(self) -> list[ReceivedStatement]:
        """Return the newest statement of every author."""
        return [entry for entry in self._entries.values() if isinstance(entry, ReceivedStatement)]

    def take(self) -> list[ReceivedStatement]:
        """Return the statements that are new since the last time."""
        changed, self._changed, self.changed = self._changed, {}, False
        entries = [self._entries.get(author) for author in changed]
        return [entry for entry in entries if isinstance(entry, ReceivedStatement)]

    def proofs(self) -> dict[bytes, Proof]:
        """Return the proofs, by author."""
        return {author: entry for author, entry in self._entries.items() if isinstance(entry, Proof)}
