"""Worlds of many peers, stepped in batches with the same step as a live peer."""

from bristle.simulation.asynchrony import Asynchrony
from bristle.simulation.device import on_device
from bristle.simulation.features import FeatureData, prepare
from bristle.simulation.large_world import LargeWorld
from bristle.simulation.measurement import Measurement, measure
from bristle.simulation.precision import Precision
from bristle.simulation.results import Results
from bristle.simulation.running import Watch, run
from bristle.simulation.scenario import Scenario
from bristle.simulation.topology import All, Edges, Grid, RandomNeighbours, Ring, SmallWorld, Topology
from bristle.simulation.workers import Workers
from bristle.simulation.world import Round, World

__all__ = [
    "All",
    "Asynchrony",
    "Edges",
    "FeatureData",
    "Grid",
    "LargeWorld",
    "Measurement",
    "Precision",
    "RandomNeighbours",
    "Results",
    "Ring",
    "Round",
    "Scenario",
    "SmallWorld",
    "Topology",
    "Watch",
    "Workers",
    "World",
    "measure",
    "on_device",
    "prepare",
    "run",
]
