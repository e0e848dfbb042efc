"""What the benign peers of a world share of their heads."""

from __future__ import annotations

from bristle.arrays import Array
from bristle.arrays.namespace import from_numpy
from bristle.simulation.scenario import Scenario
from bristle.simulation.streams import Stream, draw_normals


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
