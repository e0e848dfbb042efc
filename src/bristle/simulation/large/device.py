"""Devices of large worlds, and random draws on them."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from bristle._core import Array, to_numpy
from bristle._core.rng import Stream
from bristle.simulation.population import FeatureData


def torch_device(name: str) -> Any:
    """Return the torch device of a name such as `cuda`, `cuda:1` or `cpu`."""
    try:
        import torch  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f'device {name!r} needs torch: pip install "bristle[torch]"') from error
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"there is no device {name!r}: give cuda, cuda:1 or cpu") from error
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            found = f"torch finds {count}" if count else "torch finds no CUDA device"
            raise ValueError(f"device {name!r}: {found}; leave the device out, or use cpu")
    elif device.type != "cpu":
        raise ValueError(f"device {name!r}: worlds run on cuda, cuda:1, .. and cpu")
    return device


def free_bytes(device: Any) -> int:
    """Return how much memory can still be had on a device."""
    if device.type == "cuda":
        import torch  # noqa: PLC0415

        free, _ = torch.cuda.mem_get_info(device)
        # What torch holds in reserve is free as well.
        return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    return int(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def on_device(data: FeatureData, name: str) -> FeatureData:
    """Return the data as torch tensors on a device."""
    import torch  # noqa: PLC0415

    device = torch_device(name)

    def moved(values: Array) -> Array:
        return torch.tensor(to_numpy(values), device=device)

    return replace(
        data,
        train=moved(data.train),
        train_labels=moved(data.train_labels),
        test=moved(data.test),
        test_labels=moved(data.test_labels),
    )


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
