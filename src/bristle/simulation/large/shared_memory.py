"""Memory of one process that others of the same machine read: of the processor, or of a CUDA device.

The owner makes a handle for each reader, a string, and readers open it once. Memory of the processor has no name in any
folder, so that nothing stays behind when a process dies; of a device's memory torch keeps a file of some 80 KB with
counters of its readers, which stays behind if the owner is killed.
"""

from __future__ import annotations

import json
import mmap
import os
import secrets
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from bristle._core import Array


def shared_zeros(shape: tuple[int, int], *, like: Array, until_open: ExitStack) -> tuple[Array, Callable[[], str]]:
    """Return zeros that other processes can read, and a function that makes a handle for one reader.

    Parameters
    ----------
    shape : tuple[int, int]
    like : array
        A torch tensor: type and device.
    until_open : ExitStack
        To be closed as soon as all readers have opened the memory.
    """
    if like.device.type == "cuda":
        pool = like.new_zeros(shape)
        return pool, lambda: _text_of(pool.untyped_storage()._share_cuda_())
    import torch  # noqa: PLC0415

    name, size = f"bristle-{secrets.token_hex(8)}", shape[0] * shape[1] * like.element_size()
    file = os.memfd_create(name)
    until_open.callback(os.close, file)
    os.ftruncate(file, size)
    pool = torch.frombuffer(mmap.mmap(file, size), dtype=like.dtype).view(shape)
    return pool, lambda: json.dumps([os.getpid(), file, name, size])


def open_shared(handle: str, *, like: Array) -> Array:
    """Return another process's memory as a vector with the type and device of `like`."""
    import torch  # noqa: PLC0415

    if like.device.type == "cuda":
        # The first part is the owner's device. The reader opens the memory on its own device, which fails where that
        # is another one that cannot reach it.
        storage = torch.UntypedStorage._new_shared_cuda(like.device.index or 0, *_parts_of(handle)[1:])
        return like.new_empty(0).set_(storage)
    process, number, name, size = json.loads(handle)
    path = f"/proc/{process}/fd/{number}"
    if name not in os.readlink(path):
        raise FileNotFoundError(f"{path} is not the memory of another worker")
    file = os.open(path, os.O_RDWR)
    try:
        return torch.frombuffer(mmap.mmap(file, size), dtype=like.dtype)
    finally:
        os.close(file)


def _text_of(parts: tuple[Any, ...]) -> str:
    return json.dumps([{"hex": part.hex()} if isinstance(part, bytes) else part for part in parts])


def _parts_of(text: str) -> list[Any]:
    return [bytes.fromhex(part["hex"]) if isinstance(part, dict) else part for part in json.loads(text)]
