"""The live page in a real browser: of a real network, and of a hundred peers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

from bristle import attacks, rules
from bristle.commands.dashboard import Feed, Server
from bristle.commands.dashboard.simulate import SimulationBoard
from bristle.report.snapshot import RunState
from bristle.simulation import FeatureData, Scenario, Watch, run
from tests.support.browser import ABSENT, Browser, chromium

pytestmark = [pytest.mark.slow, pytest.mark.skipif(chromium() is None, reason=ABSENT)]

LONGEST_TASK = 0.2
STATE = "document.querySelector('#state .words').textContent"
NAMES = "[...document.querySelectorAll('.matrix [role=rowheader]')].map(row => row.lastChild.textContent)"
DRAWN = "document.body.dataset.drawn !== undefined"
REASON = "document.querySelector('#reason').innerText"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as opened:
        yield opened


@pytest.fixture
def fresh(browser: Browser) -> Browser:
    browser.open("about:blank")
    browser.events.clear()
    browser.emulate(dark=False)
    return browser


def iteration(browser: Browser) -> int:
    found = re.search(r"iteration ([\d,]+)", str(browser.value(STATE)))
    return int(found[1].replace(",", "")) if found else 0


def stays_here(browser: Browser, url: str) -> bool:
    """Tell whether every request went to the page's own server, and every page came from there."""
    ours = urlsplit(url).netloc
    return {urlsplit(asked).netloc for asked in browser.requests() if not asked.startswith("data:")} == {ours}


def cell(row: str, column: int) -> str:
    rows = f"[...document.querySelectorAll('.matrix [data-kind]')].find(row => row.innerText.startsWith('{row}'))"
    return f"{rows}.querySelectorAll('[role=gridcell]')[{column}]"


def test_the_page_of_a_running_demo(fresh: Browser, tmp_path: Path) -> None:
    words = ["demo", "--peers", "4", "--attackers", "1", "--classes", "6", "--iterations", "100000", "--dashboard"]
    words += ["--rule", "bristle"]
    log = tmp_path / "log"
    with log.open("w") as told:
        running = subprocess.Popen(
            [sys.executable, "-c", "from bristle.cli import main; main()", *words, "--out", str(tmp_path / "out")],
            stderr=told, stdout=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    try:
        url = fresh.wait(lambda: re.search(r"Live page: (\S+)", log.read_text()), "the address")[1]
        fresh.open(url)
        fresh.wait(lambda: iteration(fresh) > 0, "the first iteration")
        fresh.wait_for(DRAWN)
        assert fresh.value(NAMES) == ["peer 0", "peer 1", "peer 2", "peer 3", "attacker 1"]
        assert fresh.value("document.querySelectorAll('.peers [data-member]').length") == 5
        # It goes on by itself: the same document, later.
        fresh.value("window.mark = 1")
        before = iteration(fresh)
        fresh.wait(lambda: iteration(fresh) > before + 1, "the next iterations")
        assert fresh.value("window.mark") == 1
        fresh.wait_for("document.querySelector('.chart .mean') !== null")
        # What an attacker gets, and why.
        fresh.wait_for(f"{cell('▲', 0)}.textContent === '0'")
        fresh.click(cell("▲", 3))
        fresh.wait_for("!document.querySelector('#reason').hidden")
        said = str(fresh.value(REASON))
        assert "All peers together about attacker 1, class 3" in said
        assert "rejected" in said
        # One peer alone, chosen from the table.
        fresh.click("document.querySelectorAll('.peers [data-member] button')[0]")
        fresh.wait_for("document.querySelector('#detail-title').textContent === 'peer 0'")
        detail = str(fresh.value("document.querySelector('#detail').innerText"))
        assert "Classes held" in detail
        assert re.search(r"\d kB in|\d MB in", detail)
        assert "Refused" in detail
        assert "attacker 1" in detail
        fresh.wait_for(f"{REASON}.includes('peer 0 about attacker 1, class 3')")
        assert fresh.complaints() == []
        assert stays_here(fresh, url)
        # An open page keeps nobody: Ctrl-C, as a terminal sends it, and the page says so.
        os.killpg(running.pid, 2)
        running.wait(timeout=120)
        fresh.wait_for(f"{STATE}.startsWith('Interrupted')")
        fresh.click(cell("●", 1))
        fresh.wait_for(f"{REASON}.includes('peer 0, its own head, class 1')")
    finally:
        if running.poll() is None:
            os.killpg(running.pid, 9)
            running.wait()
    assert running.returncode == 130


def hundred() -> tuple[Scenario, FeatureData]:
    rng = np.random.default_rng(0)
    centres, labels = rng.normal(size=(10, 16)) * 2, np.repeat(np.arange(10), 600)
    features = (centres[labels] + rng.normal(size=(6000, 16))).astype(np.float32)
    scenario = Scenario(
        peers=100,
        attackers=5,
        attack=attacks.create("label-flip"),
        rule=rules.create("bristle"),
        iterations=100_000,
    )
    return scenario, FeatureData(features, labels, features[::9], labels[::9], tuple(map(str, range(10))))


@pytest.fixture(scope="module")
def large_run() -> Iterator[str]:
    """Run a world of 105 beside the test, and yield the address of its page."""
    scenario, data = hundred()
    feed, stopped = Feed(), threading.Event()
    server = Server(feed, ("127.0.0.1", 0))
    server.start()
    board = SimulationBoard(scenario, data, feed)

    def work() -> None:
        def iterated(done: int) -> None:
            board.iterated(done)
            time.sleep(0.05)  # A browser wants to run too.

        watch = Watch(
            row=board.row, decisions=board.decided, weigh=board.wants_weights, measurement=board.measured,
            iteration=iterated, stop=stopped.is_set,
        )  # fmt: skip
        try:
            run(scenario, data, every=5, watch=watch)
        except KeyboardInterrupt:
            board.show(RunState.INTERRUPTED)

    thread = threading.Thread(target=work)
    thread.start()
    yield server.url
    stopped.set()
    thread.join()
    server.stop()


def test_a_hundred_peers_keep_the_page_quick(fresh: Browser, large_run: str) -> None:
    fresh.begin_trace()
    fresh.open(large_run)
    fresh.wait(lambda: len(fresh.value(NAMES) or []) == 105, "all members")
    fresh.wait(lambda: iteration(fresh) > 0, "the first iteration")
    before = iteration(fresh)
    fresh.wait(lambda: iteration(fresh) > before, "the next iteration")
    fresh.click("document.querySelectorAll('.peers [data-member] button')[7]")
    fresh.wait_for("document.querySelector('#receiver').value === '7'")
    fresh.wait(lambda: fresh.value("document.querySelector('.matrix .own') !== null"), "the own row")
    tasks = fresh.end_trace()
    assert len(tasks) > 20, "the trace holds what the page did"
    assert tasks[0] < LONGEST_TASK, f"the longest tasks took {tasks[:5]} s"
    assert fresh.complaints() == []
    assert stays_here(fresh, large_run)


def test_keys_and_colours(fresh: Browser, large_run: str) -> None:
    fresh.open(large_run)
    fresh.wait(lambda: iteration(fresh) > 0, "the first iteration")
    fresh.wait_for(DRAWN)
    focused = "document.activeElement.dataset"
    fresh.value("document.querySelector('.matrix [tabindex=\"0\"]').focus()")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        fresh.press(key)
    assert fresh.value(f"[{focused}.row, {focused}.column]") == ["2", "1"]
    assert fresh.value("document.querySelectorAll('.matrix [tabindex=\"0\"]').length") == 1
    fresh.press("Enter")
    fresh.wait_for("!document.querySelector('#reason').hidden")
    fresh.wait_for("document.querySelector('#announce').textContent.includes('about attacker 3, class 1')")
    fresh.press("End")
    assert fresh.value(f"{focused}.column") == "10"
    fresh.press("ArrowUp")
    assert fresh.value(f"{focused}.row") == "1"
    fresh.press("Escape")
    fresh.wait_for("document.querySelector('#reason').hidden")
    # Focus stays where it is while the run goes on.
    before = iteration(fresh)
    fresh.wait(lambda: iteration(fresh) > before, "the next iteration")
    assert fresh.value(f"[{focused}.row, {focused}.column]") == ["1", "10"]
    light = fresh.value("getComputedStyle(document.body).backgroundColor")
    fresh.emulate(dark=True)
    dark = fresh.value("getComputedStyle(document.body).backgroundColor")
    assert light != dark
    fresh.click("document.querySelector('#theme')")
    assert fresh.value("getComputedStyle(document.body).backgroundColor") == light
    signs = "new Set([...document.querySelectorAll('.matrix .sign')].map(sign => sign.textContent)).size"
    assert fresh.value(signs) == 2, "peers and attackers differ in more than their colour"
