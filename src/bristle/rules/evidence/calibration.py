"""Calibration on the receiver's own samples: temperature of probabilities, and the distance beyond which to abstain."""

from __future__ import annotations

import numpy as np

from bristle.rules.evidence.location import Booleans, Integers, Located
from bristle.rules.evidence.scatter import Scatter
from bristle.rules.evidence.statement import Floats, Statement

OUTLIERS = 0.01
"""The share of a peer's own samples, each judged without itself, that the distance for abstaining leaves outside."""


def calibrated(
    scatter: Scatter,
    moved: Floats,
    answered: Integers,
    locations: Floats,
    located: Located,
    x: Floats,
    y: Integers,
    own: Statement,
) -> tuple[float, float]:
    """Return the temperature of probabilities, and the distance from which a sample belongs to no class.

    Both come from the own samples, each without its part in the location of its class, and with the scatter of others:
    what tests is no part of what is tested. `moved` [C] is what the biases were lowered by.
    """
    if not len(y):
        return 1.0, float("inf")
    distances = scatter.vectors(x).distances(scatter.vectors(locations[answered]))
    gain, usable = _without_itself(x, y, scatter, locations, located, own)
    usable &= np.isin(y, answered)
    if not usable.any():
        return 1.0, float("inf")
    rows, places = np.arange(len(y)), np.searchsorted(answered, np.where(usable, y, answered[0]))
    distances[rows, places] += gain
    distances, places = distances[usable], places[usable]
    reach = float(np.quantile(distances.min(axis=1), 1 - OUTLIERS))
    return _temperature(moved[answered] - 0.5 * distances, places), reach


def _without_itself(
    x: Floats, y: Integers, scatter: Scatter, locations: Floats, located: Located, own: Statement
) -> tuple[Floats, Booleans]:
    """Return how much further [S] each own sample is from the location of its class without its own part in it.

    Distances are squared Mahalanobis distances. Also return for which samples this is possible: those that are not the
    only one of their class.
    """
    counts = np.asarray(own.counts)
    # Claims are ordered by sender, the receiver's first, and within a sender by class.
    order = np.cumsum(counts > 0) - 1
    parts = located.shares[y, order[y]] / np.maximum(counts[y] - 1, 1)
    rest, places = scatter.vectors(x - np.asarray(own.rows)[y]), scatter.vectors(x - locations[y])
    between = (rest.scaled * places.scaled).sum(axis=1) - (rest.taken * places.taken).sum(axis=1)
    gain = 2 * parts * between + parts**2 * rest.squares()
    return np.where(counts[y] > 1, gain, 0.0), counts[y] > 1


def _temperature(scores: Floats, places: Integers) -> float:
    """Return the temperature of a grid that gives the own samples the highest likelihood."""
    best, lowest = 1.0, np.inf
    rows = np.arange(len(places))
    for temperature in np.geomspace(0.25, 128, 37):
        scaled = scores / temperature
        raised = scaled - scaled.max(axis=1, keepdims=True)
        loss = float((np.log(np.exp(raised).sum(axis=1)) - raised[rows, places]).mean())
        if loss < lowest:
            best, lowest = float(temperature), loss
    return best
