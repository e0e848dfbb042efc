"""Changing valid inputs a little, or a lot, by a seeded generator: fuzzing without anything to install."""

from __future__ import annotations

import random
from collections.abc import Sequence

INTERESTING = (0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 63, 64, 100, 127, 128, 254, 255)


class Mutator:
    """Makes inputs from seeds.

    Parameters
    ----------
    seeds : sequence of bytes
        Valid inputs.
    largest : int
        Bytes of an input.
    tokens : sequence of bytes
        Words of the format.
    seed : int
        The same seed, the same inputs.
    """

    def __init__(self, seeds: Sequence[bytes], *, largest: int, tokens: Sequence[bytes], seed: int) -> None:
        self._seeds = list(seeds) or [b""]
        self._largest = largest
        self._tokens = list(tokens)
        self._rng = random.Random(seed)

    def next(self) -> bytes:
        """Return one more input."""
        rng = self._rng
        if rng.random() < 0.02:
            return rng.randbytes(rng.randrange((self._largest if rng.random() < 0.1 else min(100, self._largest)) + 1))
        data = bytearray(rng.choice(self._seeds))
        for _ in range(1 << rng.randrange(0, 5)):
            self._change(data)
        return bytes(data[: self._largest])

    def _change(self, data: bytearray) -> None:
        rng = self._rng
        at = rng.randrange(len(data) + 1)
        match rng.randrange(8):
            case 0 if data:
                data[at % len(data)] ^= 1 << rng.randrange(8)
            case 1 if data:
                data[at % len(data)] = rng.choice(INTERESTING)
            case 2:
                data[at:at] = rng.randbytes(rng.randrange(1, 9))
            case 3:
                del data[at : at + rng.randrange(1, 33)]
            case 4:
                data[at : at + 8] = rng.choice((0, 1, 255, 2**31, 2**32 - 1, 2**63, 2**64 - 1)).to_bytes(8, "big")
            case 5 if self._tokens:
                data[at:at] = rng.choice(self._tokens)
            case 6:
                piece = data[at : at + rng.randrange(1, 257)]
                place = rng.randrange(len(data) + 1)
                data[place:place] = piece * (1 if rng.random() < 0.9 else rng.randrange(1, 50))
            case _:
                other = rng.choice(self._seeds)
                start = rng.randrange(len(other) + 1)
                data[at : at + rng.randrange(0, 129)] = other[start : start + rng.randrange(1, 129)]
