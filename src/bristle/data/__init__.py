"""Data: the bundled MNIST, your own files or arrays, and who holds which samples.

Needs NumPy only; reading images needs Pillow (the extra `images`).
"""

from bristle.data import partitions
from bristle.data.bundled import mnist
from bristle.data.dataset import Dataset
from bristle.data.loading import load
from bristle.data.partitions import PaddedIndices, Partition

__all__ = ["Dataset", "PaddedIndices", "Partition", "load", "mnist", "partitions"]
