"""Who a peer is: an IPv8 key pair (X25519 and Ed25519) in a file that only its owner can read."""

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
    """Return SHA-256(key)[:20], the name of a public key of 64 bytes."""
    return sha256(key).digest()[:KEY_ID_BYTES]


def verify(key: bytes, signature: bytes, message: bytes) -> bool:
    """Return whether the owner of a public key of 64 bytes signed a message (Ed25519)."""
    if len(key) != KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    try:
        return PublicKey(_PUBLIC_PREFIX + key).verify(signature, message)
    except (ValueError, RuntimeError):  # Not a point on the curve.
        return False


@dataclass(frozen=True)
class Identity:
    """A key pair, and the name that others know it by.

    Parameters
    ----------
    secret : bytes
        Both secret keys, as IPv8 writes them. Never shown.
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
        """Return a new identity that is in no file."""
        return cls(PrivateKey.generate(CURVE).key_to_bin())

    @classmethod
    def load_or_create(cls, path: str | Path) -> Identity:
        """Return the identity in a file, which is made, for its owner's eyes only, if there is none.

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
        """Return a signature of 64 bytes (Ed25519)."""
        return self._signer.signature(message)

    def verify(self, signature: bytes, message: bytes) -> bool:
        """Return whether this identity signed a message."""
        return verify(self.key, signature, message)


def _create(path: Path, secret: bytes) -> None:
    """Write a key so that the file is whole or not there, and never replaces one that another process has just made."""
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
