"""Check that two versions of the sources give the same results, to the bit.

    python benchmarks/same_rows.py OLD [NEW] [--only WORLD] [--jobs 2]

OLD and NEW are commits, branches or tags of this repository, or folders that contain `src/bristle`. NEW defaults to the
working tree. Both versions run the same small worlds by the same command line, `bristle simulate FILE --set ... --json
ROWS`, each with its own sources and its own feature cache, single-threaded. Compared are all columns of all rows (none
is a time) and, for worlds that can write a checkpoint, every array in it: an accuracy over 300 images hides a changed
last bit, a head does not. `same_rows_probe.py` then runs every rule, step and attack through the public names alone, on
NumPy and torch, in ordinary and in large worlds. CUDA worlds run where there is a device, and are reported as left out
elsewhere.

Prints one line per world. Exit status: 0 all the same, 1 something differs or fails, 2 a version cannot be found. Takes
half a minute on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
FILE = """\
[world]
peers = 12
attackers = 4
iterations = 12
evaluate_every = 4

[data]
train_samples = 1500
test_samples = 300

[partition]
reuse = true

[attack]
name = "label-flip"
"""
IN_GRAPH = ("topology.name=random", "topology.k=6", "topology.attackers=in-graph")
NARROW = ("world.moments=bfloat16", "world.shared=bfloat16", "world.evaluate_peers=6")
MAIN = "from bristle.cli import main; main()"
PROBE = "probe"
TIMEOUT = 600


@dataclass(frozen=True)
class Case:
    """Overrides of the file. A large world writes no checkpoint: with one it would run as an ordinary world."""

    name: str
    settings: tuple[str, ...] = ()
    checkpoint: bool = True


WORLDS = (
    Case("bristle, label flip"),
    Case("bristle, trojan", ("attack.name=foreign-trojan", "world.seed=1")),
    Case("krum, ALIE", ("rule.name=krum", "attack.name=alie")),
    Case("trimmed mean, Fang", ("rule.name=trimmed-mean", "attack.name=trimmed-mean", "partition.name=iid")),
    Case("median, Fang", ("rule.name=median", "attack.name=krum-along", "world.receivers_at_once=5")),
    Case(
        "chain of steps",
        (
            "rule.name=multi-krum",
            'rule.before=["bucketing", {name = "nearest-neighbour-mixing", f = 2}]',
            "attack.name=min-max",
            "rule.f=2",
        ),
    ),
    Case(
        "asynchrony, random neighbours",
        (
            "topology.name=random", "topology.k=5", "topology.redraw=true", "attack.name=dissensus",
            "asynchrony.slow=0.4", "asynchrony.period=3", "asynchrony.late=0.2", "asynchrony.join_by=5",
            "asynchrony.leaving=0.3", "asynchrony.away=3", "asynchrony.absences=[[3, 2, 6]]",
            "asynchrony.loss=0.2", "asynchrony.delay=[0, 2]",
        ),
    ),
    Case(
        "sybils",
        (
            "rule.name=balance", "rule.gamma=5.0", "world.attackers=6",
            "attack.name=sybil", 'attack.inner={name = "inner-product"}',
        ),
    ),
    Case(
        "Dirichlet, ring, noise",
        (
            "partition.name=dirichlet", "partition.alpha=0.3", "topology.name=ring", "topology.reach=2",
            "data.user_shift=0.1", "world.share_clip=1.5", "world.share_noise=0.01", "attack.name=mimic",
            "training.batch=3",
        ),
    ),
    Case("large, torch", ("world.device=cpu", *IN_GRAPH), checkpoint=False),
    Case("large, torch, 16 bits", ("world.device=cpu", *IN_GRAPH, *NARROW, "rule.name=fedavg"), checkpoint=False),
    Case(
        "large, torch, ring",
        (
            "world.device=cpu", "topology.name=ring", "topology.reach=3", "topology.attackers=in-graph",
            "rule.name=krum", "rule.f=1",
        ),
        checkpoint=False,
    ),
    Case("ordinary, torch", ("world.device=cpu", "attack.name=alie")),
)  # fmt: skip

ON_DEVICE = (
    Case("large, CUDA", ("world.device=cuda", *IN_GRAPH), checkpoint=False),
    Case("large, CUDA, 16 bits", ("world.device=cuda", *IN_GRAPH, *NARROW), checkpoint=False),
    Case("large, CUDA, median", ("world.device=cuda", *IN_GRAPH, "rule.name=median"), checkpoint=False),
    Case("ordinary, CUDA", ("world.device=cuda", "attack.name=alie")),
)


@dataclass(frozen=True)
class Side:
    """One version of the sources, and its working folder."""

    name: str
    sources: Path
    work: Path

    def python(self, *words: str, where: Path | None = None) -> str:
        """Run Python with these sources; return its stdout, or raise with the last line of its stderr."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.sources),
            "PYTHONDONTWRITEBYTECODE": "1",
            "BRISTLE_CACHE": str(self.work / "cache"),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        done = subprocess.run(
            [sys.executable, "-P", *words],
            env=environment, cwd=where or self.work, capture_output=True, text=True, timeout=TIMEOUT, check=False,
        )  # fmt: skip
        if done.returncode:
            said = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
            raise RuntimeError(f"fails in {self.name}: {said}")
        return done.stdout

    def run(self, world: Case | None) -> dict[str, Any]:
        """Run a world, or the probe for None; return all of its results by name."""
        if world is None:
            digests: dict[str, Any] = json.loads(self.python(str(HERE / "same_rows_probe.py")))
            return digests
        folder = self.work / world.name.replace(" ", "-").replace(",", "")
        folder.mkdir()
        (folder / "world.toml").write_text(FILE, encoding="utf-8")
        words = ["simulate", "world.toml", "--json", "rows.jsonl"]
        words += ["--checkpoint", "kept.npz"] if world.checkpoint else []
        for setting in world.settings:
            words += ["--set", setting]
        self.python("-c", MAIN, *words, where=folder)
        found = _by_place(folder / "rows.jsonl")
        return {**found, **_arrays(folder / "kept.npz")} if world.checkpoint else found


def main() -> None:
    """Compare two versions and report the differences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", metavar="OLD", help="a commit, or a folder that contains src/bristle")
    parser.add_argument("new", metavar="NEW", nargs="?", help="likewise (default: the working tree)")
    names = [world.name for world in (*WORLDS, *ON_DEVICE)] + [PROBE]
    parser.add_argument("--only", action="append", choices=names, help="run only this world; repeatable")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time (default: 2)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="same-rows-") as temporary:
        try:
            old = side_of("old", given.old, Path(temporary))
            new = side_of("new", given.new or str(HERE.parent), Path(temporary))
        except (ValueError, RuntimeError) as error:
            print(f"same_rows: {error}", file=sys.stderr)
            sys.exit(2)
        sys.exit(_compare(old, new, given.only or names, given.jobs))


def _compare(old: Side, new: Side, names: list[str], jobs: int) -> int:
    """Run the named worlds in both versions, print a line for each, and return the exit status."""
    worlds = {world.name: world for world in WORLDS}
    if _has_cuda(old):
        worlds |= {world.name: world for world in ON_DEVICE}
    elif left_out := [world.name for world in ON_DEVICE if world.name in names]:
        print(f"no CUDA here: left out {'; '.join(left_out)}")
    wanted = [name for name in names if name in worlds or name == PROBE]
    wrong = 0
    with ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
        begun = {
            name: [pool.submit(side.run, worlds.get(name)) for side in (old, new)]
            for name in wanted
        }  # fmt: skip
        for name, pair in begun.items():
            failed = [str(error) for future in pair if (error := future.exception()) is not None]
            said = " and ".join(failed) if failed else _difference(*(future.result() for future in pair))
            wrong += said is not None
            print(f"{name}: {said or f'the same, {len(pair[0].result())} values'}", flush=True)
    print(f"{wrong} of {len(wanted)} differ" if wrong else f"all {len(wanted)} are the same to the bit")
    return 1 if wrong else 0


def _difference(old: dict[str, Any], new: dict[str, Any]) -> str | None:
    """Return what differs, by column or array, with the first of the values; None if nothing does."""
    # Compared as text: NaN equals NaN, and 1 is not 1.0.
    wrong = [key for key in old if key in new and json.dumps(old[key]) != json.dumps(new[key])]
    parts = (
        [f"{len(wrong)} values ({_columns(wrong)}; {wrong[0]} was {old[wrong[0]]}, is {new[wrong[0]]})"]
        if wrong
        else []
    )
    parts += [f"gone: {_columns(gone)}"] if (gone := [key for key in old if key not in new]) else []
    parts += [f"new: {_columns(come)}"] if (come := [key for key in new if key not in old]) else []
    if not parts and list(old) != list(new):
        parts = ["the order of columns or arrays"]
    return f"DIFFERS: {'; '.join(parts)}" if parts else None


def _columns(keys: list[str]) -> str:
    """Return the names without row numbers and kinds of arrays, each once."""
    return ", ".join(dict.fromkeys(re.sub(r"^row \d+ |: \w+$", "", key) for key in keys))


def _by_place(path: Path) -> dict[str, Any]:
    """Return every value of a file of rows, by row and column."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {f"row {number} {column}": value for number, row in enumerate(rows) for column, value in row.items()}


def _arrays(path: Path) -> dict[str, Any]:
    """Return type, shape and digest of every array of a checkpoint; its metadata is no result and left out."""
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in sorted(file.files) if name != "about"}
    return {
        f"array {name}": f"{values.dtype} {list(values.shape)} {sha256(values.tobytes()).hexdigest()[:16]}"
        for name, values in arrays.items()
    }


def side_of(name: str, given: str, temporary: Path) -> Side:
    """Unpack a commit, or take a folder, and check that Python really imports from it."""
    work = temporary / name
    work.mkdir()
    if (Path(given) / "src" / "bristle").is_dir():
        sources = (Path(given) / "src").resolve()
    else:
        with _archive(given) as archive:
            archive.extractall(work / "tree", filter="data")
        sources = work / "tree" / "src"
    side = Side(f"{name} ({given})" if name == "old" else name, sources, work)
    taken = Path(side.python("-c", "import bristle; print(bristle.__file__)").strip())
    if not taken.is_relative_to(sources):
        raise ValueError(f"{given} is not what Python imports, which is {taken}: run this in the project's environment")
    return side


@contextmanager
def _archive(commit: str) -> Iterator[tarfile.TarFile]:
    done = subprocess.run(
        ["git", "-C", str(HERE.parent), "archive", "--format=tar", f"{commit}^{{commit}}", "src"],
        capture_output=True, check=False,
    )  # fmt: skip
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise ValueError(f"{commit!r} is neither a folder with src/bristle nor a commit ({''.join(said)})")
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        yield archive


def _has_cuda(side: Side) -> bool:
    return side.python("-c", "import torch; print(torch.cuda.is_available())").strip() == "True"


if __name__ == "__main__":
    main()
