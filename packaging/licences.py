"""Check that everything installed has a licence that this project may be used with.

    make licences

Reads what each distribution says of itself (PEP 639 expression, classifiers, or the old free text) and compares it with
the list below. A package that says nothing, or something new, fails until a person has looked and written it down here.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, distributions

ALLOWED = frozenset(
    {
        "0BSD",
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "BSL-1.0",
        "CC-BY-SA-3.0",  # the bundled images
        "CC0-1.0",
        "ISC",
        "LLVM-exception",
        "MIT",
        "MIT-0",
        "MIT-CMU",
        "MPL-2.0",
        "PSF-2.0",
        "Unlicense",
        "Zlib",
    }
)

CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
}

TEXTS = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
}


def licence_of(package: Distribution) -> str:
    """Return the licence that a package states, as an SPDX expression if possible."""
    metadata = package.metadata
    expression = metadata.get("License-Expression")
    if expression:
        return str(expression)
    prefix = "License :: OSI Approved :: "
    stated = [each.removeprefix(prefix) for each in metadata.get_all("Classifier") or [] if each.startswith(prefix)]
    if stated:
        return " OR ".join(CLASSIFIERS.get(each, each) for each in stated)
    text = (metadata.get("License") or "").strip()
    return TEXTS.get(text, text.splitlines()[0] if text else "")


def is_allowed(licence: str) -> bool:
    """Return whether an expression is allowed: one of alternatives, all of what applies together; in brackets, all."""
    alternatives = [licence] if "(" in licence else re.split(r"\s+OR\s+", licence)
    return any(
        all(part in ALLOWED for part in re.split(r"[\s()]+(?:AND|WITH|OR)[\s()]+", each.strip(" ()")))
        for each in alternatives
    )


def refused(packages: Iterable[Distribution]) -> list[str]:
    """Return a line for each package that is not allowed."""
    lines = []
    for package in sorted(packages, key=lambda each: each.name.lower()):
        licence = licence_of(package)
        if not is_allowed(licence):
            lines.append(f"{package.name} {package.version}: {licence or 'states no licence'}")
    return lines


def main() -> None:
    """Check what is installed."""
    packages = list(distributions())
    wrong = refused(packages)
    if wrong:
        print("Licences that are not on the list in packaging/licences.py:", *wrong, sep="\n  ", file=sys.stderr)
        sys.exit(1)
    print(f"licences: {len(packages)} packages, all on the list")


if __name__ == "__main__":
    main()
