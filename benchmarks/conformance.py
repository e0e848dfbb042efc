"""What systems make of hostile messages: NaN, infinities, short and empty models, pickles, replays, forged senders.

    make peers && python benchmarks/conformance.py [--murmura FOLDER] [--out docs/conformance.md]

Every cell is what was seen when that system's own code was given the bytes or numbers, in a process of its own. Murmura
is not on a package index: --murmura names the root of a checkout, and needs pyzmq; without it, its column says so.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from conformance_cases import CASES, HONEST, HOSTILE, F

SYSTEMS = {
    "ours": "Bristle",
    "byzfl": "ByzFL 0.0.11",
    "byzpy": "ByzPy 0.1.4",
    "p2pfl": "p2pfl 0.4.4",
    "murmura": "Murmura",
}
PATIENCE = 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--murmura", type=Path, help="root of a checkout of Murmura")
    parser.add_argument("--only", choices=SYSTEMS, action="append", help="only this system, e.g. to look at its errors")
    parser.add_argument("--out", type=Path, help="write the table to this Markdown file as well")
    parser.add_argument("--probe", choices=SYSTEMS, help=argparse.SUPPRESS)  # what a child process is asked for
    options = parser.parse_args()
    if options.probe:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(probe(options.probe, Path(folder), options.murmura)))
        return
    systems = options.only or list(SYSTEMS)
    seen = {name: observed(name, options.murmura) for name in systems}
    lines = list(report(seen))
    print("\n".join(lines))
    if options.out:
        # The part about statements is of a script of its own.
        _, mark, rest = options.out.read_text(encoding="utf-8").partition("\n<!-- conformance_statements")
        options.out.write_text("\n".join(lines) + "\n" + mark + rest, encoding="utf-8")
        print(f"\nwritten to {options.out}", file=sys.stderr)


def probe(system: str, folder: Path, checkout: Path | None) -> dict[str, str]:
    """Look at one system, in a process that nothing else depends on."""
    if system == "ours":
        import conformance_ours  # noqa: PLC0415 - the others' processes load none of it

        return conformance_ours.observe(folder)
    if system in ("byzfl", "byzpy"):
        import conformance_libraries as libraries  # noqa: PLC0415

        return libraries.byzfl(folder) if system == "byzfl" else libraries.byzpy(folder)
    import conformance_nodes as nodes  # noqa: PLC0415

    if system == "p2pfl":
        return nodes.p2pfl(folder)
    assert checkout is not None
    return nodes.murmura(folder, checkout)


def observed(system: str, checkout: Path | None) -> dict[str, str]:
    """Run a probe; say why where it cannot be run."""
    print(f"{SYSTEMS[system]} ...", file=sys.stderr, flush=True)
    if system == "murmura" and checkout is None:
        return dict.fromkeys(CASES, "not run: no checkout was named")
    words = [sys.executable, str(Path(__file__).resolve()), "--probe", system]
    words += ["--murmura", str(checkout.resolve())] if checkout else []
    with tempfile.TemporaryDirectory() as folder:  # where they write logs
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=folder)
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["no word"])[-1]
        print(done.stderr, file=sys.stderr)
        return dict.fromkeys(CASES, f"not run: {why[:120]}")
    found: dict[str, str] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def report(seen: dict[str, dict[str, str]]) -> Iterator[str]:
    """Yield the page."""
    yield "# What systems make of hostile messages\n"
    yield (
        f"Each cell is what was seen when the system's own code ran on it, in a process of its own: {HONEST} honest "
        f"models, the first the receiver's, and {HOSTILE} hostile ones that all send the same (f = {F} where a rule "
        "asks). *Holds*: the answer is finite and near the honest models. *Thrown off*: finite, but more than a "
        f"thousand times their spread away. Python {platform.python_version()}, NumPy {version('numpy')}, "
        f"torch {version('torch')}. Made by `python benchmarks/conformance.py`.\n"
    )
    yield "| hostile message | " + " | ".join(SYSTEMS[name] for name in seen) + " |"
    yield "|---|" + "---|" * len(seen)
    for case in CASES:
        yield f"| {case} | " + " | ".join(found[case] for found in seen.values()) + " |"
    yield NOTES


NOTES = """
How each was reached:

- **Bristle**: two peers on loopback, with sockets, handshake, sealing and signatures; the hostile one is a member of
  the group and signs what it sends. Then every rule, on arrays that came another way (`rules.stack`). A head of 1e38 is
  finite and arrives; no rule takes it.
- **ByzFL** is a library of rules without a network: a list of torch tensors, as its documentation gives them.
- **ByzPy**: its rules likewise; for messages, its `RemoteNodeServer` on loopback TCP.
- **p2pfl**: `PartialModelCommand`, with which a node takes a model that came in, on bytes of its own encoding; its
  `LightningModel` and aggregators. A model that does not decode or fit makes the node call its own `stop`: one message
  ends it. Its transport can ask for certificates, by default the same pair for all; who contributed is what a message
  says.
- **Murmura**, where it was run: a node's `_collect_neighbor_states` over ZeroMQ on loopback TCP, then its aggregators.
  UBAR and Evidential Trust need data and a model of their own and were left out.

Empty modules stand in for libraries that those systems import and that play no part here. *Short*: one column is
missing. *Empty*: an array of no numbers, or a model of no layers where a model is a list of them. *Wrong dtype*:
complex numbers. *Pickle bomb*: a pickle that would make an empty file, sent where a message is expected. *Replay*: the
same bytes once more. *Forged sender*: a model in another peer's name. That an average does not hold is no defect of an
average; that nothing stands before it is one of what it is offered for."""


if __name__ == "__main__":
    main()
