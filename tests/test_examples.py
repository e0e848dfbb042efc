"""The examples run as they stand, and do what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_shapes(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / "shapes.py")],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    knows = [int(share) for share in re.findall(r"peer \d .*knows (\d+)% of all", done.stdout)]
    assert len(knows) == 4
    assert min(knows) > 60, "three of six shapes alone are worth 50 at most"
    # How much it gets in the very last iteration depends on whose heads came in time for that.
    lied = re.search(r"the liar +(tested and rejected|kept: (?P<share>[\d.]+)%)", done.stdout)
    assert lied is not None
    assert float(lied["share"] or 0) < 10
    assert not list(tmp_path.iterdir())
