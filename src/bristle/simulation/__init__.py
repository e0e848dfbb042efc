"""Worlds of many peers, stepped in batches with the same step as a live peer."""

from bristle.simulation.features import FeatureData, prepare
from bristle.simulation.world import Scenario, World

__all__ = ["FeatureData", "Scenario", "World", "prepare"]
