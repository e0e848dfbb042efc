"""A peer written from docs/wire-format.md alone: it knows nothing of Bristle's code, and does only what it must.

    echo '{"host": "127.0.0.1", "port": 7700, "application": "digits", ...}' | python second_peer.py

It joins a group over UDP, sends one head, takes some, the first in full and others as differences, offers a statement,
asks for those that it is offered, and prints what it took, as JSON. Section names in comments are those of the page.
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
HAVE, WANT, RENEWAL, PROOF = 10, 11, 12, 13
STATEMENT = 16
FULL, KEPT, STOP = 0xFFFD, 0xFFFE, 0xFFFF
STEP = -9
PIECE_SIZE = 1100
PATIENCE = 120.0


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
        """Manifest of a head on a grid."""
        chunk = max(4096, -(-len(body) // 16))
        fields = struct.pack(
            ">BBBB20s32sQIIIIHIH", VERSION, 0, 3, 0, self.group.id, self.key, sequence, 0, iteration,
            self.group.classes, self.group.features, 0, len(body), 0,
        )  # fmt: skip
        hashes = b"".join(blake2b(body[at : at + chunk], digest_size=16).digest() for at in range(0, len(body), chunk))
        return fields + hashes + self.secret.sign(b"bristle 2 manifest\0" + fields + hashes)

    def on_grid(self, values: list[float]) -> tuple[bytes, bytes]:
        """Heads: what is signed of a head, and what is sent of it, in full; all rows have the same step."""
        steps = [round(value / 2.0**STEP) for value in values]
        assert max(map(abs, steps)) < 127 + 65_536
        exponents = [STEP] * self.group.classes
        digits = bytes(max(-127, min(127, step)) + 127 for step in steps)
        rest = [abs(step) - 127 for step in steps if abs(step) >= 127]
        raw = bytes([1]) + bytes(e + 128 for e in exponents) + digits
        raw += bytes(more & 0xFF for more in rest) + bytes(more >> 8 for more in rest)
        deflate = zlib.compressobj(wbits=-15)
        sent = deflate.compress(raw) + deflate.flush()
        return struct.pack(f"<{len(exponents)}b{len(steps)}h", *exponents, *steps), sent

    def exchange(self, values: list[float], iteration: int, count: int, statements: Statements) -> list[dict[str, Any]]:
        """Send a head and take some, and statements; return the heads that were taken."""
        session, key = self.join()
        body, sent = self.on_grid(values)
        sequence = time.time_ns() // 1_000_000
        signed, pieces = self.manifest(sequence, iteration, body), range(0, len(sent), PIECE_SIZE)
        order, sent_at, delivered = 0, 0.0, False
        incoming = Incoming(self.group, key)
        # The first sealed message makes the caller a neighbour.
        self.socket.sendto(session.seal(struct.pack(">BQBB", PEERS, 0, 0, 0)), self.address)
        while not (delivered and len(incoming.heads) >= count and statements.done):
            if time.monotonic() > self.deadline:
                raise TimeoutError(f"delivered: {delivered}, taken: {len(incoming.heads)}, {statements.taken}")
            for message in statements.due():
                self.socket.sendto(session.seal(message), self.address)
            if not delivered and time.monotonic() - sent_at > 1:
                sent_at = time.monotonic()
                order += 1
                said = [struct.pack(">BIHQIH", MANIFEST, order, PIECE_SIZE, 0, len(sent), len(signed)) + signed]
                for index, at in enumerate(pieces):
                    order += 1
                    header = struct.pack(">BQIH", PIECE, 2 * sequence + 1, order, index)
                    said.append(header + sent[at : at + PIECE_SIZE])
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
                delivered |= of == 2 * sequence + 1 and base in (KEPT, STOP)
            elif heard[0] in (MANIFEST, PIECE):
                answer = incoming.take(heard)
                self.socket.sendto(session.seal(answer), self.address)
            elif heard[0] in statements.KINDS:
                for message in statements.take(heard):
                    self.socket.sendto(session.seal(message), self.address)
            elif heard[0] == LEAVE:
                raise RuntimeError("the other side left")
        self.socket.sendto(session.seal(bytes([LEAVE])), self.address)
        return incoming.heads


Public = tuple[list[int], list[int]]
"""Heads: exponents of the rows, and all steps."""


class Incoming:
    """Transfer, of heads that come in, one after the other."""

    def __init__(self, group: Group, author: bytes) -> None:
        self.group, self.author = group, author
        self.heads: list[dict[str, Any]] = []
        self.kept: dict[int, Public] = {}
        self.transfer, self.newest, self.size = 0, 0, 0
        self.signed, self.start, self.base, self.piece_size = b"", b"", 0, 1
        self.received: dict[int, bytes] = {}

    def take(self, message: bytes) -> bytes:
        """Take a manifest or a piece; return the acknowledgement."""
        if message[0] == MANIFEST:
            _, order, piece_size, base, size, length = struct.unpack_from(">BIHQIH", message)
            signed, start = message[21 : 21 + length], message[21 + length :]
            transfer = 2 * struct.unpack_from(">Q", signed, 56)[0] + (base == 0)
            if transfer < self.transfer:
                return self._answer(STOP, transfer)
            self._begin(transfer)
            self.signed, self.start, self.base, self.size, self.piece_size = signed, start, base, size, piece_size
        else:
            _, transfer, order, index = struct.unpack_from(">BQIH", message)
            if transfer < self.transfer:
                return self._answer(STOP, transfer)
            self._begin(transfer)
            self.received[index] = message[15:]
        self.newest = max(self.newest, order)
        if self.transfer >> 1 in self.kept:
            return self._answer(KEPT)
        arrived = 0
        if self.signed:
            arrived = 1
            while arrived - 1 in self.received:
                arrived += 1
            if arrived - 1 == -(-(self.size - len(self.start)) // self.piece_size):
                return self._answer(self._finish())
        bits = sum(1 << index - arrived for index in self.received if index >= arrived)
        return self._answer(arrived) + bits.to_bytes((bits.bit_length() + 7) // 8, "little")

    def _answer(self, base: int, transfer: int | None = None) -> bytes:
        return struct.pack(">BQIH", ACKNOWLEDGEMENT, transfer or self.transfer, self.newest, base)

    def _begin(self, transfer: int) -> None:
        if transfer > self.transfer:
            self.transfer, self.newest, self.signed, self.received = transfer, 0, b"", {}

    def _finish(self) -> int:
        """Manifest and Heads: check what has come; return how the transfer ends."""
        (version, kind, encoding, compression, group, author, sequence, _, iteration, classes, features, _, length,
         _) = struct.unpack_from(">BBBB20s32sQIIIIHIH", self.signed)  # fmt: skip
        assert (version, kind, encoding, compression) == (VERSION, 0, 3, 0)
        assert (group, author, classes, features) == (
            self.group.id, self.author, self.group.classes, self.group.features
        )  # fmt: skip
        Ed25519PublicKey.from_public_bytes(author).verify(
            self.signed[-64:], b"bristle 2 manifest\0" + self.signed[:-64]
        )
        if self.base and self.base not in self.kept:
            return FULL
        sent = self.start + b"".join(self.received[index] for index in sorted(self.received))
        assert len(sent) == self.size
        exponents, steps = public = self._decode(zlib.decompress(sent, wbits=-15), self.kept.get(self.base))
        body = struct.pack(f"<{classes}b{classes * features}h", *exponents, *steps)
        assert len(body) == length
        chunk = max(4096, -(-length // 16))
        for number, at in enumerate(range(0, length, chunk)):
            found = blake2b(body[at : at + chunk], digest_size=16).digest()
            assert found == self.signed[88 + 16 * number : 104 + 16 * number]
        self.kept[sequence] = public
        values = [step * 2.0 ** exponents[place // features] for place, step in enumerate(steps)]
        self.heads.append(
            {"author": author.hex(), "sequence": sequence, "iteration": iteration, "base": self.base, "values": values}
        )
        return KEPT

    def _decode(self, raw: bytes, base: Public | None) -> Public:
        """Heads: undo the difference."""
        digits, classes, count = raw[0], self.group.classes, self.group.classes * self.group.features
        exponents = [byte - 128 for byte in raw[1 : 1 + classes]]
        end = 1 + classes + -(-count // digits)
        places = raw[1 + classes : end]
        outer = {1: 127, 2: 7}[digits]
        found = [byte - 127 for byte in places]
        if digits == 2:
            found = [digit - 7 for byte in places for digit in divmod(byte, 15)][:count]
        beyond = [place for place, digit in enumerate(found) if abs(digit) == outer]
        assert len(raw) == end + 2 * len(beyond)
        for number, place in enumerate(beyond):
            more = raw[end + number] + 256 * raw[end + len(beyond) + number]
            found[place] += more if found[place] > 0 else -more
        if base is None:
            return exponents, found
        steps = []
        for place, difference in enumerate(found):
            row, step = place // self.group.features, base[1][place]
            coarser = exponents[row] - base[0][row]
            if abs(coarser) >= 16:
                step = 0
            elif coarser > 0:
                step = (step + 2 ** (coarser - 1)) // 2**coarser
            else:
                step = max(-32767, min(32767, step * 2**-coarser))
            steps.append(step + difference)
        return exponents, steps


class Statements:
    """Passing statements on: offers its own, and asks for all that it is offered."""

    KINDS = (HAVE, WANT, RENEWAL, PROOF, STATEMENT + MANIFEST, STATEMENT + PIECE, STATEMENT + ACKNOWLEDGEMENT)

    def __init__(self, group: Group, secret: Ed25519PrivateKey, said: dict[str, Any] | None, count: int) -> None:
        self.group, self.count = group, count
        self.said = None if said is None else self._sign(secret, said)
        self.author = sha256(secret.public_key().public_bytes_raw()).digest()[:20]
        self.taken: dict[str, dict[str, Any]] = {}
        self.known, self.delivered, self.repeat = False, said is None, 0.0
        self.order, self.transfer, self.received, self.signed = 0, 0, dict[int, bytes](), b""
        self.start, self.size, self.piece_size = b"", 0, 1

    @property
    def done(self) -> bool:
        return self.delivered and len(self.taken) >= self.count

    def _sign(self, secret: Ed25519PrivateKey, said: dict[str, Any]) -> tuple[bytes, bytes, int, int]:
        """Statements: float16 without compression, the factors of rank 0, every exponent 0."""
        counts, lines = said["counts"], [row for row in said["means"] if any(row)] + [said["diagonal"]]
        values = [value for line in lines for value in line]
        stored = struct.pack(f"<{len(values)}e", *values)
        body = struct.pack(f">{len(counts)}I", *counts) + bytes(len(lines)) + stored[::2] + stored[1::2]
        number, expires = time.time_ns() // 1_000_000, int(time.time()) + 600
        chunk, key = max(4096, -(-len(body) // 16)), secret.public_key().public_bytes_raw()
        fields = struct.pack(
            ">BBBB20s32sQIIIIHIH", VERSION, 1, 2, 0, self.group.id, key, number, expires, 0,
            self.group.classes, self.group.features, 0, len(body), 0,
        )  # fmt: skip
        fields += b"".join(blake2b(body[at : at + chunk], digest_size=16).digest() for at in range(0, len(body), chunk))
        return fields + secret.sign(b"bristle 2 manifest\0" + fields), body, number, expires

    def due(self) -> list[bytes]:
        """Say that there is a statement, every second until that is acknowledged."""
        if self.said is None or self.known or time.monotonic() < self.repeat:
            return []
        self.repeat = time.monotonic() + 1
        signed, _, number, expires = self.said
        digest = blake2b(signed[:-64], digest_size=16).digest()
        return [struct.pack(">BI20sQ16sI", HAVE, 1, self.author, number, digest, expires)]

    def take(self, message: bytes) -> list[bytes]:
        """Take a message; return what it is answered with."""
        kind = message[0]
        if kind == HAVE:
            wishes = b""
            for at in range(5, len(message), 48):
                author, number = struct.unpack_from(">20sQ", message, at)
                if self.taken.get(author.hex(), {"number": 0})["number"] < number:
                    wishes += author + bytes([0])
            return [bytes([WANT]) + message[1:5] + wishes]
        if kind == WANT:
            self.known |= message[1:5] == struct.pack(">I", 1)
            wanted = [message[at : at + 20] for at in range(5, len(message), 21)]
            return self._whole() if self.author in wanted else []
        if kind == STATEMENT + ACKNOWLEDGEMENT:
            self.delivered |= struct.unpack_from(">BQIH", message)[3] == STOP
            return []
        if kind == RENEWAL:
            self._check_renewal(message[1:])
            return []
        if kind == PROOF:
            self._check_proof(message[1:])
            return []
        return self._collect(message)

    def _whole(self) -> list[bytes]:
        assert self.said is not None
        signed, body, _, _ = self.said
        said = [struct.pack(">BIHQIH", STATEMENT + MANIFEST, 1, PIECE_SIZE, 1, len(body), len(signed)) + signed]
        for index, at in enumerate(range(0, len(body), PIECE_SIZE)):
            header = struct.pack(">BQIH", STATEMENT + PIECE, 1, 2 + index, index)
            said.append(header + body[at : at + PIECE_SIZE])
        return said

    def _collect(self, message: bytes) -> list[bytes]:
        """Take a manifest or a piece of a statement; return an acknowledgement of all that has come."""
        if message[0] == STATEMENT + MANIFEST:
            _, order, piece_size, transfer, size, length = struct.unpack_from(">BIHQIH", message)
        else:
            _, transfer, order, index = struct.unpack_from(">BQIH", message)
        if transfer < self.transfer or (transfer == self.transfer and self.signed == b"over"):
            return [struct.pack(">BQIH", STATEMENT + ACKNOWLEDGEMENT, transfer, order, STOP)]
        if transfer > self.transfer:
            self.transfer, self.order, self.received, self.signed = transfer, 0, {}, b""
        self.order = max(self.order, order)
        if message[0] == STATEMENT + MANIFEST:
            self.signed, self.start = message[21 : 21 + length], message[21 + length :]
            self.size, self.piece_size = size, piece_size
        else:
            self.received[index] = message[15:]
        base = 0
        if self.signed:
            base = 1
            while base - 1 in self.received:
                base += 1
            if base - 1 == -(-(self.size - len(self.start)) // self.piece_size):
                self._finish(self.start + b"".join(self.received[at] for at in range(base - 1)))
                self.signed, base = b"over", STOP
        return [struct.pack(">BQIH", STATEMENT + ACKNOWLEDGEMENT, transfer, self.order, base)]

    def _finish(self, body: bytes) -> None:
        """Manifest and Statements: check what has come, whoever brought it."""
        (version, kind, encoding, compression, group, key, number, expires, _, classes, features, rank, length,
         extended) = struct.unpack_from(">BBBB20s32sQIIIIHIH", self.signed)  # fmt: skip
        chunk = max(4096, -(-length // 16))
        end = 88 + 16 * -(-length // chunk) + extended + 64
        signed, renewal = self.signed[:end], self.signed[end:]
        assert (version, kind, group, len(body)) == (VERSION, 1, self.group.id, length)
        Ed25519PublicKey.from_public_bytes(key).verify(signed[-64:], b"bristle 2 manifest\0" + signed[:-64])
        for place, at in enumerate(range(0, length, chunk)):
            found = blake2b(body[at : at + chunk], digest_size=16).digest()
            assert found == signed[88 + 16 * place : 104 + 16 * place]
        raw = zlib.decompress(body) if compression else body
        counts = struct.unpack_from(f">{classes}I", raw)
        lines = sum(count > 0 for count in counts) + rank + 1
        exponents = struct.unpack_from(f"{lines}b", raw, 4 * classes)
        width, code = {1: (4, "f"), 2: (2, "e"), 4: (1, "b")}[encoding]
        planes, values = raw[4 * classes + lines :], lines * features
        assert len(planes) == width * values
        stored = struct.unpack(
            f"<{values}{code}", bytes(planes[at + values * p] for at in range(values) for p in range(width))
        )
        found_lines = [
            [value * 2.0**exponent for value in stored[features * at : features * (at + 1)]]
            for at, exponent in enumerate(exponents)
        ]
        if code == "b":
            found_lines[-1] = [root**2 for root in found_lines[-1]]
        author = sha256(key).hexdigest()[:40]
        self.taken[author] = {
            "number": number, "expires": expires, "counts": counts, "lines": found_lines,
            "digest": blake2b(signed[:-64], digest_size=16).hexdigest(), "renewals": 0,
        }  # fmt: skip
        if renewal:
            self._check_renewal(renewal)

    def _check_renewal(self, renewal: bytes) -> None:
        group, key, number, digest, expires, signature = struct.unpack(">20s32sQ16sI64s", renewal)
        Ed25519PublicKey.from_public_bytes(key).verify(signature, b"bristle 2 renewal\0" + renewal[:-64])
        known = self.taken[sha256(key).hexdigest()[:40]]
        assert (group, number, digest.hex()) == (self.group.id, known["number"], known["digest"])
        known.update(expires=expires, renewals=known["renewals"] + 1)

    def _check_proof(self, proof: bytes) -> None:
        length = int.from_bytes(proof[:2], "big")
        both = proof[2 : 2 + length], proof[2 + length :]
        for each in both:
            Ed25519PublicKey.from_public_bytes(each[24:56]).verify(each[-64:], b"bristle 2 manifest\0" + each[:-64])
        assert both[0][24:64] == both[1][24:64]
        assert both[0][:-64] != both[1][:-64]
        self.taken[sha256(both[0][24:56]).hexdigest()[:40]] = {"number": 2**64 - 1, "convicted": True}


def main() -> None:
    """Do what standard input says, in JSON."""
    wanted = json.load(sys.stdin)
    secret = None if wanted["secret"] is None else bytes.fromhex(wanted["secret"])
    group = Group(wanted["application"], wanted["backbone"], wanted["classes"], wanted["features"], secret)
    peer = Peer(group, (wanted["host"], wanted["port"]))
    statements = Statements(group, peer.secret, wanted.get("statement"), wanted.get("statements", 0))
    try:
        heads = peer.exchange(wanted["values"], wanted["iteration"], wanted["count"], statements)
    except InvalidSignature:
        sys.exit("a signature is wrong")
    finally:
        peer.socket.close()
    print(json.dumps({"key id": sha256(peer.key).hexdigest()[:40], "heads": heads, "statements": statements.taken}))


if __name__ == "__main__":
    main()
