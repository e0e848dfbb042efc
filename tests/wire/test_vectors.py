"""The test vectors beside the page of the wire format, against the code.

`python tests/wire/test_vectors.py` writes them. All keys, nonces and secrets are fixed. They guard nothing.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from numpy.typing import NDArray

from bristle.p2p.beacon import encode_beacon
from bristle.rules import Statement
from bristle.wire import Group, Identity, handshake, messages
from bristle.wire.admission import Offer, Revocation
from bristle.wire.encoding import PLAIN, encode_statement
from bristle.wire.grid import GridHead, encode_grid, on_grid
from bristle.wire.handshake import Caller, CookieJar, Join, OtherVersion, Welcome, answer_join, decode
from bristle.wire.kinds import Kind
from bristle.wire.manifest import Manifest, claims_extension, digests_of, encode_manifest
from bristle.wire.offers import CONVICTED, EquivocationProof, Have, Holding, SignedRenewal, Want
from bristle.wire.session import Session
from bristle.wire.statements import Proof, SignedStatement

FILE = Path(__file__).parents[2] / "docs" / "wire-format-vectors.json"


def counting(first: int) -> bytes:
    return bytes(range(first, first + 32))


def test_the_vectors_are_what_the_code_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert json.loads(FILE.read_text(encoding="utf-8")) == vectors(monkeypatch)


def vectors(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    caller, called = Identity(counting(0)), Identity(counting(64))
    fields: dict[str, Any] = {"application": "digits", "backbone": "b", "classes": ("zero", "one"), "features": 8}
    secret = b"sixteen bytes or more"
    closed = Group(**fields, secret=secret)
    return {
        "identities": [identity(each) for each in (caller, called)],
        "groups": [group(Group(**fields)), group(closed)],
        "handshake": conversation(caller, called, closed, monkeypatch),
        "other version": {
            "hello of version 3": (hello := b"br" + closed.id + bytes([1, 3]) + bytes(range(16)) + bytes(24)).hex(),
            "answer": handshake.encode_other_version(closed, other(hello, closed)).hex(),
            "hello of version 1": (
                first := b"\x00\x02" + closed.id + bytes([1, 1]) + bytes(range(16)) + bytes(24)
            ).hex(),
            "answer to version 1": handshake.encode_other_version(closed, other(first, closed)).hex(),
        },
        "beacon": {
            "nonce": b"8 bytes.".hex(),
            "port": 7700,
            "datagram": encode_beacon(closed, b"8 bytes.", 7700).hex(),
        },
        "messages": said(),
        "head": head(caller, closed),
        "statement": statement(caller, closed),
        "founded group": founded(caller, called, fields),
    }


def identity(each: Identity) -> dict[str, str]:
    return {
        "secret": each.secret.hex(),
        "public key": each.key.hex(),
        "key id": each.key_id.hex(),
        "signature of 'message'": each.sign(b"message").hex(),
    }


def group(each: Group) -> dict[str, Any]:
    return {
        **json.loads(each.to_json()),
        "secret": None if each.secret is None else each.secret.hex(),
        "k": each._proof_key.hex(),
        "id": each.id.hex(),
        "proof('purpose', 'challenge')": each.prove(b"purpose", b"challenge").hex(),
    }


def other(hello: bytes, of: Group) -> OtherVersion:
    heard = decode(hello, of)
    assert isinstance(heard, OtherVersion)
    return heard


def conversation(caller: Identity, called: Identity, of: Group, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    ephemeral = [counting(100), counting(150)]
    fresh = [X25519PrivateKey.from_private_bytes(each) for each in ephemeral]

    class Prepared:
        @staticmethod
        def generate() -> X25519PrivateKey:
            return fresh.pop(0)

    shared = fresh[0].exchange(X25519PublicKey.from_public_bytes(fresh[1].public_key().public_bytes_raw()))
    monkeypatch.setattr(handshake, "X25519PrivateKey", Prepared)
    calling = Caller(caller, of, nonce=bytes(range(16)), session_id=b"anne")
    cookie = CookieJar(bytes(32)).make(("192.0.2.1", 7700), 100.0)
    answer = handshake.encode_cookie(of, calling.nonce, cookie)
    join = calling.join(cookie, alone=True)
    heard = decode(join, of)
    assert isinstance(heard, Join)
    answered = answer_join(heard, called, of, session_id=b"bert", full=False)
    assert isinstance(answered, tuple)
    theirs, welcome = answered
    welcomed = decode(welcome, of)
    assert isinstance(welcomed, Welcome)
    ours = calling.finish(welcomed)
    assert isinstance(ours, Session)
    keys = [
        of.derive(shared, transcript=join + welcome, label=label)
        for label in (b"bristle 2 key of the caller", b"bristle 2 key of the called")
    ]
    return {
        "caller's ephemeral secret": ephemeral[0].hex(),
        "called's ephemeral secret": ephemeral[1].hex(),
        "hello": calling.hello().hex(),
        "cookie": answer.hex(),
        "join": join.hex(),
        "welcome": welcome.hex(),
        "shared": shared.hex(),
        "transcript": sha256(join + welcome).hexdigest(),
        "key of the caller": keys[0].hex(),
        "key of the called": keys[1].hex(),
        "sealed by the caller: 'hello', 'again'": [ours.seal(b"hello").hex(), ours.seal(b"again").hex()],
        "sealed by the called: 'hello'": [theirs.seal(b"hello").hex()],
    }


def founded(ann: Identity, ben: Identity, fields: dict[str, Any]) -> dict[str, Any]:
    of = Group(**fields, founders=frozenset([ann.key_id]))
    code, expires = Identity(counting(200)), 1_800_000_000
    offer = Offer.sign(ann, of.id, slot=1, number=7, invitee=ben.key_id, seats=3, expires=expires)
    by_code = Offer.sign(ann, of.id, slot=2, number=8, invitee=code.key_id, by_code=True)
    membership = offer.accept(ben, of.id, number=9)
    revocation = Revocation.sign(ann, of.id, inviter=ann.key_id, slot=1, number=7)
    return {
        "founders": [ann.key_id.hex()],
        "id": of.id.hex(),
        "offer: slot 1, number 7, 3 seats": offer.data.hex(),
        "membership: number 9": membership.data.hex(),
        "secret of the code": code.secret.hex(),
        "membership by the code: slot 2, number 8, no seats, for ever; accepted with number 9": by_code.accept(
            ben, of.id, number=9, code=code.secret
        ).data.hex(),
        "revocation: slot 1, number 7": revocation.data.hex(),
        "ids of the membership and the revocation": [membership.id.hex(), revocation.id.hex()],
        "credentials of the caller, cookie 16 times 01": [
            datagram.hex()
            for datagram in handshake.encode_credentials(of, bytes(range(16)), [membership.data], cookie=b"\x01" * 16)
        ],
        "credentials of the called": [
            datagram.hex() for datagram in handshake.encode_credentials(of, bytes(range(16)), [membership.data])
        ],
    }


def said() -> dict[str, str]:
    others = ((b"\x55" * 20, ("192.0.2.1", 7700)), (b"\x66" * 20, ("::1", 1)))
    local = (("192.168.1.2", 7700),)
    examples: dict[str, messages.Message] = {
        "manifest: order 1, pieces of 1000, 'signed', base 4, 9 bytes, of which 'start'": messages.SignedManifest(
            1, 1000, b"signed", 4, 9, b"start"
        ),
        "piece: transfer 10, order 2, index 0, 'data'": messages.Piece(10, 2, 0, b"data"),
        "piece of a statement": messages.Piece(11, 2, 0, b"data", Kind.STATEMENT),
        "acknowledgement: transfer 10, newest 2, base 3, later 3 + 1 and 3 + 10": messages.Acknowledgement(
            10, 2, 3, 0b10_0000_0001
        ),
        "acknowledgement of a statement: send no more": messages.Acknowledgement(
            11, 2, messages.STOP, kind=Kind.STATEMENT
        ),
        "peers: seen 7, 192.0.2.1 port 7700 and ::1 port 1": messages.Peers(7, others),
        "peers: the same, from 192.168.1.2 port 7700": messages.Peers(7, others, local),
        "meet: 55..": messages.Meet(b"\x55" * 20),
        "call: 55.., circuit 01020304, 192.0.2.1 and 192.168.1.2, both port 7700": messages.CallRequest(
            b"\x55" * 20, bytes([1, 2, 3, 4]), (others[0][1], *local)
        ),
        "forward: circuit 01020304": messages.Forward(bytes([1, 2, 3, 4]), b"a datagram"),
        "forwarded: circuit 01020304": messages.Forwarded(bytes([1, 2, 3, 4]), b"a datagram"),
        "have: order 1, 55.. has statement 7 with digest 66.., until 1800000000, and 77.. is convicted": Have(
            1, (Holding(b"\x55" * 20, 7, b"\x66" * 16, 1_800_000_000), Holding(b"\x77" * 20, CONVICTED, bytes(16), 0))
        ),
        "want: order 1, of 55.. all, of 66.. the renewal": Want(1, ((b"\x55" * 20, False), (b"\x66" * 20, True))),
        "want: order 2, nothing": Want(2),
        "renewal: of 144 bytes 88": SignedRenewal(b"\x88" * 144),
        "proof: of manifests aaaa and bbbbbb": EquivocationProof(Proof(b"\xaa" * 2, b"\xbb" * 3).to_bytes()),
        "forwarded: circuit 01020304 is closed": messages.Forwarded(bytes([1, 2, 3, 4])),
        "leave": messages.Leave(),
        "probe: 1, 2, .. 64, asks": messages.Probe(np.arange(1, 65, dtype=">f4").tobytes(), asks=True),
        "roster: the digest 'a digest' alone": messages.RosterIds(b"a digest"),
        "roster: ids 01.. and 02.. of 01.. to 7f.., in answer": messages.RosterIds(
            b"a digest", b"\x01" * 8, b"\x7f" * 8, (b"\x01" * 8, b"\x02" * 8), answers=True
        ),
    }
    return {name: messages.encode(message).hex() for name, message in examples.items()}


def head(author: Identity, of: Group) -> dict[str, Any]:
    values = np.arange(16, dtype=np.float32).reshape(2, 8) / 4
    later = values + np.array([[0.01, -0.3] * 4, [5.0] + [0.0] * 7])
    first = on_grid(values)
    second = on_grid(later, first)
    body = first.content()
    manifest = Manifest(
        group=of.id, author=author.key, sequence=1_700_000_000_000, iteration=7, encoding="grid",
        compression=PLAIN, classes=2, features=8, body=len(body), digests=digests_of(body),
        extensions=(claims_extension(np.array([True, False])),),
    )  # fmt: skip
    return {
        "first": public(values, first, None),
        "second, a difference from the first": public(later, second, first),
        "second, in full": public(later, second, None),
        "claims": [True, False],
        "manifest of the first": encode_manifest(manifest, author).hex(),
    }


def public(values: NDArray[Any], head: GridHead, base: GridHead | None) -> dict[str, Any]:
    # How well it is compressed is the library's business; what comes out is not.
    return {
        "values": values.tolist(),
        "exponents": head.exponents.tolist(),
        "steps": head.steps.tolist(),
        "signed": head.content().hex(),
        "sent, before compression": zlib.decompress(encode_grid(head, base), wbits=-15).hex(),
    }


def statement(author: Identity, of: Group) -> dict[str, Any]:
    rows = np.array([[1, -2, 0, 0, 0.5, 3e8, 0, 1], [0] * 8], dtype=float)
    factors, diagonal = np.arange(8.0).reshape(1, 8), np.zeros(8)
    said = Statement(rows, np.array([25, 0]), factors, diagonal)
    body = encode_statement(said, compress=False)
    manifest = Manifest(
        group=of.id, author=author.key, kind=Kind.STATEMENT, sequence=1_700_000_000_001, expires=1_800_000_000,
        encoding="float16", compression=PLAIN, classes=2, features=8, rank=1, body=len(body), digests=digests_of(body),
    )  # fmt: skip
    signed = SignedStatement(encode_manifest(manifest, author), body)
    other = encode_manifest(replace(manifest, expires=1_800_000_001), author)
    return {
        "counts": [25, 0],
        "means": rows.tolist(),
        "factors": factors.tolist(),
        "diagonal": diagonal.tolist(),
        "expires": manifest.expires,
        "body of float16": body.hex(),
        "body of int8": encode_statement(said, encoding="int8", compress=False).hex(),
        "manifest": signed.manifest.hex(),
        "digest": signed.digest.hex(),
        "renewal until 1800600000": signed.renew(author, 1_800_600_000).renewal.hex(),
        "proof, with one that expires a second later": Proof(signed.manifest, other).to_bytes().hex(),
    }


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as context:
        FILE.write_text(json.dumps(vectors(context), indent=1) + "\n", encoding="utf-8")
