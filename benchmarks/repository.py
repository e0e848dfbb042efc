"""Put the root of the repository on the path: benchmarks share helpers with the tests, in `tests.support`."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))
