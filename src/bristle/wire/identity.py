"""The identity of a peer: an IPv8 key pair (X25519 and Ed25519) in a file that only its owner can read."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from secrets import token_hex

from ipv8_rust_tunnels import PrivateKey, PublicKey

KEY_BYTES = 64
SIGNATURE_BYTES = 64
KEY_ID_BYTES = 20
CURVE = "curve25519"
_PUBLIC_PREFIX = b"LibNaCLPK:"
_SECRET_PREFIX = b"LibNaCLSK:"


def key_id_of(key: bytes) -> bytes:
    """Return the key id of a 64-byte public key, SHA-256(key)[:20]."""
    return sha256(key).digest()[:KEY_ID_BYTES]


def verify(key: bytes, signature: bytes, message: bytes) -> bool:
    """Return whether a signature of a message is valid for a 64-byte public key (Ed25519)."""
    if len(key) != KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    try:
        return PublicKey(_PUBLIC_PREFIX + key).verify(signature, message)
    except (ValueError, RuntimeError):  # Not a point on the curve.
        return False


@dataclass(frozen=True)
class Identity:
    """A key pair and its key id.

    Parameters
    ----------
    secret : bytes
        Both secret keys, in IPv8's format. Never shown.
    """

    secret: bytes = field(repr=False)
    _signer: PrivateKey = field(init=False, repr=False, compare=False)
    key: bytes = field(init=False)
    key_id: bytes = field(init=False)

    def __post_init__(self) -> None:
        if not self.secret.startswith(_SECRET_PREFIX) or len(self.secret) != len(_SECRET_PREFIX) + KEY_BYTES:
            raise ValueError("not an IPv8 curve25519 key: expected LibNaCLSK: and 64 bytes")
        signer = PrivateKey(self.secret)
        key = signer.pub().key_to_bin()[len(_PUBLIC_PREFIX) :]
        object.__setattr__(self, "_signer", signer)
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "key_id", key_id_of(key))

    @classmethod
    def generate(cls) -> Identity:
        """Generate a new identity, without a file."""
        return cls(PrivateKey.generate(CURVE).key_to_bin())

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
            _create(path, cls.generate().secret)
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if os.name == "posix" and mode & 0o077:
                raise ValueError(
                    f"others can read the key in {path} (mode {mode:o}); if none has, run: chmod 600 {path}"
                )
            secret = file.read(1024)
        try:
            return cls(secret)
        except ValueError as error:
            raise ValueError(f"{path}: {error}; move the file away to get a new identity") from None

    def sign(self, message: bytes) -> bytes:
        """Return a 64-byte signature (Ed25519)."""
        return self._signer.signature(message)

    def verify(self, signature: bytes, message: bytes) -> bool:
        """Return whether this identity signed a message."""
        return verify(self.key, signature, message)


def _create(path: Path, secret: bytes) -> None:
    """Write a key atomically, without replacing one that another process has just written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secret)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)
        except FileExistsError:
            return
    finally:
        temporary.unlink()
