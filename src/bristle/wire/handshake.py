"""The handshake of two peers: hello, cookie, join, welcome.

The responder keeps no state and reveals nothing before the caller has proved that it receives at its address (cookie),
holds its private key (signature) and belongs to the group (proof, list of members). Both sides contribute fresh
X25519 keys: a stolen identity does not open past sessions (forward secrecy).
"""

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass
from hashlib import blake2s, sha256

from ipv8_rust_tunnels import PrivateKey

from bristle.wire.group import GROUP_ID_BYTES, PROOF_BYTES, Group
from bristle.wire.identity import CURVE, KEY_BYTES, SIGNATURE_BYTES, Identity, key_id_of, verify
from bristle.wire.refusal import Refusal
from bristle.wire.session import SESSION_ID_BYTES, Session

VERSION = 1
HELLO, COOKIE, JOIN, WELCOME = range(1, 5)
NONCE_BYTES = 16
COOKIE_BYTES = 16
EPHEMERAL_BYTES = 32
ALONE = 1
"""Flag of a join: the caller has no neighbours."""

FULL = 1
"""Flag of a welcome: no slot is free."""

_IPV8 = b"\x00\x02"
PREFIX_BYTES = len(_IPV8) + GROUP_ID_BYTES
# A hello is longer than the answer to it, so that nobody makes us shout at somebody else.
_HELLO = struct.Struct(f">BB{NONCE_BYTES}s24x")
_COOKIE = struct.Struct(f">B{NONCE_BYTES}s{COOKIE_BYTES}s")
_JOIN = struct.Struct(
    f">BBB{COOKIE_BYTES}s{NONCE_BYTES}s{KEY_BYTES}s{EPHEMERAL_BYTES}s{SESSION_ID_BYTES}s{PROOF_BYTES}s{SIGNATURE_BYTES}s"
)
_WELCOME = struct.Struct(
    f">BBB{NONCE_BYTES}s{KEY_BYTES}s{EPHEMERAL_BYTES}s{SESSION_ID_BYTES}s{PROOF_BYTES}s{SIGNATURE_BYTES}s"
)
_JOIN_DOMAIN, _WELCOME_DOMAIN = b"bristle join\x00", b"bristle welcome\x00"
_COOKIE_LIFE = 30.0


def prefix_of(group: Group) -> bytes:
    """Return the prefix of a group's handshake datagrams: IPv8's, with the group as the community."""
    return _IPV8 + group.id


def is_handshake(datagram: bytes) -> bool:
    """Return whether a datagram looks like a handshake of some group."""
    return len(datagram) > PREFIX_BYTES and datagram.startswith(_IPV8)


def is_request(datagram: bytes) -> bool:
    """Return whether a handshake datagram is a request, hello or join, which anybody may send."""
    return datagram[PREFIX_BYTES] in (HELLO, JOIN)


def cookie_of(datagram: bytes, group: Group) -> bytes | None:
    """Return the cookie of a join, to be checked before anything else; None if it is no join."""
    at = PREFIX_BYTES + 3  # After kind, version and flags.
    return datagram[at : at + COOKIE_BYTES] if datagram.startswith(prefix_of(group) + bytes([JOIN])) else None


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


def encode_hello(group: Group, nonce: bytes) -> bytes:
    """Encode a hello."""
    return prefix_of(group) + _HELLO.pack(HELLO, VERSION, nonce)


def encode_cookie(group: Group, nonce: bytes, cookie: bytes) -> bytes:
    """Encode the answer to a hello."""
    return prefix_of(group) + _COOKIE.pack(COOKIE, nonce, cookie)


def decode(datagram: bytes, group: Group) -> Hello | Cookie | Join | Welcome | Refusal:
    """Decode a handshake message, without checking signature or proof."""
    if not is_handshake(datagram):
        return Refusal.MALFORMED
    if not datagram.startswith(prefix_of(group)):
        return Refusal.WRONG_GROUP
    kind, size = datagram[PREFIX_BYTES], len(datagram) - PREFIX_BYTES
    layout = {HELLO: _HELLO, COOKIE: _COOKIE, JOIN: _JOIN, WELCOME: _WELCOME}.get(kind)
    if layout is None or size != layout.size:
        return Refusal.MALFORMED
    _, *fields = layout.unpack_from(datagram, PREFIX_BYTES)
    if kind == COOKIE:
        return Cookie(*fields)
    if fields[0] != VERSION:
        return Refusal.VERSION
    if kind == HELLO:
        return Hello(fields[1])
    if kind == JOIN:
        _, flags, cookie, nonce, key, ephemeral, session_id, proof, _ = fields
        return Join(bool(flags & ALONE), cookie, nonce, key, ephemeral, session_id, proof, datagram)
    _, flags, nonce, key, ephemeral, session_id, proof, _ = fields
    return Welcome(bool(flags & FULL), nonce, key, ephemeral, session_id, proof, datagram)


class CookieJar:
    """Cookies that show that a peer receives at its place, without a note for each that asked.

    A place is an address, or, where a neighbour forwards, the key ids of the forwarder and of the peer behind it.

    Parameters
    ----------
    secret : bytes
        Known to nobody else.
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
        self._ephemeral: PrivateKey | None = None
        self._join = b""

    def hello(self) -> bytes:
        """Return the first datagram."""
        return encode_hello(self.group, self.nonce)

    def join(self, cookie: bytes, *, alone: bool) -> bytes:
        """Return the answer to a cookie. The fresh key is made once, and only for somebody who answers."""
        flags = ALONE if alone else 0
        if self._ephemeral is None:
            self._ephemeral = PrivateKey.generate(CURVE)
        ephemeral = self._ephemeral.get_crypt_pk()
        challenge = bytes([flags]) + cookie + self.nonce + self.identity.key + ephemeral + self.session_id
        proof = self.group.prove(_JOIN_DOMAIN, challenge)
        signature = self.identity.sign(_JOIN_DOMAIN + self.group.id + challenge + proof)
        fields = (cookie, self.nonce, self.identity.key, ephemeral, self.session_id, proof, signature)
        self._join = prefix_of(self.group) + _JOIN.pack(JOIN, VERSION, flags, *fields)
        return self._join

    def finish(self, welcome: Welcome) -> Session | Refusal:
        """Return the session that a welcome completes."""
        if self._ephemeral is None or welcome.nonce != self.nonce:
            return Refusal.MALFORMED
        if not self.group.admits(key_id_of(welcome.key)):
            return Refusal.NOT_A_MEMBER
        content = welcome.datagram[:-SIGNATURE_BYTES]
        transcript = sha256(self._join).digest() + content[:-PROOF_BYTES]
        if not self.group.proven(welcome.proof, _WELCOME_DOMAIN, transcript):
            return Refusal.NOT_A_MEMBER
        signature = welcome.datagram[-SIGNATURE_BYTES:]
        if not verify(welcome.key, signature, _WELCOME_DOMAIN + transcript + welcome.proof):
            return Refusal.BAD_SIGNATURE
        secret = _agree(self._ephemeral, welcome.ephemeral, self.group, transcript)
        if secret is None:
            return Refusal.MALFORMED
        return Session(secret, initiator=True, local=self.session_id, remote=welcome.session_id)


def check_join(join: Join, group: Group) -> Refusal | None:
    """Return why a caller is not let in. What is cheap to check is checked first."""
    key_id = key_id_of(join.key)
    if not group.admits(key_id):
        return Refusal.NOT_A_MEMBER
    start = PREFIX_BYTES + 2  # Kind and version are no part of it.
    challenge = join.datagram[start : -PROOF_BYTES - SIGNATURE_BYTES]
    if not group.proven(join.proof, _JOIN_DOMAIN, challenge):
        return Refusal.NOT_A_MEMBER
    signed = _JOIN_DOMAIN + group.id + challenge + join.proof
    return None if verify(join.key, join.datagram[-SIGNATURE_BYTES:], signed) else Refusal.BAD_SIGNATURE


def answer_join(
    join: Join, identity: Identity, group: Group, *, session_id: bytes, full: bool
) -> tuple[Session, bytes] | Refusal:
    """Return the session with a caller who was checked, and the welcome to send."""
    mine = PrivateKey.generate(CURVE)
    head = prefix_of(group) + struct.pack(">BBB", WELCOME, VERSION, FULL if full else 0)
    unproven = head + join.nonce + identity.key + mine.get_crypt_pk() + session_id
    transcript = sha256(join.datagram).digest() + unproven
    secret = _agree(mine, join.ephemeral, group, transcript)
    if secret is None:
        return Refusal.MALFORMED
    proof = group.prove(_WELCOME_DOMAIN, transcript)
    signature = identity.sign(_WELCOME_DOMAIN + transcript + proof)
    session = Session(secret, initiator=False, local=session_id, remote=join.session_id)
    return session, unproven + proof + signature


def _agree(mine: PrivateKey, theirs: bytes, group: Group, transcript: bytes) -> bytes | None:
    try:
        shared = mine.diffie_hellman(theirs)
    except ValueError:  # A point that makes every agreement the same.
        return None
    return group.mix(sha256(transcript).digest() + shared)
