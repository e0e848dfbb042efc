"""A peer written from docs/wire-format.md alone: it knows nothing of Bristle's code, and does only what it must.

    echo '{"host": "127.0.0.1", "port": 7700, "application": "digits", ...}' | python second_peer.py

It joins a group over UDP, sends one head and takes one, and prints what it took, as JSON. Section names in comments are
those of the page.
"""

from __future__ import annotations

import hmac
import json
import os
import socket
import struct
import sys
import time
import zlib
from hashlib import blake2b, scrypt, sha256
from typing import Any

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

VERSION = 2
HELLO, COOKIE, JOIN, WELCOME = 1, 2, 3, 4
MANIFEST, PIECE, ACKNOWLEDGEMENT, PEERS, LEAVE = 1, 2, 3, 4, 5
STOP = 0xFFFF
PIECE_SIZE = 1100
PATIENCE = 30.0


def digest(*parts: bytes) -> bytes:
    """Group id: count, then each part behind its length."""
    return sha256(struct.pack(">I", len(parts)) + b"".join(struct.pack(">Q", len(p)) + p for p in parts)).digest()


def hkdf(salt: bytes, secret: bytes, label: bytes) -> bytes:
    """RFC 5869: extract, then one block of expand, which is 32 bytes."""
    return hmac.digest(hmac.digest(salt, secret, "sha256"), label + b"\x01", "sha256")


class Group:
    """Group id."""

    def __init__(
        self, application: str, backbone: str, classes: list[str], features: int, secret: bytes | None
    ) -> None:
        content = digest(*(text.encode() for text in (application, backbone, *classes)))
        content = digest(content, struct.pack(">Q", features))
        self.k = content if secret is None else scrypt(secret, salt=content, n=2**14, r=8, p=1, dklen=32)
        self.id = hmac.digest(self.k, b"bristle group id", "sha256")[:20]
        self.classes, self.features = len(classes), features

    def proof(self, purpose: bytes, content: bytes) -> bytes:
        return hmac.digest(self.k, digest(purpose, content), "sha256")[:16]


class Session:
    """Sealed messages."""

    def __init__(self, outward: bytes, inward: bytes, mine: bytes, theirs: bytes) -> None:
        self.outward, self.inward = ChaCha20Poly1305(outward), ChaCha20Poly1305(inward)
        self.mine, self.theirs = mine, theirs
        self.sent = 0

    def seal(self, message: bytes) -> bytes:
        head, number = b"\xb5" + self.theirs, struct.pack(">Q", self.sent)
        self.sent += 1
        return head + number + self.outward.encrypt(bytes(4) + number, message, head)

    def open(self, datagram: bytes) -> bytes | None:
        if datagram[:5] != b"\xb5" + self.mine:
            return None
        try:
            return self.inward.decrypt(bytes(4) + datagram[5:13], datagram[13:], datagram[:5])
        except InvalidTag:
            return None


class Peer:
    """A caller that becomes a neighbour of one peer."""

    def __init__(self, group: Group, address: tuple[str, int]) -> None:
        self.group, self.address = group, address
        self.secret = Ed25519PrivateKey.generate()
        self.key = self.secret.public_key().public_bytes_raw()
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.settimeout(0.5)
        self.deadline = time.monotonic() + PATIENCE

    def ask(self, datagram: bytes, kind: int) -> bytes:
        """Handshake: say it again every half second until the answer comes."""
        while time.monotonic() < self.deadline:
            self.socket.sendto(datagram, self.address)
            try:
                while True:
                    answer = self.socket.recv(9000)
                    if answer[:24] == b"br" + self.group.id + bytes([kind, VERSION]):
                        return answer
            except TimeoutError:
                continue
        raise TimeoutError(f"no handshake message of kind {kind} came")

    def join(self) -> tuple[Session, bytes]:
        """Handshake; returns the session and the public key of the called."""
        nonce, mine, ephemeral = os.urandom(16), os.urandom(4), X25519PrivateKey.generate()

        def head(kind: int) -> bytes:
            return b"br" + self.group.id + bytes([kind, VERSION])

        cookie = self.ask(head(HELLO) + nonce + bytes(24), COOKIE)
        assert len(cookie) == 56
        assert cookie[24:40] == nonce
        x = head(JOIN) + b"\x01" + cookie[40:] + nonce + self.key + ephemeral.public_key().public_bytes_raw() + mine
        join = x + self.group.proof(b"bristle 2 join\0", x)
        join += self.secret.sign(b"bristle 2 join\0" + join)
        assert len(join) == 205

        welcome = self.ask(join, WELCOME)
        _, flags, echo, key, theirs, session_id, proof, signature = struct.unpack(">24sB16s32s32s4s16s64s", welcome)
        assert echo == nonce
        assert not flags & 1, "there is no room"
        h, x = sha256(join).digest(), welcome[:-80]
        assert hmac.compare_digest(proof, self.group.proof(b"bristle 2 welcome\0", h + x))
        Ed25519PublicKey.from_public_bytes(key).verify(signature, b"bristle 2 welcome\0" + h + x + proof)

        shared = ephemeral.exchange(X25519PublicKey.from_public_bytes(theirs))
        transcript = sha256(join + welcome).digest()
        caller = hkdf(transcript, shared + self.group.k, b"bristle 2 key of the caller")
        called = hkdf(transcript, shared + self.group.k, b"bristle 2 key of the called")
        return Session(caller, called, mine, session_id), key

    def manifest(self, sequence: int, iteration: int, body: bytes) -> bytes:
        """Manifest of a head of float32 without compression."""
        chunk = max(4096, -(-len(body) // 32))
        fields = struct.pack(
            ">BBBB20s32sQIIIIHIH", VERSION, 0, 1, 0, self.group.id, self.key, sequence, 0, iteration,
            self.group.classes, self.group.features, 0, len(body), 0,
        )  # fmt: skip
        hashes = b"".join(blake2b(body[at : at + chunk], digest_size=16).digest() for at in range(0, len(body), chunk))
        return fields + hashes + self.secret.sign(b"bristle 2 manifest\0" + fields + hashes)

    def exchange(self, values: list[float], iteration: int) -> dict[str, Any]:
        """Send a head and take one; return the one that was taken."""
        session, key = self.join()
        planes = [struct.pack("<f", value) for value in values]
        body = bytes(value[plane] for plane in range(4) for value in planes)
        sequence = time.time_ns() // 1_000_000
        signed, pieces = self.manifest(sequence, iteration, body), range(0, len(body), PIECE_SIZE)
        order, sent_at, delivered = 0, 0.0, False
        incoming = Incoming(self.group, key)
        # The first sealed message makes the caller a neighbour.
        self.socket.sendto(session.seal(struct.pack(">BQBB", PEERS, 0, 0, 0)), self.address)
        while not (delivered and incoming.head is not None):
            if time.monotonic() > self.deadline:
                raise TimeoutError(f"delivered: {delivered}, taken: {incoming.head is not None}")
            if not delivered and time.monotonic() - sent_at > 1:
                sent_at = time.monotonic()
                order += 1
                said = [struct.pack(">BIH", MANIFEST, order, PIECE_SIZE) + signed]
                for index, at in enumerate(pieces):
                    order += 1
                    said.append(struct.pack(">BQIH", PIECE, sequence, order, index) + body[at : at + PIECE_SIZE])
                for message in said:
                    self.socket.sendto(session.seal(message), self.address)
            try:
                heard = session.open(self.socket.recv(9000))
            except TimeoutError:
                continue
            if heard is None:
                continue
            if heard[0] == ACKNOWLEDGEMENT:
                _, of, _, base = struct.unpack_from(">BQIH", heard)
                delivered |= of == sequence and base in (len(pieces) + 1, STOP)
            elif heard[0] in (MANIFEST, PIECE):
                answer = incoming.take(heard)
                self.socket.sendto(session.seal(answer), self.address)
            elif heard[0] == LEAVE:
                raise RuntimeError("the other side left")
        assert incoming.head is not None
        self.socket.sendto(session.seal(bytes([LEAVE])), self.address)
        return incoming.head


class Incoming:
    """Transfer, of one head that comes in."""

    def __init__(self, group: Group, author: bytes) -> None:
        self.group, self.author = group, author
        self.head: dict[str, Any] | None = None
        self.sequence, self.newest, self.size = 0, 0, 0
        self.signed = b""
        self.received: dict[int, bytes] = {}

    def take(self, message: bytes) -> bytes:
        """Take a manifest or a piece; return the acknowledgement."""
        if message[0] == MANIFEST:
            _, order, size = struct.unpack_from(">BIH", message)
            self._begin(struct.unpack_from(">Q", message, 7 + 56)[0])
            self.signed, self.size = message[7:], size
        else:
            _, sequence, order, index = struct.unpack_from(">BQIH", message)
            self._begin(sequence)
            self.received[index] = message[15:]
        self.newest = max(self.newest, order)
        base = 0
        if self.signed:
            base = 1
            while base - 1 in self.received:
                base += 1
            if base - 1 == -(-struct.unpack_from(">I", self.signed, 82)[0] // self.size):
                self._finish()
        bits = sum(1 << index - base for index in self.received if index >= base)
        bitmap = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
        return struct.pack(">BQIH", ACKNOWLEDGEMENT, self.sequence, self.newest, base) + bitmap

    def _begin(self, sequence: int) -> None:
        if sequence > self.sequence:
            self.sequence, self.newest, self.signed, self.received = sequence, 0, b"", {}

    def _finish(self) -> None:
        (version, kind, encoding, compression, group, author, sequence, _, iteration, classes, features, _, length,
         _) = struct.unpack_from(">BBBB20s32sQIIIIHIH", self.signed)  # fmt: skip
        assert (version, kind, group, author) == (VERSION, 0, self.group.id, self.author)
        assert (classes, features) == (self.group.classes, self.group.features)
        Ed25519PublicKey.from_public_bytes(author).verify(
            self.signed[-64:], b"bristle 2 manifest\0" + self.signed[:-64]
        )
        body = b"".join(self.received[index] for index in sorted(self.received))
        assert len(body) == length
        chunk = max(4096, -(-length // 32))
        for number, at in enumerate(range(0, length, chunk)):
            found = blake2b(body[at : at + chunk], digest_size=16).digest()
            assert found == self.signed[88 + 16 * number : 104 + 16 * number]
        raw = zlib.decompress(body) if compression else body
        assert encoding == 1, "this peer reads float32 only"
        count = classes * features
        values = [
            struct.unpack("<f", bytes(raw[plane * count + place] for plane in range(4)))[0] for place in range(count)
        ]
        self.head = {
            "author": author.hex(), "sequence": sequence, "iteration": iteration, "values": values
        }  # fmt: skip


def main() -> None:
    """Do what standard input says, in JSON."""
    wanted = json.load(sys.stdin)
    secret = None if wanted["secret"] is None else bytes.fromhex(wanted["secret"])
    group = Group(wanted["application"], wanted["backbone"], wanted["classes"], wanted["features"], secret)
    peer = Peer(group, (wanted["host"], wanted["port"]))
    try:
        head = peer.exchange(wanted["values"], wanted["iteration"])
    except InvalidSignature:
        sys.exit("a signature is wrong")
    finally:
        peer.socket.close()
    print(json.dumps({"key id": sha256(peer.key).hexdigest()[:40], "head": head}))


if __name__ == "__main__":
    main()
