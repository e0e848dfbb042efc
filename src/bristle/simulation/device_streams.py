"""The draws of `bristle._core.rng`, made on a device by torch: the same numbers, to the bit."""

from __future__ import annotations

from typing import Any

from bristle._core import Array
from bristle._core.rng import Stream

_BITS = (1 << 64) - 1
_FIRST, _SECOND, _LANE = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0x9E3779B97F4A7C15


def stream_key(seed: int, stream: Stream, iteration: int) -> int:
    """Return what a stream's draws of an iteration are keyed by, as a signed 64-bit number."""
    key = 3 * iteration + stream if stream <= Stream.ATTACK else (int(stream) << 40) + iteration
    return _signed(_mix_number(_mix_number(seed & _BITS) ^ key))


def draw_on_device(torch: Any, key: Array, ids: Array, size: int) -> Array:
    """Draw 32-bit uniforms in [0, 1) [ids, size]; `key` is what `stream_key` returns, as a number or a tensor.

    A key in a tensor can change between replays of a captured graph.
    """
    lanes = torch.arange(size, dtype=torch.int64, device=ids.device) * _signed(_LANE)
    bits = _mix(_mix(ids ^ key)[:, None] + lanes[None, :])
    return (_shifted(bits, 11).to(torch.float64) * 2.0**-53).to(torch.float32)


def _mix(bits: Array) -> Array:
    """Scramble 64-bit integers (the SplitMix64 finaliser, Steele, Lea and Flood 2014); products wrap around."""
    bits = (bits ^ _shifted(bits, 30)) * _signed(_FIRST)
    bits = (bits ^ _shifted(bits, 27)) * _signed(_SECOND)
    return bits ^ _shifted(bits, 31)


def _shifted(bits: Array, places: int) -> Array:
    """Shift to the right with zeros coming in: torch has signed integers only, whose sign would come in."""
    return (bits >> places) & ((1 << (64 - places)) - 1)


def _mix_number(bits: int) -> int:
    bits = ((bits ^ (bits >> 30)) * _FIRST) & _BITS
    bits = ((bits ^ (bits >> 27)) * _SECOND) & _BITS
    return bits ^ (bits >> 31)


def _signed(bits: int) -> int:
    return bits - (1 << 64) if bits >> 63 else bits
