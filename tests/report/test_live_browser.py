"""Runs after the fact, in a real browser: from a file, with names as strangers may choose them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bristle.report.live_page import recorded_page
from bristle.report.snapshot import Judgement, Member, MemberKind, RunState, Snapshot
from bristle.rules.decision import Reason
from tests.support.browser import ABSENT, Browser, chromium

pytestmark = [pytest.mark.slow, pytest.mark.skipif(chromium() is None, reason=ABSENT)]

WEIGHTS = np.array([[0.25, 0.5]])
EVIL = "<img src=x onerror='window.hurt=1'>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as opened:
        yield opened


def a_run(title: str) -> Snapshot:
    return Snapshot(
        title=title, subtitle=EVIL, rule=EVIL, state=RunState.ENDED, iteration=20, total=20, classes=(EVIL, "b"),
        members=(
            Member(name=EVIL, kind=MemberKind.OWN, holds=(0,), accuracy=0.5, bytes_in=1, refused={EVIL: 3}),
            Member(name="</script>", kind=MemberKind.UNKNOWN),
        ),
        judgements=(
            Judgement(receiver=0, iteration=20, senders=[1], reasons=[int(Reason.KEPT)], weights=WEIGHTS),
        ),
        history=[(10, 0.4, None, None), (20, 0.5, None, None)], band=EVIL, references={EVIL: [(10, 0.2), (20, 0.3)]},
    )  # fmt: skip


def test_a_file_shows_the_same_views_and_lets_nothing_through(browser: Browser, tmp_path: Path) -> None:
    accuracy_only = Snapshot(
        title="only rows", subtitle="", rule="krum", state=RunState.ENDED, iteration=10, total=10, classes=(),
        members=(), history=[(10, 0.5, 0.25, None)], oracle=0.75,
    )  # fmt: skip
    file = tmp_path / "run.html"
    file.write_text(recorded_page([a_run("first"), accuracy_only], title=EVIL), encoding="utf-8")
    browser.open(file.as_uri())
    browser.wait_for("document.body.dataset.drawn !== undefined")
    assert browser.value("document.querySelector('h1').textContent") == "first"
    assert browser.value("document.querySelector('.matrix [role=rowheader]').lastChild.textContent") == EVIL
    cells = "[...document.querySelectorAll('.matrix .cell')].map(cell => cell.textContent)"
    assert browser.value(cells) == ["75", "50", "25", "50"], "what others were not given is the own head's"
    browser.click("document.querySelectorAll('.matrix .cell')[3]")
    browser.wait_for("document.querySelector('#reason').innerText.includes('at most 50.0% (class b)')")
    assert "3 × " in str(browser.value("document.querySelector('#detail').innerText"))
    # The next run in the same file has no decisions; the page says so.
    browser.value(
        "(() => { const runs = document.querySelector('#run'); runs.value = '1';"
        " runs.dispatchEvent(new Event('change')); })()"
    )
    browser.wait_for("document.querySelector('h1').textContent === 'only rows'")
    browser.wait_for("document.querySelector('#alone').textContent.includes('hold no decisions')")
    assert "oracle 75.0%" in str(browser.value("document.querySelector('.chart svg').getAttribute('aria-label')"))
    assert browser.value("window.hurt") is None
    assert browser.value("document.querySelectorAll('main img').length") == 0
    assert browser.complaints() == []
    assert [asked for asked in browser.requests() if not asked.startswith(("file:", "data:"))] == []
