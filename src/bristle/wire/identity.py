"""The identity of a peer: an Ed25519 key pair in a file that only its owner can read."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from secrets import token_bytes, token_hex

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

KEY_BYTES = 32
SECRET_BYTES = 32
SIGNATURE_BYTES = 64
KEY_ID_BYTES = 20
_FILE = re.compile(rb"bristle identity 2\n([0-9a-f]{64})\n")
_OLD_FILE = b"LibNaCLSK:"
"""Beginning of an identity of wire version 1, which was a key pair of IPv8."""


def key_id_of(key: bytes) -> bytes:
    """Return the key id of a 32-byte public key, SHA-256(key)[:20]."""
    return sha256(key).digest()[:KEY_ID_BYTES]


def verify(key: bytes, signature: bytes, message: bytes) -> bool:
    """Return whether a signature of a message is valid for a 32-byte public key (Ed25519)."""
    if len(key) != KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError):  # ValueError: not a point on the curve.
        return False
    return True


@dataclass(frozen=True)
class Identity:
    """A key pair and its key id.

    Parameters
    ----------
    secret : bytes
        The 32 bytes that both keys are derived from (RFC 8032). Never shown.
    """

    secret: bytes = field(repr=False)
    _signer: Ed25519PrivateKey = field(init=False, repr=False, compare=False)
    key: bytes = field(init=False)
    key_id: bytes = field(init=False)

    def __post_init__(self) -> None:
        if len(self.secret) != SECRET_BYTES:
            raise ValueError(f"the secret of an identity has {SECRET_BYTES} bytes, not {len(self.secret)}")
        signer = Ed25519PrivateKey.from_private_bytes(self.secret)
        key = signer.public_key().public_bytes_raw()
        object.__setattr__(self, "_signer", signer)
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "key_id", key_id_of(key))

    @classmethod
    def generate(cls) -> Identity:
        """Generate a new identity, without a file."""
        return cls(token_bytes(SECRET_BYTES))

    @classmethod
    def load_or_create(cls, path: str | Path) -> Identity:
        """Load the identity from a file; create it, readable by its owner only, if there is none.

        Raises
        ------
        ValueError
            If others can read the file, or if it holds no key.
        """
        path = Path(path)
        if not path.exists():
            _create(path, f"bristle identity 2\n{cls.generate().secret.hex()}\n".encode())
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if os.name == "posix" and mode & 0o077:
                raise ValueError(
                    f"others can read the key in {path} (mode {mode:o}); if none has, run: chmod 600 {path}"
                )
            content = file.read(1024)
        if content.startswith(_OLD_FILE):
            raise ValueError(
                f"{path} holds an identity of an older release, of no use to version 2 of the wire format; start this "
                "peer in a new folder, and give its new key id to groups that list their members"
            )
        found = _FILE.fullmatch(content)
        if found is None:
            raise ValueError(f"{path} holds no identity; move the file away to get a new one")
        return cls(bytes.fromhex(found[1].decode()))

    def sign(self, message: bytes) -> bytes:
        """Return a 64-byte signature (Ed25519)."""
        return self._signer.sign(message)

    def verify(self, signature: bytes, message: bytes) -> bool:
        """Return whether this identity signed a message."""
        return verify(self.key, signature, message)


def _create(path: Path, content: bytes) -> None:
    """Write a key atomically, without replacing one that another process has just written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{token_hex(8)}")
    try:
        # The flags are Python's own: on Windows one of them keeps the bytes as they are.
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)
        except FileExistsError:
            return
    finally:
        temporary.unlink(missing_ok=True)
