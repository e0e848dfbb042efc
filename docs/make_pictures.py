"""Make the pictures of the live page in docs/pictures: of real runs, light and dark, with few peers and with many.

    make pictures

Each run is a command that anybody can give; the page is opened in Chromium while it goes on, a cell is chosen as a
reader would, and the picture is taken. Takes a few minutes.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
from tests.support.browser import Browser

HERE = Path(__file__).parent
WIDTH, HEIGHT = 1360, 1000

MANY = """
[world]
peers = 100
attackers = 5
iterations = 100
evaluate_every = 5
[data]
train_samples = 12000
test_samples = 2000
[attack]
name = "label-flip"
[rule]
name = "bristle"
[topology]
name = "random"
k = 12
"""


@dataclass(frozen=True)
class Shot:
    """A run to take pictures of: what to call them, the command, when, whose decisions, and about whom."""

    name: str
    command: tuple[str, ...]
    after: int
    receiver: str
    sender: str
    column: int


SHOTS = (
    Shot("live-5-peers", ("demo", "--peers", "5", "--attackers", "2", "--classes", "6"), 6, "peer 0", "attacker 1", 2),
    Shot("live-100-peers", ("simulate", "world.toml"), 40, "peer 3", "attacker 2", 5),
)


def main() -> None:
    """Make all pictures, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"which: {', '.join(shot.name for shot in SHOTS)} (all)")
    parser.add_argument("--out", type=Path, default=HERE / "pictures")
    given = parser.parse_args()
    unknown = sorted(set(given.names) - {shot.name for shot in SHOTS})
    if unknown:
        parser.error(f"there is no picture {unknown[0]!r}; choose from {', '.join(shot.name for shot in SHOTS)}")
    for shot in SHOTS:
        if not given.names or shot.name in given.names:
            take(shot, given.out)


def take(shot: Shot, out: Path) -> None:
    """Run a command and take its pictures: the whole page in light and dark colours."""
    with tempfile.TemporaryDirectory() as folder, running(shot.command, Path(folder)) as url, Browser() as browser:
        browser.emulate(dark=False, width=WIDTH, height=HEIGHT)
        browser.open(url)
        browser.wait(lambda: _iteration(browser) >= shot.after, f"iteration {shot.after}")
        browser.click(_named(".peers button.name", shot.receiver))
        browser.click(f"{_named('.matrix [role=rowheader]', shot.sender)}.parentNode.children[{shot.column + 1}]")
        browser.wait_for("!document.querySelector('#reason').hidden")
        height = browser.value("document.documentElement.scrollHeight")
        for dark in (False, True):
            browser.emulate(dark=dark, width=WIDTH, height=height)
            browser.value("document.activeElement.blur(); scrollTo(0, 0)")
            # Two frames after the colours have changed, and after what was redrawn for them.
            browser.value(
                "new Promise(go => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(go)), 1500))"
            )
            path = out / f"{shot.name}-{'dark' if dark else 'light'}.png"
            browser.picture(path, whole=False)
            print(path)
        if browser.complaints():
            raise RuntimeError(f"the page complains: {browser.complaints()}")


@contextmanager
def running(command: Sequence[str], folder: Path) -> Iterator[str]:
    """Run a command of bristle with a page; yield the page's address, and interrupt the command in the end."""
    (folder / "world.toml").write_text(MANY, encoding="utf-8")
    started = subprocess.Popen(
        [sys.executable, "-c", "from bristle.cli import main; main()", *command, "--dashboard"],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, cwd=folder, start_new_session=True,
    )  # fmt: skip
    try:
        assert started.stderr is not None
        for line in started.stderr:
            if line.startswith("Live page: "):
                break
        else:
            raise RuntimeError(f"bristle {' '.join(command)} ended with {started.wait()}")
        threading.Thread(target=started.stderr.read, daemon=True).start()
        yield line.split()[-1]
    finally:
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGINT)
        started.wait()


def _iteration(browser: Browser) -> int:
    found = re.search(r": (?:iteration )?([\d,]+)", str(browser.value("document.querySelector('#state').textContent")))
    return int(found[1].replace(",", "")) if found else 0


def _named(selector: str, name: str) -> str:
    return f"[...document.querySelectorAll('{selector}')].find(node => node.textContent.includes('{name}'))"


if __name__ == "__main__":
    main()
