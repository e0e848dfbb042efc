"""Worlds of many peers, stepped in batches with the same step as a live peer."""

from bristle.simulation.large.device import on_device
from bristle.simulation.large.workers import Workers
from bristle.simulation.large.world import LargeWorld
from bristle.simulation.mailbox import Asynchrony
from bristle.simulation.measurement import Measurement, measure
from bristle.simulation.population import FeatureData, prepare
from bristle.simulation.results import Results
from bristle.simulation.run import Watch, run
from bristle.simulation.scenario import Precision, Scenario
from bristle.simulation.topology import All, Edges, Grid, RandomNeighbours, Ring, SmallWorld, Topology
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
