"""What the benign peers of a world share of their heads."""

from __future__ import annotations

from bristle._core import Array
from bristle._core.arrays import from_numpy
from bristle._core.rng import Stream, draw_normals
from bristle.simulation.scenario import Scenario


def published(scenario: Scenario, heads: Array, iteration: int) -> Array:
    """Return what is shared of heads [peers, C, D] in an iteration: themselves, or cut and with noise."""
    if scenario.sharing.plain:
        return heads
    peers, classes, features = heads.shape
    normals = None
    if scenario.sharing.noise:
        drawn = draw_normals(scenario.seed, Stream.SHARING, range(peers), iteration, classes * features)
        normals = from_numpy(drawn.reshape(heads.shape), like=heads, dtype=heads.dtype)
    return scenario.sharing(heads, normals)
