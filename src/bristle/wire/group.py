"""Groups: peers with the same application, backbone, classes and, optionally, secret or founders."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import scrypt, sha256
from typing import Any

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from bristle.wire.identity import KEY_ID_BYTES

GROUP_ID_BYTES = 20
PROOF_BYTES = 16
SHORTEST_SECRET = 16
MOST_FOUNDERS = 16


@dataclass(frozen=True, kw_only=True)
class Group:
    """A group of peers whose heads fit together, open or closed.

    Parameters
    ----------
    application : str
        Name of the application.
    backbone : str
        Digest of the backbone: heads of different backbones are not comparable.
    classes : tuple of str
        Names of the classes, in the order of a head's rows.
    features : int
        Columns of a head.
    secret : bytes, optional
        Closes the group to all who do not know it; at least 16 random bytes.
    members : frozenset of bytes, optional
        Closes the group to all but these key ids.
    founders : frozenset of bytes, optional
        Closes the group to all but these key ids and those who came in by an invitation of one of them, or of a
        member: see `bristle.p2p.members.roster`.
    roster : callable, optional
        Returns whether a key id is in the roster of a founded group; without one, only its founders are admitted.
    """

    application: str
    backbone: str
    classes: tuple[str, ...]
    features: int
    secret: bytes | None = field(default=None, repr=False)
    members: frozenset[bytes] | None = None
    founders: frozenset[bytes] | None = None
    roster: Callable[[bytes], bool] | None = field(default=None, repr=False, compare=False)
    id: bytes = field(init=False)
    _proof_key: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.classes:
            raise ValueError("a group needs at least one class")
        if self.features < 1:
            raise ValueError(f"features must be at least 1, not {self.features}")
        if self.secret is not None and len(self.secret) < SHORTEST_SECRET:
            raise ValueError(
                f"the secret of a closed group has {len(self.secret)} bytes; use at least {SHORTEST_SECRET}, "
                "e.g. from: python -c 'import secrets; print(secrets.token_hex(32))'"
            )
        if self.founders is not None and self.members is not None:
            raise ValueError("a group has a list of members or founders who invite others, not both")
        if self.founders is not None and not 1 <= len(self.founders) <= MOST_FOUNDERS:
            raise ValueError(f"a founded group has 1 to {MOST_FOUNDERS} founders, not {len(self.founders)}")
        wrong = [one for one in (*(self.members or ()), *(self.founders or ())) if len(one) != KEY_ID_BYTES]
        if wrong:
            raise ValueError(f"{wrong[0].hex()!r} is no key id: those have {KEY_ID_BYTES} bytes")
        content = _digest(self.application.encode(), self.backbone.encode(), *(name.encode() for name in self.classes))
        content = _digest(content, self.features.to_bytes(8, "big"))
        if self.founders is not None:
            content = _digest(content, *sorted(self.founders))
        proof_key = content if self.secret is None else _stretch(self.secret, content)
        object.__setattr__(self, "_proof_key", proof_key)
        object.__setattr__(self, "id", hmac.digest(proof_key, b"bristle group id", "sha256")[:GROUP_ID_BYTES])

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of a head: classes, features."""
        return len(self.classes), self.features

    @property
    def closed(self) -> bool:
        """Whether the group has a secret, a list of members or founders."""
        return self.secret is not None or self.members is not None or self.founders is not None

    @classmethod
    def from_json(cls, text: str) -> Group:
        """Return the group that `to_json` described, open to all."""
        fields: dict[str, Any] = json.loads(text)
        return cls(**{**fields, "classes": tuple(fields["classes"])})

    def to_json(self) -> str:
        """Return what the group's heads have in common, as JSON: neither its secret nor its members."""
        names = ("application", "backbone", "classes", "features")
        return json.dumps({name: getattr(self, name) for name in names})

    def difference(self, other: Group) -> str | None:
        """Describe how the heads of another group differ; None where they fit this one."""
        for name, mine, theirs in (
            ("application", self.application, other.application),
            ("backbone", self.backbone[:16], other.backbone[:16]),
            ("list of classes", ", ".join(self.classes), ", ".join(other.classes)),
            ("number of features", self.features, other.features),
        ):
            if mine != theirs:
                return f"its {name} is {theirs!r}, this peer's is {mine!r}"
        return None

    def admits(self, key_id: bytes) -> bool:
        """Return whether a key id may be a member: by the list of members, or by the roster of a founded group."""
        if self.founders is not None:
            return key_id in self.founders or (self.roster is not None and self.roster(key_id))
        return self.members is None or key_id in self.members

    def prove(self, purpose: bytes, challenge: bytes) -> bytes:
        """Return HMAC(k, purpose, challenge)[:16], a proof of knowing the group's secret."""
        return hmac.digest(self._proof_key, _digest(purpose, challenge), "sha256")[:PROOF_BYTES]

    def proven(self, proof: bytes, purpose: bytes, challenge: bytes) -> bool:
        """Return whether a proof is valid, in constant time."""
        return hmac.compare_digest(proof, self.prove(purpose, challenge))

    def derive(self, shared: bytes, *, transcript: bytes, label: bytes) -> bytes:
        """Return a 32-byte key: HKDF-SHA256 (RFC 5869) of a key exchange and the group's key, bound to a transcript.

        Extract with the SHA-256 of the transcript as the salt; expand with the label as the info, one for each key.
        """
        salt = sha256(transcript).digest()
        return HKDF(algorithm=SHA256(), length=32, salt=salt, info=label).derive(shared + self._proof_key)


def _digest(*parts: bytes) -> bytes:
    """Hash parts with their lengths, so that different lists have different digests."""
    hashed = sha256(len(parts).to_bytes(4, "big"))
    for part in parts:
        hashed.update(len(part).to_bytes(8, "big") + part)
    return hashed.digest()


@lru_cache(maxsize=16)
def _stretch(secret: bytes, salt: bytes) -> bytes:
    """Stretch a secret by scrypt: everybody sees the group's id, and each guess should be expensive."""
    return scrypt(secret, salt=salt, n=2**14, r=8, p=1, dklen=32)
