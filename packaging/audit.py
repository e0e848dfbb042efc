"""Look up known vulnerabilities of every pinned package with pip-audit, if its database can be reached.

    make audit

Exit code 1: a package has a known vulnerability. 0: none has, or the message says that the database was out of reach.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 300


def main() -> None:
    """Run pip-audit over what the lock pins and print the result."""
    words = [sys.executable, "-m", "pip_audit", "--no-deps"]
    words += ["--disable-pip", "--format", "json", "--progress-spinner", "off", "--timeout", "10"]
    try:
        with tempfile.TemporaryDirectory() as folder:
            requirements = Path(folder) / "requirements.txt"
            requirements.write_text("\n".join(pins()), encoding="utf-8")
            words += ["--requirement", str(requirements)]
            done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        print(f"audit: NOT DONE: the database of vulnerabilities did not answer within {PATIENCE} s")
        return
    code, message = verdict(done.stdout, done.stderr)
    print(message)
    sys.exit(code)


def pins() -> list[str]:
    """Return `name==version` of everything that is pinned; pip-audit takes hashes for all of it or for nothing."""
    texts = [(ROOT / "packaging" / name).read_text(encoding="utf-8") for name in ("lock-dev.txt", "torch.txt")]
    return re.findall(r"^[a-z0-9-]+==[^\s;]+", "\n".join(texts), re.MULTILINE)


def verdict(stdout: str, stderr: str) -> tuple[int, str]:
    """Return the exit code and the message for pip-audit's answer."""
    try:
        packages = json.loads(stdout)["dependencies"]
    except (json.JSONDecodeError, KeyError, TypeError):
        why = (stderr.strip().splitlines() or ["no word"])[-1]
        if any(word in why for word in ("onnect", "esolve", "imed out", "unreachable", "Proxy", "Service")):
            return 0, f"audit: NOT DONE: the database of vulnerabilities cannot be reached from here ({why[:200]})"
        return 1, f"audit: pip-audit failed: {why[:500]}"
    known = [
        f"  {package['name']} {package['version']}: {flaw['id']}, repaired in {', '.join(flaw['fix_versions']) or '-'}"
        for package in packages
        for flaw in package.get("vulns", [])
    ]
    if known:
        return 1, "\n".join(["audit: known vulnerabilities:", *known])
    skipped = sum("skip_reason" in package for package in packages)
    if skipped == len(packages):
        return 0, "audit: NOT DONE: the database of vulnerabilities knows none of the packages, as if it were not there"
    return 0, f"audit: {len(packages) - skipped} packages, no known vulnerability ({skipped} not in the database)"


if __name__ == "__main__":
    main()
