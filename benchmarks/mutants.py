"""Change one thing in the rules or the wire format, and see whether a test notices: a sample of such mutants.

    python benchmarks/mutants.py --out docs/mutants.jsonl

Measures once which test covers which line and how long it takes, draws a seeded sample of mutants, stratified by file
and kind of change, and runs for each, in a fork with the change applied as the module is imported, the tests that cover
the changed line, cheapest first, until one fails. A line of JSON per mutant; after an interruption the same command
goes on. Then prints how many were killed, by file and by kind, and the survivors.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mutants_changes import Mutant, change_of, mutants_of, sampled
from mutants_running import Result, Warm

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src"
RULES = sorted((SOURCES / "bristle" / "rules").glob("*.py"))
WIRE = [SOURCES / "bristle" / "wire" / f"{name}.py" for name in ("encoding", "messages", "manifest")]
TESTS = {
    "rules": [
        *(f"tests/rules/{path.name}" for path in sorted((ROOT / "tests" / "rules").glob("test_*.py"))),
        "tests/testing/test_check_rule.py",
    ],
    "wire": [
        *(
            f"tests/wire/test_{name}.py"
            for name in ("encoding", "messages", "manifest", "golden_bytes", "wire_format", "session")
        ),
        "tests/p2p/test_transfer.py",
    ],
}
FEW = 2  # tests a mutant is given at least, however long they take


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--mutants", type=int, default=400, help="how many to draw (400)")
    words.add_argument("--seed", type=int, default=0, help="of the draw (0)")
    words.add_argument("--out", type=Path, required=True, help="JSON Lines, one a mutant; goes on from what is there")
    words.add_argument(
        "--cover", type=Path, default=ROOT / "out" / "mutants-cover.json", help="which test covers what; kept"
    )
    words.add_argument("--seconds", type=float, default=10.0, help="CPU time of the tests that a mutant is given (10)")
    words.add_argument("--again", action="store_true", help="run survivors again, e.g. after adding tests")
    words.add_argument(
        "--only", nargs="*", default=[], help="files whose mutants are run, e.g. krum.py; others are left"
    )
    words.add_argument("--report", action="store_true", help="run nothing, say what the file holds")
    asked = words.parse_args()

    chosen = sample(asked.mutants, asked.seed)
    known = _read(asked.out)
    if not asked.report:
        if asked.again:
            known = {name: row for name, row in known.items() if row["result"] != "survived"}
            _write(asked.out, known)
        todo = [mutant for mutant in chosen if mutant.name not in known]
        todo = [mutant for mutant in todo if not asked.only or Path(mutant.file).name in asked.only]
        _run(todo, known, asked)
    known = _read(asked.out)
    report([known[mutant.name] for mutant in chosen if mutant.name in known])


def sample(count: int, seed: int) -> list[Mutant]:
    """Return the mutants that are drawn: the same for the same sources and seed."""
    everything = [mutant for path in (*RULES, *WIRE) for mutant in mutants_of(path, SOURCES)]
    return sampled(everything, count, seed=seed)


def _run(todo: Sequence[Mutant], known: dict[str, dict[str, Any]], asked: argparse.Namespace) -> None:
    warm = Warm(ROOT)
    cover = _cover(warm, asked.cover)
    for measured in cover.values():
        warm.import_libraries(measured["libraries"])
    given = {mutant.name: _tests_for(cover, mutant, asked.seconds) for mutant in todo}
    began, done = time.monotonic(), 0
    screen = os.fdopen(os.dup(sys.stderr.fileno()), "w")  # Children are silent, but for this.

    def tell(mutant: Mutant, result: Result) -> None:
        nonlocal done
        done += 1
        known[mutant.name] = {
            "mutant": mutant.name,
            "file": mutant.file,
            "line": mutant.line,
            "kind": mutant.kind,
            "change": change_of(mutant, SOURCES),
            "tests": len(given[mutant.name]),
            "result": result[0],
            "by": result[1],
            "cpu_seconds": round(result[2], 1),
        }
        _write(asked.out, known)
        left = (time.monotonic() - began) / done * (len(todo) - done)
        print(f"{done} of {len(todo)}: {result[0]:8} {mutant.name} ({left:.0f} s left)", file=screen, flush=True)

    quick = [(mutant, given[mutant.name]) for mutant in todo if mutant.function and given[mutant.name]]
    files = [file for room in TESTS.values() for file in room]
    warm.run_in_place(quick, files, tell)  # in a child: what it found is in the file
    known.update(_read(asked.out))
    done = sum(mutant.name in known for mutant in todo)
    for mutant in todo:
        if mutant.name not in known:
            tests = given[mutant.name]
            tell(mutant, warm.run(mutant, tests) if tests else ("survived", "no test covers it", 0.0))


def _cover(warm: Warm, path: Path) -> dict[str, Any]:
    """Return, for each test file, which of its tests cover a line, and their CPU seconds; measured once, and kept."""
    cover: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    for tests in [tests for room in TESTS.values() for tests in room if tests not in cover]:
        print(f"measuring what {tests} covers ...", file=sys.stderr, flush=True)
        cover[tests] = warm.measure([tests])
        path.write_text(json.dumps(cover), encoding="utf-8")
    return cover


def _tests_for(cover: dict[str, Any], mutant: Mutant, seconds: float) -> list[str]:
    files = [cover[tests] for tests in TESTS["rules" if "/rules/" in mutant.file else "wire"]]
    times: dict[str, float] = {name: seconds for file in files for name, seconds in file["seconds"].items()}
    lines = [file["lines"].get(mutant.file, {}) for file in files]
    within = [str(line) for line in range(mutant.line, mutant.end + 1)]
    fit = [name for each in lines for line in within for name in each.get(line, ())]
    if not mutant.function:  # It runs as the module is imported, which is no test's doing: any of them may notice.
        fit = list(times)
    own = f"test_{Path(mutant.file).stem}"
    ranked = sorted(
        {name for name in fit if name in times},
        key=lambda name: (own not in name and times[name] > 1, times[name], name),
    )
    chosen: list[str] = []
    spent = 0.0
    for name in ranked:
        spent += times[name]
        if spent > seconds and len(chosen) >= FEW:
            break
        chosen.append(name)
    return chosen


def report(rows: Sequence[dict[str, Any]]) -> None:
    """Print how many were killed, by file and by kind, and who survived."""
    if not rows:
        print("no mutant has been run yet")
        return
    for title, key in (("file", "file"), ("kind", "kind")):
        groups: dict[str, Counter[str]] = defaultdict(Counter)
        for row in rows:
            groups[row[key]][row["result"]] += 1
        print(f"\n| {title} | mutants | killed |\n|---|---|---|")
        for name, counts in sorted(groups.items()):
            total = sum(counts.values())
            print(f"| {name} | {total} | {total - counts['survived']} |")
    survivors = [row for row in rows if row["result"] == "survived"]
    print(f"\n{len(rows)} mutants, {len(rows) - len(survivors)} killed: {1 - len(survivors) / len(rows):.1%}")
    for row in sorted(survivors, key=lambda row: (row["file"], row["line"])):
        print(f"{row['file']}:{row['line']} {row['kind']}: {row['change']} ({row['tests']} tests; {row['by']})")


def _read(path: Path) -> dict[str, dict[str, Any]]:
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {row["mutant"]: row for row in rows}


def _write(path: Path, rows: dict[str, dict[str, Any]]) -> None:
    part = path.with_suffix(".part")
    part.write_text("".join(json.dumps(row) + "\n" for row in rows.values()), encoding="utf-8")
    part.replace(path)


if __name__ == "__main__":
    main()
