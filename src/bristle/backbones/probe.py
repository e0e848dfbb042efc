"""A test sample of a group: made-up inputs that all peers have, and a few numbers of what a backbone makes of them.

Equal digests mean equal weights, not equal features: another runtime, another precision, or code around the weights
that no digest covers may compute something else. Two peers compare these numbers when they meet.
"""

from __future__ import annotations

import logging
from hashlib import shake_256
from typing import Any

import numpy as np
import numpy.typing as npt

from bristle.backbones.base import Backbone, Features
from bristle.backbones.derived import NoBackbone

LOG = logging.getLogger("bristle.backbones")
INPUTS = 4
NUMBERS = 64
"""Random projections of the features of all inputs: the relative difference of two is about that of the features."""

_ANY = 32
"""The size of an axis for which any size will do."""


def probe(backbone: Backbone, group: bytes) -> Features | None:
    """Return what a backbone makes of the inputs of the group with an id [NUMBERS]; None if that cannot be computed.

    Samples that are features already have no backbone, and some take no made-up inputs, such as words.
    """
    if isinstance(backbone, NoBackbone):
        return None
    try:
        found = backbone(made_up(backbone, group))
    except Exception as error:  # It may be anybody's code.
        LOG.info("backbone %s takes no made-up inputs, and is not compared: %s", backbone.name, error)
        return None
    values = np.asarray(found, dtype=np.float64).ravel()
    bits = np.unpackbits(_bytes(b"projections", b"", (NUMBERS * len(values) + 7) // 8))[: NUMBERS * len(values)]
    signs = bits.reshape(NUMBERS, len(values)) * 2.0 - 1.0
    made: Features = (signs @ values / np.sqrt(len(values))).astype(np.float32)
    return made if np.isfinite(made).all() else None


def made_up(backbone: Backbone, group: bytes) -> npt.NDArray[Any]:
    """Return inputs [INPUTS, ...] that follow from a group's id: bytes, or numbers from -1 to 1 of one axis."""
    shape = tuple(_ANY if size is None else size for size in backbone.input_shape)
    values = _bytes(b"inputs", group, INPUTS * int(np.prod(shape))).reshape(INPUTS, *shape)
    if len(shape) > 1 or getattr(backbone, "input_dtype", "float32") == "uint8":
        return values
    return (values / np.float32(127.5) - 1).astype(np.float32)


def _bytes(label: bytes, group: bytes, count: int) -> npt.NDArray[np.uint8]:
    """Return bytes that are the same on every machine: SHAKE-256 of a label and the group's id."""
    return np.frombuffer(shake_256(b"bristle probe " + label + b"\0" + group).digest(count), dtype=np.uint8)
