"""What all tests share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

pytest_plugins = [
    "tests.support.commands",
    "tests.support.hostile",
    "tests.support.network",
    "tests.support.paper",
    "tests.support.peers",
    "tests.support.routers",
    "tests.support.virtual_routers",
]

# How long an example takes depends on what else the machine does. CI tries the same examples every time: new ones are
# for whoever runs the tests by hand, and can look at what they find.
settings.register_profile("bristle", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("bristle")


@pytest.fixture
def complaint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., str]:
    """Run `bristle` in an empty folder with words that are wrong; it has to say so in one line, and write nothing."""

    def run(*words: str) -> str:
        from bristle.cli import main  # noqa: PLC0415 - few tests need it

        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("sys.argv", ["bristle", *words])
        with pytest.raises(SystemExit) as stopped:
            main()
        assert stopped.value.code == 2
        said = capsys.readouterr().err.strip()
        assert said.startswith("bristle: ")
        assert len(said.splitlines()) == 1
        assert not list(tmp_path.iterdir())
        return said

    return run
