"""Say how many branches of each room the tests take, from a JSON report of coverage; fail where it is too few.

python benchmarks/branches.py coverage.json --least 95
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path, PurePosixPath
from typing import Any


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("report", type=Path, help="what `pytest --cov-branch --cov-report=json` wrote")
    words.add_argument("--least", type=float, default=95.0, help="per cent that every room needs (95)")
    asked = words.parse_args()
    files: dict[str, Any] = json.loads(asked.report.read_text(encoding="utf-8"))["files"]
    rooms: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for name, found in sorted(files.items()):
        summary = found["summary"]
        room = PurePosixPath(Path(name).as_posix()).parent.name
        rooms[room][0] += summary["covered_branches"]
        rooms[room][1] += summary["num_branches"]
        if found["missing_branches"] or found["missing_lines"]:
            branches = ", ".join(f"{start}->{'exit' if end < 0 else end}" for start, end in found["missing_branches"])
            lines = ", ".join(map(str, found["missing_lines"]))
            print(f"{name}: lines never run: {lines or 'none'}; branches never taken: {branches or 'none'}")
    print("\n| room | branches | taken |  |\n|---|---|---|---|")
    shares = {room: 100 * taken / max(1, total) for room, (taken, total) in rooms.items()}
    for room, (taken, total) in rooms.items():
        print(f"| {room} | {total} | {taken} | {shares[room]:.1f} % |")
    few = [room for room, share in shares.items() if share < asked.least]
    if few or not rooms:
        sys.exit(f"fewer than {asked.least:g} % of the branches: {', '.join(few) or 'nothing was measured'}")


if __name__ == "__main__":
    main()
