"""What it takes to have it: installed size, time to import, and peak memory of a small piece of work.

    python benchmarks/footprint.py [--quick] [--json rows.json]

Sizes are those of all files that pip installed for a package and what it requires, without extras; pip and setuptools
are not counted. Ours is installed afresh for that, without torch; the others are measured where `make peers` and `make
field` put them, and what they require but is not installed there is named. Times are processor seconds of new
processes, which other work on the machine disturbs less than the clock; they take turns, a process that imports nothing
is subtracted, and the ratio to `import numpy` in the same environment counts.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from field import FIELD, Size, available, python_of, write_task
from peers import FOLDER as PEERS
from peers import available as peers_available

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
Row = dict[str, Any]
NOT_COUNTED = ("pip", "setuptools")

# Runs in the environment that it measures: how large a package is there with all that it requires.
SIZE = r"""
import importlib.metadata as metadata, json, re, sys
from packaging.requirements import Requirement
def plain(name): return re.sub(r"[-_.]+", "-", name).lower()
there = {plain(found.metadata["Name"]): found for found in metadata.distributions()}
left, seen, missing = [plain(name) for name in sys.argv[1:]], {}, []
while left:
    name = left.pop()
    if name in seen or name in missing: continue
    if name not in there: missing.append(name); continue
    files = [there[name].locate_file(path) for path in there[name].files or ()]
    seen[name] = sum(path.stat().st_size for path in files if path.is_file())
    for line in there[name].requires or ():
        need = Requirement(line)
        if need.marker is None or need.marker.evaluate({"extra": ""}): left.append(plain(need.name))
print(json.dumps({"bytes": sum(seen.values()), "packages": len(seen), "missing": sorted(missing), "by": seen}))
"""

# A world of 10 peers among 5 attackers, 20 iterations; and how much memory the process had at most.
OURS = """
import json, resource
from bristle.attacks import create
from bristle.simulation import Scenario, World
from bristle.commands.demo import digits
world = World(Scenario(attackers=5, attack=create("inner-product"), iterations=20), digits())
for _ in range(20): world.advance(weigh=False)
print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024))
"""
THEIRS = """
import json, resource, sys
import numpy as np, torch
from peers import load
from rounds_peers import ByzFL, ByzPyNodes
task = np.load(sys.argv[1])
held = [(torch.tensor(x), torch.tensor(y)) for x, y in zip(task["features"], task["labels"])]
head = lambda: torch.nn.Linear(800, 10, bias=False)
if sys.argv[2].startswith("ByzFL"): loop = ByzFL(head, held, 5, "TrMean")
else: loop = ByzPyNodes(head, held, 5, load()[1].trimmed_mean.CoordinateWiseTrimmedMean(f=5))
loop.advance(20)
print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024))
"""


@dataclass(frozen=True)
class Package:
    """A package: where it is, code that imports it, what its size is made of, and where else modules are found."""

    name: str
    python: Path
    code: str
    roots: tuple[str, ...] = ()
    path: tuple[str, ...] = ()

    def environment(self) -> dict[str, str]:
        """Return the variables that a process of it gets."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return {**kept, "PYTHONPATH": os.pathsep.join(self.path), "OMP_NUM_THREADS": "1"}

    def run(self, code: str, *words: str) -> str:
        """Run code where the package is; return what it printed."""
        command = [str(self.python), "-c", code, *words]
        # Some write files into the working directory.
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, env=self.environment(), cwd=folder
            )
        if done.returncode:
            raise RuntimeError(f"{self.name}: {done.stderr.strip().splitlines()[-1]}")
        return done.stdout

    def seconds(self, code: str) -> float:
        """Return the processor time that a new process takes for it."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.run(code)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def fresh(folder: Path) -> Path:
    """Install Bristle's core in a new environment; return its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    pins = re.findall(r"^[\w.-]+==[^\\\n]+", (ROOT / "packaging" / "lock-core.txt").read_text(), re.MULTILINE)
    constraints = folder / "constraints.txt"  # Without hashes: pip then takes what the core needs, and no plots.
    constraints.write_text("\n".join(pins))
    words = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--constraint"]
    subprocess.run([*words, str(constraints), str(ROOT)], check=True)
    return python


def size_of_environment(python: Path) -> int:
    """Return the bytes of all files in an environment's packages, without pip and setuptools."""
    packages = next((python.parent.parent / "lib").glob("python3*")) / "site-packages"
    kept = [entry for entry in packages.iterdir() if re.split(r"[-_.]", entry.name)[0] not in NOT_COUNTED]
    files = [path for entry in kept for path in ([entry] if entry.is_file() else entry.rglob("*"))]
    return sum(path.stat().st_size for path in files if path.is_file() and not path.is_symlink())


def others() -> list[Package]:
    """Return the packages of others that are here."""
    here, path, found = Path(sys.executable), (str(PEERS),), []
    if peers_available():
        # All of it needs torchvision and seaborn; these are its rules and its training loop.
        parts = (
            "import sys, types; package = types.ModuleType('byzfl'); "
            f"package.__path__ = [{str(PEERS / 'byzfl')!r}]; sys.modules['byzfl'] = package; "
            "import byzfl.aggregators, byzfl.fed_framework"
        )
        found.append(Package("ByzFL 0.0.11", here, parts, ("byzfl",), path))
        found.append(Package("ByzPy 0.1.4", here, "import byzpy", ("byzpy",), path))
    if available("flower"):
        found.append(Package("Flower 1.42", python_of("flower"), "import flwr.server, flwr.client", ("flwr",)))
    if available("p2pfl"):
        # It starts Ray on import otherwise.
        code = "from p2pfl.settings import Settings; Settings.general.DISABLE_RAY = True; import p2pfl.node"
        found.append(Package("p2pfl 0.4.4, without torch", python_of("p2pfl"), code, ("p2pfl",)))
    return found


def import_times(packages: Sequence[Package], turns: int) -> dict[str, tuple[float, float]]:
    """Return for each the seconds that its import and NumPy's take in new processes, less those of an empty one."""
    codes = {package.name: ("pass", "import numpy", package.code) for package in packages}
    times: dict[tuple[str, str], list[float]] = {(name, code): [] for name, some in codes.items() for code in some}
    for _ in range(turns):
        for package in packages:
            for code in codes[package.name]:
                times[package.name, code].append(package.seconds(code))
    middle = {key: median(some) for key, some in times.items()}
    return {
        name: (middle[name, whole] - middle[name, empty], middle[name, numpy] - middle[name, empty])
        for name, (empty, numpy, whole) in codes.items()
    }


def measure(*, quick: bool) -> list[Row]:
    """Return a row for every package."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        python = Path(sys.executable) if quick else fresh(Path(folder) / "core")
        path = (str(ROOT / "src"),) if quick else ()
        core = Package("Bristle, core", python, "import bristle", path=path)
        # What `import bristle` may put off is counted where it is used first.
        packages = [core, replace(core, name="Bristle, its rule", code="from bristle import Bristle"), *others()]
        size = None if quick else size_of_environment(python)
        torch_there = packages[0].run("import importlib.util; print(importlib.util.find_spec('torch') is not None)")
        times = import_times(packages, 1 if quick else 7)
        for package in packages:
            took, numpy = times[package.name]
            row: Row = {"package": package.name, "import_s": took, "numpy_s": numpy, "missing": []}
            if package.roots:
                sizes = json.loads(package.run(SIZE, *package.roots))
                row |= {"bytes": sizes["bytes"], "packages": sizes["packages"], "missing": sizes["missing"]}
            else:
                row |= {"bytes": size, "torch": torch_there.strip() == "True"}
            rows.append({**row, "load": os.getloadavg()[0]})
        rows[0]["memory"] = int(packages[0].run(OURS))
        task = Path(folder) / "task.npz"
        write_task(Size(peers=10, classes=4, rounds=1), task)
        for row, package in zip(rows, packages, strict=True):
            if package.name.startswith("Byz"):
                # The adapters are ours, and use a little of Bristle.
                whole = replace(package, path=(*package.path, str(ROOT / "src"), str(HERE)))
                row["memory"] = int(whole.run(THEIRS, str(task), package.name))
    return rows


def table(rows: list[Row]) -> str:
    """Return a Markdown table."""
    lines = [
        "| package | installed, MB | required but not installed here | import, processor s | against `import numpy` "
        "| peak memory of 20 rounds, MB |",
        "|---" * 6 + "|",
    ]
    for row in rows:
        size = "-" if row["bytes"] is None else f"{row['bytes'] / 1e6:,.0f}"
        memory = f"{row['memory'] / 1e6:,.0f}" if "memory" in row else "-"
        ratio = row["import_s"] / row["numpy_s"]
        lines.append(
            f"| {row['package']} | {size} | {', '.join(row['missing']) or '-'} | {row['import_s']:.2f} | {ratio:.1f} "
            f"| {memory} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="install nothing and import once, to see that it works")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    options = parser.parse_args()
    if not FIELD.exists():
        print("Flower and p2pfl are left out: run `make field`", file=sys.stderr)
    rows = measure(quick=options.quick)
    print(table(rows))
    if options.json:
        options.json.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
