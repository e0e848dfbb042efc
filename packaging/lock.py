"""Write the hashes of what is the same for everybody: wheels that serve all systems and all versions of Python.

    make lock        after a change of constraints.txt, in an environment where all of it is installed

pip checks hashes of all that it installs at once or of nothing, and most compiled packages have a file for each system
and version. So there are two steps: what is in packaging/hashed-core.txt and hashed-dev.txt is installed by hash, and
what is left, torch among it, by its exact version in constraints.txt.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
UNIVERSAL = re.compile(r"^Tag: py(2\.py)?3-none-any$", re.MULTILINE)
CORE_EXTRAS = ("plots",)
NOTE = "# Made by `make lock`: wheels that serve every system, by hash. The rest is in constraints.txt, by version.\n"


def normal(name: str) -> str:
    """Return a package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(text: str) -> dict[str, str]:
    """Return name and version of every line `name==version`."""
    return {normal(name): version for name, version in re.findall(r"^([\w.-]+)==([^\s;\\]+)", text, re.MULTILINE)}


def closure(requirements: list[str]) -> set[str]:
    """Return the names of all that requirements lead to, as installed here."""
    found: set[tuple[str, str]] = set()
    left = [Requirement(text) for text in requirements]
    while left:
        requirement = left.pop()
        for extra in ("", *requirement.extras):
            key = normal(requirement.name), extra
            if key in found:
                continue
            found.add(key)
            try:
                more = distribution(requirement.name).requires or []
            except PackageNotFoundError:
                continue
            wanted = map(Requirement, more)
            left += [each for each in wanted if each.marker is None or each.marker.evaluate({"extra": extra})]
    return {name for name, _ in found}


def universal(name: str) -> bool:
    """Tell whether the installed package came as a wheel for every system."""
    try:
        return bool(UNIVERSAL.search(distribution(name).read_text("WHEEL") or ""))
    except PackageNotFoundError:
        return False


def hashes(wanted: dict[str, str], folder: Path) -> dict[str, str]:
    """Fetch wheels, and return the SHA-256 of each; of packages that come as sources alone there is none."""
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    words += ["--only-binary", ":all:", "--dest", str(folder)]
    left = dict(wanted)
    while True:
        done = subprocess.run(
            [*words, *(f"{name}=={version}" for name, version in left.items())],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            break
        missing = re.search(r"No matching distribution found for ([\w.-]+)==", done.stderr)
        if missing is None or normal(missing[1]) not in left:
            sys.exit(done.stderr)
        print(f"no wheel: {missing[1]}; it stays with its version alone")
        del left[normal(missing[1])]
    found = {}
    for path in folder.glob("*-none-any.whl"):
        found[normal(path.name.split("-")[0])] = sha256(path.read_bytes()).hexdigest()
    return found


def main() -> None:
    """Write both files."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [each for extra in CORE_EXTRAS for each in project["optional-dependencies"][extra]]
    core = closure(project["dependencies"] + extras)
    pinned = pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    wanted = {name: version for name, version in pinned.items() if universal(name)}
    with tempfile.TemporaryDirectory() as folder:
        digests = hashes(wanted, Path(folder))
    for file, chosen in (("hashed-core.txt", core), ("hashed-dev.txt", set(digests) - core)):
        names = sorted(chosen & digests.keys())
        lines = [f"{name}=={wanted[name]} --hash=sha256:{digests[name]}\n" for name in names]
        (ROOT / "packaging" / file).write_text(NOTE + "".join(lines), encoding="utf-8")
        print(f"packaging/{file}: {len(lines)} wheels")


if __name__ == "__main__":
    main()
