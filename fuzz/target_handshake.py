"""What strangers may send before they are anybody: hello, cookie, join and welcome, other versions, and the beacon.

The first byte says what the rest is fed to; its highest bit puts the group's prefix before it.
"""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from bristle.p2p.beacon import decode_beacon, encode_beacon
from bristle.wire import handshake
from bristle.wire.handshake import Caller, Join, OtherVersion, Welcome, answer_join, check_join, prefix_of
from bristle.wire.refusal import Refusal
from harness import BrokenPromiseError, Target
from world import GROUP, HONEST, LIAR

_PREFIXED, _BEACON, _CHECKED = 0x80, 1, 2
COOKIE, NONCE = bytes(16), b"n" * handshake.NONCE_BYTES


def check(data: bytes) -> str:
    """Decode, and check signatures where the first byte asks for it, which costs a hundred times as much."""
    choice, rest = data[0] if data else 0, data[1:]
    if choice & _BEACON:
        heard = decode_beacon(rest, GROUP)
        return heard.value if isinstance(heard, Refusal) else "beacon"
    datagram = prefix_of(GROUP) + rest if choice & _PREFIXED else rest
    handshake.cookie_of(datagram, GROUP)
    message = handshake.decode(datagram, GROUP)
    if isinstance(message, Refusal):
        return message.value
    if isinstance(message, OtherVersion) and message.asks:
        answer = handshake.encode_other_version(GROUP, message)
        if len(answer) > len(datagram):
            raise BrokenPromiseError(f"{len(datagram)} bytes are answered with {len(answer)}")
    if choice & _CHECKED:
        if isinstance(message, Join):
            return _joined(message)
        if isinstance(message, Welcome):
            return _welcomed(message)
    return type(message).__name__


def _joined(join: Join) -> str:
    refusal = check_join(join, GROUP)
    if refusal is None:
        answer = answer_join(join, HONEST, GROUP, session_id=b"here", full=False)
        refusal = answer if isinstance(answer, Refusal) else None
    return "answered" if refusal is None else refusal.value


def _welcomed(welcome: Welcome) -> str:
    caller = _caller()
    caller.join(COOKIE, alone=True)
    session = caller.finish(welcome)
    return session.value if isinstance(session, Refusal) else "session"


def _caller() -> Caller:
    """Return a caller whose fresh key is always the same, so that a welcome of the past still fits."""
    caller = Caller(LIAR, GROUP, nonce=NONCE, session_id=b"call")
    caller._ephemeral = X25519PrivateKey.from_private_bytes(HONEST.secret)
    return caller


def _low_order_join() -> bytes:
    """Return a join whose every part is right but the fresh key, with which every agreement would be the same."""
    head = prefix_of(GROUP) + bytes([handshake.JOIN, handshake.VERSION, 0])
    unproven = head + COOKIE + NONCE + LIAR.key + bytes(32) + b"call"
    proven = unproven + GROUP.prove(b"bristle 2 join\0", unproven)
    return (proven + LIAR.sign(b"bristle 2 join\0" + proven))[handshake.PREFIX_BYTES :]


def seeds() -> dict[str, bytes]:
    """Return a message of each kind."""
    caller = _caller()
    join = caller.join(COOKIE, alone=True)
    decoded = handshake.decode(join, GROUP)
    assert isinstance(decoded, Join)
    answer = answer_join(decoded, HONEST, GROUP, session_id=b"here", full=False)
    assert not isinstance(answer, Refusal)
    cut = handshake.PREFIX_BYTES
    return {
        "hello": bytes([_PREFIXED]) + caller.hello()[cut:],
        "cookie": bytes([_PREFIXED]) + handshake.encode_cookie(GROUP, NONCE, COOKIE)[cut:],
        "join": bytes([_PREFIXED | _CHECKED]) + join[cut:],
        "join-unchecked": bytes([_PREFIXED]) + join[cut:],
        "join-low-order": bytes([_PREFIXED | _CHECKED]) + _low_order_join(),
        "welcome": bytes([_PREFIXED | _CHECKED]) + answer[1][cut:],
        "other-group": bytes([0]) + b"br" + bytes(20) + caller.hello()[cut:],
        "version-1": bytes([0]) + b"\x00\x02" + GROUP.id + bytes([handshake.HELLO, 1]) + NONCE + bytes(24),
        "version-3": bytes([_PREFIXED]) + bytes([handshake.HELLO, 3]) + NONCE + bytes(30),
        "version-3-answers": bytes([_PREFIXED]) + bytes([handshake.OTHER_VERSION, 3]) + NONCE,
        "beacon": bytes([_BEACON]) + encode_beacon(GROUP, b"nonce  8", 7700),
    }


TARGET = Target(name="handshake", check=check, seeds=seeds, largest=400)
