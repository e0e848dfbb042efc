"""What an iteration costs on the wire: the head alone, or the whole network."""

from __future__ import annotations

from bristle.learning.whole_network import ConvolutionalNetwork
from bristle.wire.sizes import head_bytes

HEAD = (10, 800)
WHOLE = (1, ConvolutionalNetwork().parameters)
NEIGHBOURS = (1, 2, 4, 8, 14, 32, 64, 96)


def bytes_per_iteration(shape: tuple[int, int], neighbours: int) -> int:
    """Return what a peer sends in an iteration: a model of `shape` to each neighbour."""
    return neighbours * head_bytes(*shape)
