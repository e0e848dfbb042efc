"""The handshake of two peers: hello, cookie, join, welcome.

The responder keeps no state and reveals nothing before the caller has proved that it receives at its address (cookie),
holds its private key (signature) and belongs to the group (proof, list of members). Both sides contribute fresh
X25519 keys: a stolen identity does not open past sessions (forward secrecy).
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2s, sha256

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from bristle.wire.admission import Record, split_records
from bristle.wire.group import GROUP_ID_BYTES, PROOF_BYTES, Group
from bristle.wire.identity import KEY_BYTES, SIGNATURE_BYTES, Identity, key_id_of, verify
from bristle.wire.refusal import Refusal
from bristle.wire.session import SESSION_ID_BYTES, Session
from bristle.wire.sizes import DATAGRAM, FORWARDING

VERSION = 2
HELLO, COOKIE, JOIN, WELCOME, OTHER_VERSION, CREDENTIALS = range(1, 7)
NONCE_BYTES = 16
COOKIE_BYTES = 16
EPHEMERAL_BYTES = 32
ALONE = 1
"""Flag of a join: the caller has no neighbours."""

FULL = 1
"""Flag of a welcome: no slot is free."""

CALLED = 1
"""Flag of credentials: they are those of the called."""

_MAGIC = b"br"
_MAGIC_1 = b"\x00\x02"
"""What handshakes of version 1 began with."""

PREFIX_BYTES = len(_MAGIC) + GROUP_ID_BYTES
# A hello is longer than its answer, so that forged source addresses amplify nothing.
_HELLO = struct.Struct(f">BB{NONCE_BYTES}s24x")
_COOKIE = struct.Struct(f">BB{NONCE_BYTES}s{COOKIE_BYTES}s")
_OTHER_VERSION = struct.Struct(f">BB{NONCE_BYTES}s")
_JOIN = struct.Struct(
    f">BBB{COOKIE_BYTES}s{NONCE_BYTES}s{KEY_BYTES}s{EPHEMERAL_BYTES}s{SESSION_ID_BYTES}s{PROOF_BYTES}s{SIGNATURE_BYTES}s"
)
_WELCOME = struct.Struct(
    f">BBB{NONCE_BYTES}s{KEY_BYTES}s{EPHEMERAL_BYTES}s{SESSION_ID_BYTES}s{PROOF_BYTES}s{SIGNATURE_BYTES}s"
)
_CREDENTIALS = struct.Struct(f">BBB{COOKIE_BYTES}s{NONCE_BYTES}s")
_MOST_CREDENTIALS = DATAGRAM - FORWARDING - PREFIX_BYTES - _CREDENTIALS.size
"""Bytes of records in a datagram of credentials, which may have to be forwarded."""

_JOIN_DOMAIN, _WELCOME_DOMAIN = b"bristle 2 join\x00", b"bristle 2 welcome\x00"
_CALLER_KEY, _CALLED_KEY = b"bristle 2 key of the caller", b"bristle 2 key of the called"
_COOKIE_LIFE = 30.0


def prefix_of(group: Group) -> bytes:
    """Return the prefix of a group's handshake datagrams, which is the same in all versions from 2 on."""
    return _MAGIC + group.id


def prefix_1_of(group: Group) -> bytes:
    """Return the prefix of a group's handshake datagrams in version 1."""
    return _MAGIC_1 + group.id


def is_handshake(datagram: bytes) -> bool:
    """Return whether a datagram looks like a handshake of some group."""
    return len(datagram) > PREFIX_BYTES and datagram.startswith(_MAGIC)


def is_request(datagram: bytes) -> bool:
    """Return whether a handshake datagram is a request, hello or join, which anybody may send."""
    return datagram[PREFIX_BYTES] in (HELLO, JOIN, CREDENTIALS) and not _is_answer(datagram)


def _is_answer(datagram: bytes) -> bool:
    """Return whether a datagram has the credentials of the called, which come without a cookie."""
    return datagram[PREFIX_BYTES : PREFIX_BYTES + 3] == bytes([CREDENTIALS, VERSION, CALLED])


def cookie_of(datagram: bytes, group: Group) -> bytes | None:
    """Return the cookie of a join or of credentials, to be checked before anything else; None if there is none."""
    at = PREFIX_BYTES + 3  # After kind, version and flags.
    starts = tuple(prefix_of(group) + bytes([kind, VERSION]) for kind in (JOIN, CREDENTIALS))
    return datagram[at : at + COOKIE_BYTES] if datagram.startswith(starts) and not _is_answer(datagram) else None


@dataclass(frozen=True)
class Hello:
    """The caller looks for a peer of the group."""

    nonce: bytes


@dataclass(frozen=True)
class Cookie:
    """The responder asks the caller to repeat this cookie."""

    nonce: bytes
    cookie: bytes


@dataclass(frozen=True)
class Join:
    """The caller authenticates itself. `alone`: it has no neighbours."""

    alone: bool
    cookie: bytes
    nonce: bytes
    key: bytes
    ephemeral: bytes
    session_id: bytes
    proof: bytes
    datagram: bytes


@dataclass(frozen=True)
class Welcome:
    """The responder authenticates itself. `full`: it has no free slot, and will only pass on addresses."""

    full: bool
    nonce: bytes
    key: bytes
    ephemeral: bytes
    session_id: bytes
    proof: bytes
    datagram: bytes


@dataclass(frozen=True)
class Credentials:
    """Memberships that lead from a founder to the sender. `called`: it is the called, and there is no cookie."""

    called: bool
    nonce: bytes
    records: tuple[Record, ...]


@dataclass(frozen=True)
class OtherVersion:
    """The sender speaks another version: a hello of it, or an answer to ours. `asks`: it is a hello."""

    version: int
    nonce: bytes
    asks: bool


def encode_other_version(group: Group, heard: OtherVersion) -> bytes:
    """Encode the answer to a hello of another version, which is no longer than any hello.

    For one of version 1 it is a hello of our version in that one's frame: peers of version 1 count it.
    """
    if heard.version == 1:
        return prefix_1_of(group) + _HELLO.pack(HELLO, VERSION, heard.nonce)
    return prefix_of(group) + _OTHER_VERSION.pack(OTHER_VERSION, VERSION, heard.nonce)


def encode_hello(group: Group, nonce: bytes) -> bytes:
    """Encode a hello."""
    return prefix_of(group) + _HELLO.pack(HELLO, VERSION, nonce)


def encode_cookie(group: Group, nonce: bytes, cookie: bytes) -> bytes:
    """Encode the answer to a hello."""
    return prefix_of(group) + _COOKIE.pack(COOKIE, VERSION, nonce, cookie)


def encode_credentials(
    group: Group, nonce: bytes, records: Iterable[bytes], *, cookie: bytes | None = None
) -> list[bytes]:
    """Encode memberships in as many datagrams as they need: the caller's with its cookie, the called's without."""
    parts = [b""]
    for record in records:
        if len(parts[-1]) + len(record) > _MOST_CREDENTIALS:
            parts.append(b"")
        parts[-1] += record
    head = _CREDENTIALS.pack(
        CREDENTIALS, VERSION, CALLED if cookie is None else 0, cookie or bytes(COOKIE_BYTES), nonce
    )
    return [prefix_of(group) + head + part for part in parts if part]


def decode(datagram: bytes, group: Group) -> Hello | Cookie | Join | Welcome | Credentials | OtherVersion | Refusal:
    """Decode a handshake message, without checking signature or proof."""
    if datagram.startswith(prefix_1_of(group)):
        return _decode_1(datagram)
    if not is_handshake(datagram):
        return Refusal.MALFORMED
    if not datagram.startswith(prefix_of(group)):
        return Refusal.WRONG_GROUP
    kind, size = datagram[PREFIX_BYTES], len(datagram) - PREFIX_BYTES
    version = datagram[PREFIX_BYTES + 1] if size > 1 else VERSION
    if version != VERSION:
        return _decode_other(datagram, kind, version)
    if kind == CREDENTIALS and group.founders is not None and size > _CREDENTIALS.size:
        _, _, flags, cookie, nonce = _CREDENTIALS.unpack_from(datagram, PREFIX_BYTES)
        records = split_records(datagram[PREFIX_BYTES + _CREDENTIALS.size :])
        called = bool(flags & CALLED)
        if isinstance(records, Refusal) or (called and any(cookie)):
            return Refusal.MALFORMED
        return Credentials(called, nonce, tuple(records))
    layout = {HELLO: _HELLO, COOKIE: _COOKIE, JOIN: _JOIN, WELCOME: _WELCOME}.get(kind)
    if layout is None or size != layout.size:
        return Refusal.MALFORMED
    _, _, *fields = layout.unpack_from(datagram, PREFIX_BYTES)
    if kind == HELLO:
        return Hello(*fields)
    if kind == COOKIE:
        return Cookie(*fields)
    if kind == JOIN:
        flags, cookie, nonce, key, ephemeral, session_id, proof, _ = fields
        return Join(bool(flags & ALONE), cookie, nonce, key, ephemeral, session_id, proof, datagram)
    flags, nonce, key, ephemeral, session_id, proof, _ = fields
    return Welcome(bool(flags & FULL), nonce, key, ephemeral, session_id, proof, datagram)


def _decode_other(datagram: bytes, kind: int, version: int) -> OtherVersion | Refusal:
    """Decode what is the same in all versions: a hello up to its nonce, and the answer to one of another version."""
    nonce = datagram[PREFIX_BYTES + 2 : PREFIX_BYTES + 2 + NONCE_BYTES]
    if kind == HELLO and len(datagram) >= PREFIX_BYTES + _HELLO.size:
        return OtherVersion(version, nonce, asks=True)
    if kind == OTHER_VERSION and len(datagram) == PREFIX_BYTES + _OTHER_VERSION.size:
        return OtherVersion(version, nonce, asks=False)
    return Refusal.VERSION


def _decode_1(datagram: bytes) -> OtherVersion | Refusal:
    """Decode a hello of version 1; it had the layout of ours, and another prefix."""
    if len(datagram) != PREFIX_BYTES + _HELLO.size or datagram[PREFIX_BYTES : PREFIX_BYTES + 2] != bytes([HELLO, 1]):
        return Refusal.VERSION
    _, _, nonce = _HELLO.unpack_from(datagram, PREFIX_BYTES)
    return OtherVersion(1, nonce, asks=True)


class CookieJar:
    """Cookies that show that a peer receives at its place, without a note for each that asked.

    A place is an address, or, where a neighbour forwards, the key ids of the forwarder and of the peer behind it.

    Parameters
    ----------
    secret : bytes
        Known only to this peer.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def make(self, place: tuple[str, int] | tuple[bytes, bytes], now: float, *, age: int = 0) -> bytes:
        """Return the cookie of a place, for now or for an age ago."""
        names = [part.hex() if isinstance(part, bytes) else str(part) for part in place]
        content = "|".join([*names, str(int(now // _COOKIE_LIFE) - age)])
        return blake2s(content.encode(), key=self._secret, digest_size=COOKIE_BYTES).digest()

    def accepts(self, cookie: bytes, place: tuple[str, int] | tuple[bytes, bytes], now: float) -> bool:
        """Return whether a cookie was given to a place a short while ago."""
        return hmac.compare_digest(cookie, self.make(place, now)) or hmac.compare_digest(
            cookie, self.make(place, now, age=1)
        )


class Caller:
    """The side that says hello: its nonce, its fresh key, and what the answer must fit.

    Parameters
    ----------
    identity, group
        Who calls, and for which group.
    nonce, session_id : bytes
        Random.
    """

    def __init__(self, identity: Identity, group: Group, *, nonce: bytes, session_id: bytes) -> None:
        self.identity = identity
        self.group = group
        self.nonce = nonce
        self.session_id = session_id
        self._ephemeral: X25519PrivateKey | None = None
        self._join = b""

    def hello(self) -> bytes:
        """Return the first datagram."""
        return encode_hello(self.group, self.nonce)

    def join(self, cookie: bytes, *, alone: bool) -> bytes:
        """Return the answer to a cookie. The ephemeral key is generated once, and only for a peer that answers."""
        flags = ALONE if alone else 0
        if self._ephemeral is None:
            self._ephemeral = X25519PrivateKey.generate()
        ephemeral = self._ephemeral.public_key().public_bytes_raw()
        head = prefix_of(self.group) + bytes([JOIN, VERSION, flags])
        unproven = head + cookie + self.nonce + self.identity.key + ephemeral + self.session_id
        proven = unproven + self.group.prove(_JOIN_DOMAIN, unproven)
        self._join = proven + self.identity.sign(_JOIN_DOMAIN + proven)
        return self._join

    def finish(self, welcome: Welcome) -> Session | Refusal:
        """Return the session that a welcome completes."""
        if self._ephemeral is None or welcome.nonce != self.nonce:
            return Refusal.MALFORMED
        if not self.group.admits(key_id_of(welcome.key)):
            return Refusal.NOT_A_MEMBER
        proven, signature = welcome.datagram[:-SIGNATURE_BYTES], welcome.datagram[-SIGNATURE_BYTES:]
        heard = sha256(self._join).digest()
        if not self.group.proven(welcome.proof, _WELCOME_DOMAIN, heard + proven[:-PROOF_BYTES]):
            return Refusal.NOT_A_MEMBER
        if not verify(welcome.key, signature, _WELCOME_DOMAIN + heard + proven):
            return Refusal.BAD_SIGNATURE
        keys = _agree(self._ephemeral, welcome.ephemeral, self.group, self._join + welcome.datagram)
        if keys is None:
            return Refusal.MALFORMED
        mine, theirs = keys
        return Session(mine, theirs, initiator=True, local=self.session_id, remote=welcome.session_id)


def check_join(join: Join, group: Group) -> Refusal | None:
    """Return why a caller is not let in. What is cheap to check is checked first."""
    key_id = key_id_of(join.key)
    if not group.admits(key_id):
        return Refusal.NOT_A_MEMBER
    proven, signature = join.datagram[:-SIGNATURE_BYTES], join.datagram[-SIGNATURE_BYTES:]
    if not group.proven(join.proof, _JOIN_DOMAIN, proven[:-PROOF_BYTES]):
        return Refusal.NOT_A_MEMBER
    return None if verify(join.key, signature, _JOIN_DOMAIN + proven) else Refusal.BAD_SIGNATURE


def answer_join(
    join: Join, identity: Identity, group: Group, *, session_id: bytes, full: bool
) -> tuple[Session, bytes] | Refusal:
    """Return the session with a caller who was checked, and the welcome to send."""
    ephemeral = X25519PrivateKey.generate()
    head = prefix_of(group) + bytes([WELCOME, VERSION, FULL if full else 0])
    unproven = head + join.nonce + identity.key + ephemeral.public_key().public_bytes_raw() + session_id
    heard = sha256(join.datagram).digest()
    proven = unproven + group.prove(_WELCOME_DOMAIN, heard + unproven)
    welcome = proven + identity.sign(_WELCOME_DOMAIN + heard + proven)
    keys = _agree(ephemeral, join.ephemeral, group, join.datagram + welcome)
    if keys is None:
        return Refusal.MALFORMED
    theirs, mine = keys
    return Session(mine, theirs, initiator=False, local=session_id, remote=join.session_id), welcome


def _agree(mine: X25519PrivateKey, theirs: bytes, group: Group, transcript: bytes) -> tuple[bytes, bytes] | None:
    """Return the keys with which the caller and the called seal."""
    try:
        shared = mine.exchange(X25519PublicKey.from_public_bytes(theirs))
    except ValueError:  # A point that makes every agreement the same.
        return None
    return (
        group.derive(shared, transcript=transcript, label=_CALLER_KEY),
        group.derive(shared, transcript=transcript, label=_CALLED_KEY),
    )
