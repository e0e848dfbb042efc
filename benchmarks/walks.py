"""List the modules that a newcomer meets on three walks: those of Bristle in which a function runs.

    python benchmarks/walks.py
    PYTHONPATH=OTHER/src python benchmarks/walks.py --count      # another version of the sources

The walks are `bristle simulate FILE` to its rows, the iterations of a peer with a neighbour from datagrams to the
stored head (its own sharing included), and a call of the rules `krum` and `bristle`. Imports are not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from inspect import CO_NEWLOCALS
from pathlib import Path
from types import FrameType

import numpy as np

import bristle
from bristle import Bristle, Evaluation, Pace, Peer, rules
from bristle.rules import Rule

SOURCES = Path(bristle.__file__).parent
WORLD = """
world = { peers = 10, attackers = 5, iterations = 20 }
data = { train_samples = 3000, test_samples = 200 }
attack = { name = "label-flip" }
"""
OTHER = """
import asyncio, sys
from bristle import Bristle, Pace, Peer
from bristle.data import load
async def main():
    data = load("mnist")
    async with Peer(application="walk", classes=data.classes, folder=sys.argv[1],
                    rule=Bristle(), pace=Pace(interval=0.2)) as peer:
        peer.add(data.x_train[:300], data.y_train[:300])
        print(peer.address[1], flush=True)
        await peer.run()
asyncio.run(main())
"""


@contextmanager
def tracing() -> Iterator[set[str]]:
    """Collect the modules of Bristle in which functions run."""
    found: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code, caller = frame.f_code, frame.f_back
        # Bodies of modules and classes run at import, and so does what they call.
        imported = not code.co_flags & CO_NEWLOCALS or (caller and not caller.f_code.co_flags & CO_NEWLOCALS)
        if event == "call" and not imported and code.co_filename.startswith(str(SOURCES)):
            found.add(str(Path(code.co_filename).relative_to(SOURCES)))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def traced(walk: Callable[[], object]) -> set[str]:
    """Return the modules of a walk."""
    with tracing() as found:
        walk()
    return found


def simulate(folder: Path) -> None:
    """Run a small world from the command line."""
    from bristle.cli import main  # noqa: PLC0415 - the command line loads as for a user

    (folder / "world.toml").write_text(WORLD)
    sys.argv = ["bristle", "simulate", str(folder / "world.toml"), "--json", str(folder / "rows.jsonl")]
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise


def receive(folder: Path) -> set[str]:
    """Run a peer beside another one, which is a process of its own, and trace what it does after it has joined."""
    from bristle.data import load  # noqa: PLC0415

    data = load("mnist")
    words = [sys.executable, "-c", OTHER, str(folder / "other")]
    environment = {**os.environ, "PYTHONPATH": str(SOURCES.parent)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as other:
        assert other.stdout is not None
        known = [("127.0.0.1", int(other.stdout.readline()))]

        async def main() -> set[str]:
            pace = Pace(interval=0.3)
            options = {"application": "walk", "classes": data.classes, "folder": folder / "own", "known": known}
            options["rule"] = Bristle()
            # Only threads that start later are traced: start first, and forget what came before the neighbour.
            with tracing() as found:
                async with Peer(pace=pace, **options) as peer:  # type: ignore[arg-type]
                    peer.add(data.x_train[300:600], data.y_train[300:600])
                    await peer.run(iterations=10)
                    found.clear()
                    await peer.run(iterations=30)
                    return found.copy()

        try:
            return asyncio.run(main())
        finally:
            other.kill()


def call(rule: Rule) -> None:
    """Call a rule on random heads."""
    rng = np.random.default_rng(0)
    own, received = rng.normal(size=(10, 800)), rng.normal(size=(14, 10, 800))
    held_out = Evaluation(rng.normal(size=(40, 800)), np.repeat([0, 1, 2, 3], 10))
    decision = rule(own, received, evaluation=held_out, rng=rng)
    assert decision.head.shape == own.shape
    assert decision.weights is not None
    assert decision.explain(3)


def main() -> None:
    """Take all walks."""
    asked = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    asked.add_argument("--count", action="store_true", help="print the numbers alone")
    count = asked.parse_args().count
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        walks = {
            "simulate FILE to rows": traced(lambda: simulate(folder)),
            "datagrams to a stored head": receive(folder),
            "a call of krum": traced(partial(call, rules.create("krum", f=4))),
            "a call of bristle": traced(partial(call, Bristle())),
        }
    for title, modules in walks.items():
        print(f"{title}: {len(modules)} modules")
        for module in () if count else sorted(modules):
            print(f"    {module}")


if __name__ == "__main__":
    main()
