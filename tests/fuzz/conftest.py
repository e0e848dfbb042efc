"""The targets are scripts beside the package."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "fuzz"))
