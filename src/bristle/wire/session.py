"""A session after a handshake: authenticated encryption (ChaCha20-Poly1305) with replay protection."""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from bristle.wire.refusal import Refusal

SEALED = 0xB5
"""First byte of a sealed datagram."""

SESSION_ID_BYTES = 4
_HEADER_BYTES = 1 + SESSION_ID_BYTES
_NONCE_BYTES = 8
_TAG_BYTES = 16
_PADDING = bytes(4)
"""Before the 8-byte counter, to make the 12-byte nonce of ChaCha20-Poly1305 (RFC 8439)."""

_WINDOW = 4096
"""Size of the replay window: datagrams that arrive later than this are refused."""

_WINDOW_MASK = (1 << _WINDOW) - 1


class Session:
    """An encrypted session between two peers.

    Parameters
    ----------
    outward, inward : bytes
        The 32-byte keys of what this side seals and opens.
    initiator : bool
        Whether this side began.
    local, remote : bytes
        Session ids, 4 bytes chosen by each receiver.
    """

    def __init__(self, outward: bytes, inward: bytes, *, initiator: bool, local: bytes, remote: bytes) -> None:
        self._outward, self._inward = ChaCha20Poly1305(outward), ChaCha20Poly1305(inward)
        self.initiator = initiator
        self._header = bytes([SEALED]) + remote
        self._sent = 0
        self.local = local
        self.heard = False
        self._newest = 0
        self._window = 0

    def seal(self, message: bytes) -> bytes:
        """Return the datagram that carries a message: kind 1, session 4, nonce 8, ciphertext, tag 16."""
        number = self._sent.to_bytes(_NONCE_BYTES, "big")
        self._sent += 1
        return self._header + number + self._outward.encrypt(_PADDING + number, message, self._header)

    def open(self, datagram: bytes) -> bytes | Refusal:
        """Decrypt a datagram; refuse what was not sealed by the other side, or was received before."""
        if len(datagram) < _HEADER_BYTES + _NONCE_BYTES + _TAG_BYTES:
            return Refusal.MALFORMED
        number = int.from_bytes(datagram[_HEADER_BYTES : _HEADER_BYTES + _NONCE_BYTES], "big")
        ahead = number - self._newest
        if ahead <= -_WINDOW or (ahead <= 0 and self._window >> -ahead & 1):
            return Refusal.REPLAY
        try:
            message = self._inward.decrypt(
                _PADDING + datagram[_HEADER_BYTES : _HEADER_BYTES + _NONCE_BYTES],
                datagram[_HEADER_BYTES + _NONCE_BYTES :],
                datagram[:_HEADER_BYTES],
            )
        except InvalidTag:
            return Refusal.NOT_SEALED
        if ahead > 0:
            # A large jump clears the window instead of shifting far.
            self._window = 1 if ahead >= _WINDOW else (self._window << ahead | 1) & _WINDOW_MASK
            self._newest = number
        else:
            self._window |= 1 << -ahead
        self.heard = True
        return message


def session_id_of(datagram: bytes) -> bytes:
    """Return the session id of a sealed datagram."""
    return datagram[1:_HEADER_BYTES]
