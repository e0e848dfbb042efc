"""Feed one surface, or all, with hostile inputs.

    python fuzz/run.py messages --inputs 100000            changed seeds, the same for the same --seed
    python fuzz/run.py messages --engine atheris           coverage-guided: pip install atheris (Python 3.11)
    python fuzz/run.py all --inputs 20000                  every target in turn
    python fuzz/run.py --write-seeds                       make the seed corpus anew
    python fuzz/run.py --show figures.jsonl                kept figures as a table

What breaks a promise is kept in fuzz/crashes and ends the run with exit code 1. A crash that was repaired moves to
tests/fuzz/regressions/TARGET, where the suite feeds it again.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from hashlib import sha256
from importlib import import_module
from pathlib import Path

from harness import Target, Watch
from mutation import Mutator

FOLDER = Path(__file__).resolve().parent
CORPUS, CRASHES = FOLDER / "corpus", FOLDER / "crashes"
TARGETS = (
    "messages",
    "manifest",
    "body",
    "statement",
    "handshake",
    "transfer",
    "gossip",
    "datagrams",
    "forwarding",
    "roster",
    "http",
    "toml",
    "npz",
    "idx",
    "head",
    "images",
)
DECODERS = TARGETS[:8]
FIGURES = "## Figures"
PROGRESS_EVERY = 10.0
"""Seconds between lines that say how far a run is."""

NOTED_EVERY = 500_000
"""Inputs after which a guided run writes down its figures so far."""


def load(name: str) -> Target:
    """Return the target of that name."""
    target: Target = import_module(f"target_{name}").TARGET
    return target


def corpus_of(name: str) -> list[bytes]:
    """Return the committed seeds of a target."""
    return [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]


def mutate(target: Target, *, inputs: int, seed: int, progress: bool = False) -> Watch:
    """Feed the seeds, then changed ones; raise what an input brings to light, after keeping the input."""
    watch = Watch(target)
    seeds = corpus_of(target.name)
    mutator = Mutator(seeds, largest=target.largest, tokens=target.tokens, seed=seed)
    said = time.monotonic()
    for number in range(inputs):
        data = seeds[number] if number < len(seeds) else mutator.next()
        try:
            watch.feed(data)
        except BaseException as error:
            if not isinstance(error, KeyboardInterrupt):
                error.add_note(f"the input is kept in {_keep(target.name, data)}")
            raise
        if progress and time.monotonic() - said > PROGRESS_EVERY:
            said = time.monotonic()
            print(f"{target.name}: {number + 1:,} of {inputs:,}", file=sys.stderr, flush=True)
    return watch


def _keep(name: str, data: bytes) -> Path:
    CRASHES.mkdir(exist_ok=True)
    path = CRASHES / f"{name}-{sha256(data).hexdigest()[:16]}"
    path.write_bytes(data)
    return path


def guided(name: str, *, inputs: int, seed: int, figures: Path | None, found: Path) -> None:
    """Let atheris look for inputs that reach new branches. It ends the process itself: figures are kept on the way."""
    import atheris  # noqa: PLC0415 - only this engine needs it

    if "bristle" in sys.modules:
        raise RuntimeError("bristle was imported before atheris could watch its branches")
    with atheris.instrument_imports(include=["bristle"]):
        target = load(name)
    watch, began = Watch(target), time.process_time()

    def one(data: bytes) -> None:
        watch.feed(data)
        if watch.inputs % NOTED_EVERY == 0 or watch.inputs == inputs:
            _note(watch, "atheris", time.process_time() - began, figures)

    CRASHES.mkdir(exist_ok=True)
    found.mkdir(parents=True, exist_ok=True)
    options = [
        f"-runs={inputs}",
        f"-seed={seed}",
        f"-max_len={target.largest}",
        "-timeout=1000000",  # By the clock on the wall; `Watch` goes by CPU time.
        "-report_slow_units=1000000",
        "-rss_limit_mb=2048",
        "-print_final_stats=1",
        f"-artifact_prefix={CRASHES}/{name}-",
    ]
    atheris.Setup([sys.argv[0], *options, str(found), str(CORPUS / name)], one)
    atheris.Fuzz()


def _note(watch: Watch, engine: str, seconds: float, figures: Path | None) -> None:
    row = {"engine": engine, "run": os.getpid(), **watch.figures(), "cpu_seconds": round(seconds, 1)}
    print(json.dumps(row), flush=True)
    if figures is not None:
        with figures.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def table(figures: Path) -> str:
    """Return a table of figures: the last of every run, runs of a target together."""
    from bristle.wire.refusal import Refusal  # noqa: PLC0415 - nothing of it before atheris has seen it

    rows = map(json.loads, figures.read_text(encoding="utf-8").splitlines())
    last = {(row["target"], row["engine"], row["run"]): row for row in rows}
    refusals = {refusal.value for refusal in Refusal} | {"refused"}
    lines = ["| target | by | inputs | not refused | slowest input | growth of the process | CPU time |"]
    lines.append("|---|---|---|---|---|---|---|")
    total = 0
    for name, engine in sorted({(target, engine) for target, engine, _ in last}, key=lambda key: TARGETS.index(key[0])):
        runs = [row for (target, by, _), row in last.items() if (target, by) == (name, engine)]
        inputs = sum(row["inputs"] for row in runs)
        total += inputs if name in DECODERS else 0
        taken = sum(count for row in runs for kind, count in row["outcomes"].items() if kind not in refusals)
        slowest, growth = max(row["slowest_ms"] for row in runs), max(row["growth_bytes"] for row in runs)
        lines.append(
            f"| {name} | {engine} | {inputs:,} | {taken / inputs:.1%} | {slowest:.1f} ms | {growth / 2**20:.1f} MiB "
            f"| {sum(row['cpu_seconds'] for row in runs):.0f} s |"
        )
    said = f"{total:,} inputs of the wire decoders ({', '.join(DECODERS)}), and none broke a promise."
    return "\n".join([f"{said} Python {platform.python_version()}, {platform.machine()}.", "", *lines, ""])


def show(figures: Path, page: Path | None) -> None:
    """Print a table of figures, or put it in the place of the last section of a page."""
    if page is None:
        print(table(figures))
        return
    before, _, _ = page.read_text(encoding="utf-8").partition(FIGURES)
    page.write_text(before + FIGURES + "\n\n" + table(figures), encoding="utf-8")


def write_seeds() -> None:
    """Write what every target's `seeds` makes, in place of what was there."""
    for name in TARGETS:
        folder = CORPUS / name
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        for seed, data in load(name).seeds().items():
            (folder / seed).write_bytes(data)


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", nargs="?", choices=(*TARGETS, "all"), help="which surface")
    parser.add_argument("--inputs", type=int, default=20_000, help="how many, for each target (20000)")
    parser.add_argument("--seed", type=int, default=1, help="of the changes (1)")
    parser.add_argument("--engine", choices=("mutate", "atheris"), default="mutate", help="what makes inputs (mutate)")
    parser.add_argument("--found", type=Path, default=FOLDER / "found", help="where atheris keeps what reaches further")
    parser.add_argument("--figures", type=Path, help="add the figures to this file, a JSON object a line")
    parser.add_argument("--write-seeds", action="store_true", help="make the seed corpus anew")
    parser.add_argument("--show", type=Path, metavar="FIGURES", help="print kept figures as a table")
    parser.add_argument("--page", type=Path, help="with --show: write it into this page, e.g. docs/fuzzing.md")
    options = parser.parse_args()
    if options.show:
        show(options.show, options.page)
        return
    if options.write_seeds:
        write_seeds()
        return
    if options.target is None or (options.target == "all" and options.engine == "atheris"):
        parser.error("name a target; atheris ends the process after one")
    if options.engine == "atheris":
        found = options.found / options.target
        guided(options.target, inputs=options.inputs, seed=options.seed, figures=options.figures, found=found)
    for name in TARGETS if options.target == "all" else (options.target,):
        began = time.process_time()
        watch = mutate(load(name), inputs=options.inputs, seed=options.seed, progress=True)
        _note(watch, "mutate", time.process_time() - began, options.figures)


if __name__ == "__main__":
    main()
