"""What the author of a head or a statement signs: `decode_manifest`."""

from __future__ import annotations

from bristle.wire.identity import SIGNATURE_BYTES
from bristle.wire.manifest import LARGEST_MANIFEST, decode_manifest, encode_manifest, is_signed, sequence_of
from bristle.wire.refusal import Refusal
from harness import BrokenPromiseError, Target
from world import GROUP, LIAR, signed_by

VERIFY_EVERY = 16
"""A signature check costs a hundred times as much as the rest: one input in so many gets it."""


def check(data: bytes) -> str:
    """Decode; there is one way only to write what was read, and its parts are what they say."""
    sequence = sequence_of(data)
    manifest = decode_manifest(data, GROUP)
    if isinstance(manifest, Refusal):
        return manifest.value
    claims = manifest.claims()
    if manifest.sequence != sequence or (claims is not None and claims.shape != (manifest.classes,)):
        raise BrokenPromiseError(f"{manifest} has another sequence than {sequence}, or claims {claims}")
    if encode_manifest(manifest, LIAR)[:-SIGNATURE_BYTES] != data[:-SIGNATURE_BYTES]:
        raise BrokenPromiseError(f"{manifest} can be written in two ways")
    if manifest.sequence % VERIFY_EVERY or is_signed(data, manifest):
        return "taken"
    return Refusal.BAD_SIGNATURE.value


def seeds() -> dict[str, bytes]:
    """Return manifests of heads and statements of every encoding, with and without claims."""
    return {f"{each.kind.name.lower()}-{number}": each.manifest for number, each in enumerate(signed_by(LIAR))}


TARGET = Target(name="manifest", check=check, seeds=seeds, largest=LARGEST_MANIFEST + 50)
