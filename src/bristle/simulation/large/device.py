"""Devices of large worlds, and random draws on them."""

from __future__ import annotations

import os
from typing import Any

from bristle._core import Array, to_numpy
from bristle._core.extras import to_install
from bristle._core.rng import uniforms_of
from bristle.simulation.population import FeatureData


def torch_device(name: str) -> Any:
    """Return the torch device of a name such as `cuda`, `cuda:1` or `cpu`."""
    try:
        import torch  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"device {name!r} needs torch: {to_install('torch')}") from error
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
    """Return the free memory of a device in bytes."""
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
    moved = (torch.tensor(to_numpy(values), device=device) for values in data.arrays)
    train, train_labels, test, test_labels = moved
    return FeatureData(train, train_labels, test, test_labels, data.classes, data.user)


def draw_on_device(torch: Any, key: Array, ids: Array, size: int) -> Array:
    """Draw 32-bit uniforms in [0, 1) [ids, size]; `key` is what `rng.stream_key` returns, as a number or a tensor."""
    return uniforms_of(torch, key, ids, size).to(torch.float32)
