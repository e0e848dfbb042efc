"""What the targets of the network share: a small group, known identities, and what they signed.

Keys come from fixed words, so that seeds and regressions mean the same on every machine. They guard nothing.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from bristle.rules.evidence.statement import Statement
from bristle.wire.encoding import PLAIN, ZLIB, Head, encode_head, encode_statement
from bristle.wire.group import Group
from bristle.wire.identity import Identity
from bristle.wire.kinds import Kind
from bristle.wire.manifest import Manifest, claims_extension, digests_of, encode_manifest
from bristle.wire.sizes import Encoding

GROUP = Group(application="fuzz", backbone="backbone", classes=tuple("abcde"), features=400)
SEQUENCE = 1 << 40


def identity(name: str) -> Identity:
    """Return the identity of that name."""
    return Identity(sha256(b"bristle fuzz " + name.encode()).digest())


HONEST, LIAR, OTHER = identity("honest"), identity("liar"), identity("other")


@dataclass(frozen=True, eq=False)
class Signed:
    """A head or a statement, what its author signed, and the body that follows."""

    sequence: int
    manifest: bytes
    body: bytes
    head: Head | None = None
    statement: Statement | None = None
    kind: Kind = Kind.HEAD


def signed(
    sender: Identity, number: int, *, encoding: Encoding = "float32", compress: bool = True, body: bytes | None = None
) -> Signed:
    """Return a head that a sender signed. With `body`: one that its signature covers but that no head has."""
    head = np.random.default_rng(number).normal(0, 0.1, GROUP.shape).astype(np.float32)
    content = encode_head(head, encoding=encoding, compress=compress) if body is None else body
    classes, features = GROUP.shape
    manifest = Manifest(
        group=GROUP.id,
        author=sender.key,
        sequence=SEQUENCE + number,
        iteration=number,
        encoding=encoding,
        compression=ZLIB if compress else PLAIN,
        classes=classes,
        features=features,
        body=len(content),
        digests=digests_of(content),
        extensions=() if number % 2 else (claims_extension(np.arange(classes) < 3),),
    )
    return Signed(manifest.sequence, encode_manifest(manifest, sender), content, head if body is None else None)


def stated(
    author: Identity, number: int, *, compress: bool = True, expires: int = 0, body: bytes | None = None
) -> Signed:
    """Return a statement that an author signed, of values that float16 holds; with `body`, what is none."""
    rng = np.random.default_rng(number)
    classes, features = GROUP.shape
    counts = np.array([25, 0, number, 0, 3])
    rows = rng.integers(-9, 9, GROUP.shape).astype(np.float32) * (counts > 0)[:, None]
    statement = Statement(rows, counts, rng.integers(-3, 3, (2, features)), rng.integers(0, 9, features))
    content = encode_statement(statement, compress=compress) if body is None else body
    manifest = Manifest(
        group=GROUP.id,
        author=author.key,
        kind=Kind.STATEMENT,
        sequence=SEQUENCE + number,
        expires=expires,
        encoding="float16",
        compression=ZLIB if compress else PLAIN,
        classes=classes,
        features=features,
        rank=2,
        body=len(content),
        digests=digests_of(content),
    )
    said = statement if body is None and not expires else None
    return Signed(manifest.sequence, encode_manifest(manifest, author), content, statement=said, kind=Kind.STATEMENT)


def signed_by(sender: Identity) -> list[Signed]:
    """Return heads of every encoding, statements, and bodies that are signed but are neither."""
    nan = np.full(GROUP.shape, np.nan, "<f4").reshape(-1, 1).view(np.uint8).T.tobytes()
    return [
        signed(sender, 0),
        signed(sender, 1, compress=False),
        signed(sender, 2, encoding="float16"),
        signed(sender, 3, encoding="int8", compress=False),
        signed(sender, 4, compress=False, body=nan),
        signed(sender, 5, body=zlib.compress(bytes(500_000))[:8064]),
        signed(sender, 6, body=b"no zlib" * 100),
        signed(sender, 7, encoding="int8"),
        stated(sender, 8),
        stated(sender, 9, compress=False),
        stated(sender, 10, expires=1),
        stated(sender, 11, compress=False, body=bytes(4000)),
    ]
