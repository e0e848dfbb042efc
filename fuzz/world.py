"""What the targets of the network share: a small group, known identities, and what they signed.

Keys come from fixed words, so that seeds and regressions mean the same on every machine. They guard nothing.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from bristle.rules.evidence.statement import Statement
from bristle.wire.encoding import PLAIN, ZLIB, encode_statement
from bristle.wire.grid import GridHead, encode_grid, on_grid
from bristle.wire.group import Group
from bristle.wire.identity import Identity
from bristle.wire.kinds import Kind
from bristle.wire.manifest import Manifest, claims_extension, digests_of, encode_manifest
from bristle.wire.sizes import Encoding

GROUP = Group(application="fuzz", backbone="backbone", classes=tuple("abcde"), features=400)
SEQUENCE = 1 << 40
CLOCK = 1_800_000_000
"""Seconds since 1970, whenever this runs."""


def identity(name: str) -> Identity:
    """Return the identity of that name."""
    return Identity(sha256(b"bristle fuzz " + name.encode()).digest())


HONEST, LIAR, OTHER = identity("honest"), identity("liar"), identity("other")


@dataclass(frozen=True, eq=False)
class Signed:
    """A head or a statement, what its author signed, and what is sent of it: in full, or what differs from a base."""

    sequence: int
    manifest: bytes
    sent: bytes
    base: int = 0
    head: GridHead | None = None
    statement: Statement | None = None
    kind: Kind = Kind.HEAD


def signed(sender: Identity, number: int, *, base: Signed | None = None, sent: bytes | None = None) -> Signed:
    """Return a head that a sender signed. With `sent`: with something else to be sent of it."""
    values = np.random.default_rng(number).normal(0, 0.1, GROUP.shape)
    before = None if base is None else base.head
    head = on_grid(values if before is None else before.values() + values / 20, before)
    content = head.content()
    classes, features = GROUP.shape
    manifest = Manifest(
        group=GROUP.id,
        author=sender.key,
        sequence=SEQUENCE + number,
        iteration=number,
        encoding="grid",
        compression=PLAIN,
        classes=classes,
        features=features,
        body=len(content),
        digests=digests_of(content),
        extensions=() if number % 2 else (claims_extension(np.arange(classes) < 3),),
    )
    said = encode_grid(head, before) if sent is None else sent
    known = head if sent is None else None
    return Signed(
        manifest.sequence, encode_manifest(manifest, sender), said, 0 if base is None else base.sequence, known
    )


def stated(
    author: Identity, number: int, *, compress: bool = True, expires: int = CLOCK + 3600, body: bytes | None = None
) -> Signed:
    """Return a statement that an author signed, in int8 where its number is odd, of values that both encodings hold.

    With `body`, what is signed is none.
    """
    rng = np.random.default_rng(number)
    classes, features = GROUP.shape
    counts = np.array([25, 0, number, 0, 3])
    rows = rng.integers(-9, 9, GROUP.shape).astype(np.float32) * (counts > 0)[:, None]
    encoding: Encoding = "int8" if number % 2 else "float16"
    statement = Statement(rows, counts, rng.integers(-3, 3, (2, features)), rng.integers(0, 4, features) ** 2)
    content = encode_statement(statement, encoding=encoding, compress=compress) if body is None else body
    manifest = Manifest(
        group=GROUP.id,
        author=author.key,
        kind=Kind.STATEMENT,
        sequence=SEQUENCE + number,
        expires=expires,
        encoding=encoding,
        compression=ZLIB if compress else PLAIN,
        classes=classes,
        features=features,
        rank=2,
        body=len(content),
        digests=digests_of(content),
    )
    said = statement if body is None and expires > CLOCK else None
    return Signed(manifest.sequence, encode_manifest(manifest, author), content, statement=said, kind=Kind.STATEMENT)


def signed_by(sender: Identity) -> list[Signed]:
    """Return heads in full and as differences, statements, and what is signed but is neither."""
    first = signed(sender, 0)
    second, third = signed(sender, 1, base=first), signed(sender, 2)
    return [
        first,
        second,
        third,
        signed(sender, 3, base=third),
        signed(sender, 4, base=signed(sender, 99)),
        signed(sender, 5, sent=deflated(bytes(500_000))),
        signed(sender, 6, sent=b"no deflate" * 60),
        signed(sender, 7, base=third, sent=first.sent),
        stated(sender, 8),
        stated(sender, 9, compress=False),
        stated(sender, 10, expires=1),
        stated(sender, 11, compress=False, body=bytes(4000)),
    ]


def deflated(raw: bytes) -> bytes:
    """Compress without a header."""
    deflater = zlib.compressobj(wbits=-15)
    return deflater.compress(raw) + deflater.flush()
