"""Without the other libraries: nothing of them is imported, and an adapter says in one line what it lacks."""

from __future__ import annotations

import subprocess
import sys

import pytest

ASKED = """
import sys
for name in ("flwr", "p2pfl", "byzfl"):
    sys.modules[name] = None  # As if it were not installed.
{}
"""


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", ASKED.format(code)], capture_output=True, text=True, timeout=120, check=False
    )


def test_the_package_needs_none_of_them() -> None:
    done = python("import bristle.integrations, bristle.integrations.layout\nimport bristle.integrations.byzfl")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import bristle.integrations.flower", "bristle.integrations.flower needs Flower 1.22 or newer: pip install"),
        ("import bristle.integrations.p2pfl", "bristle.integrations.p2pfl needs p2pfl: pip install p2pfl"),
        (
            "from bristle.integrations.byzfl import AsRule\nAsRule(aggregator='Krum')",
            "ByzFL is needed for this: pip install byzfl",
        ),
    ],
)
def test_a_library_that_is_missing_is_named(code: str, message: str) -> None:
    done = python(code)
    assert done.returncode == 1
    assert f"ModuleNotFoundError: {message}" in done.stderr.splitlines()[-1]
