"""What is written: pages that anyone can read, whatever the labels, and the same bytes each time."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
import pytest

from bristle._core.extras import to_install
from bristle.report import Finding, Line, Panel, Report, Section, Table, write

HOSTILE = '</style></title><script src="https://evil.example/x.js"></script>&<img src=x onerror=alert(1)>$\\frac{'
VOID = {"meta", "link", "img", "br", "hr", "input", "base"}


class Page(HTMLParser):
    """The elements of a page, and the text in them."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.texts: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs), list(self.open)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs), list(self.open)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((self.open[-1] if self.open else "", data.strip()))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes, _ in self.elements if name == tag]

    def words(self) -> str:
        return " ".join(text for tag, text in self.texts if tag != "style")


def page_of(report: Report, folder: Path) -> Page:
    write(report, folder)
    return Page((folder / "report.html").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def page(report: Report, tmp_path_factory: pytest.TempPathFactory) -> Page:
    return page_of(report, tmp_path_factory.mktemp("page"))


def assert_loads_nothing(page: Page) -> None:
    assert not [tag for tag, _, _ in page.elements if tag in {"script", "link", "img", "iframe", "object", "base"}]
    for tag, attributes, _ in page.elements:
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            if name in ("href", "src", "xlink:href", "action"):
                assert value is not None
                assert value.startswith("#")
            if name == "style":
                assert "url(" not in (value or "").replace("url(#", "")
    styles = " ".join(text for tag, text in page.texts if tag == "style")
    assert "@import" not in styles
    assert "url(" not in styles


def test_files_and_their_kinds(report: Report, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    paths = write(report, tmp_path / "new" / "out", progress=lambda done, total: told.append((done, total)))
    assert [path.name for path in paths] == ["report.html", "noniid.png", "noniid.svg", "speed.png", "speed.svg"]
    assert sorted(path.name for path in (tmp_path / "new" / "out").iterdir()) == sorted(path.name for path in paths)
    assert told == [(1, 3), (2, 3), (3, 3)]
    png = paths[1].read_bytes()
    assert png.startswith(b"\x89PNG")
    assert struct.unpack(">I", png[16:20])[0] == 1420
    drawn = ElementTree.parse(paths[2])
    words = " ".join("".join(drawn.getroot().itertext()).split())
    for label in ("label flip, 10 + 5", "bristle", "my own rule", "oracle", "author's run", "iteration"):
        assert label in words


def test_same_report_same_bytes(report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = {path.name: path.read_bytes() for path in write(report, tmp_path / "a")}
    monkeypatch.setitem(matplotlib.rcParams, "lines.linewidth", 9.0)  # a reader's own settings change nothing
    monkeypatch.setitem(matplotlib.rcParams, "font.size", 30.0)
    second = {path.name: path.read_bytes() for path in write(report, tmp_path / "b")}
    assert first == second
    assert matplotlib.rcParams["font.size"] == 30.0
    assert matplotlib.rcParams["text.parse_math"]


def test_several_processes_draw_the_same(report: Report, tmp_path: Path) -> None:
    for processes in (1, 2):
        write(report, tmp_path / str(processes), processes=processes)
    alone, together = ({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in "12")
    assert alone == together


def test_page_needs_nothing_else(page: Page) -> None:
    assert_loads_nothing(page)
    policies = [meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    assert policies
    assert "default-src 'none'" in (policies[0] or "")


def test_links_and_identifiers_fit(page: Page) -> None:
    ids = [attributes["id"] for _, attributes, _ in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    wanted = [(attributes.get("href") or "")[1:] for _, attributes, _ in page.elements if "href" in attributes]
    wanted += [
        value or ""
        for _, attributes, _ in page.elements
        for key, value in attributes.items()
        if key == "aria-labelledby"
    ]
    for _, attributes, _ in page.elements:
        for value in attributes.values():
            wanted += re.findall(r"url\(#([^)]+)\)", value or "")
    assert wanted
    assert set(wanted) <= set(ids)


def test_every_picture_is_told_in_words(page: Page) -> None:
    pictures = page.all("svg")
    shown = [picture for picture in pictures if picture.get("aria-hidden") != "true"]
    assert len(shown) == 4
    assert len(pictures) > len(shown)  # the legend's, which stand beside their words
    for picture in shown:
        assert picture["role"] == "img"
    label = shown[0]["aria-label"] or ""
    assert "accuracy against iteration from 10 to 300" in label
    assert "At 300: reference oracle 0.909; bristle 0.891 (0.881 to 0.901); the author's bristle 0.844;" in label
    assert label.index("my own rule") < label.index("fedavg")
    assert "At the end of each line" not in label
    assert "bristle 0.400; krum 0.100" in (shown[3]["aria-label"] or "")


def test_structure_for_keyboard_and_screen_reader(page: Page) -> None:
    levels = [int(tag[1]) for tag, _, _ in page.elements if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert [attributes.get("lang") for attributes in page.all("html")] == ["en"]
    assert len(page.all("main")) == len(page.all("nav")) == 1
    assert len(page.all("caption")) == len(page.all("table")) == 4
    assert all(head.get("scope") in ("col", "row") for head in page.all("th"))
    regions = [attributes for attributes in page.all("div") if attributes.get("class") == "scroll"]
    assert len(regions) == 4
    assert all(region["tabindex"] == "0" and region["aria-labelledby"] for region in regions)


def test_verdicts_and_best_in_words(page: Page) -> None:
    words = page.words()
    assert "1 held, 1 not held, 1 not measured." in words
    for sign, verdict, claim in (
        ("✓", "held", "At least .92."),
        ("✗", "not held", "Reaches"),
        ("?", "not measured", "Works"),
    ):
        assert f"{sign} {verdict}" in words
        assert claim in words
    at = [words.index(claim) for claim in ("Reaches 95 %.", "Works on phones.", "At least .92.")]
    assert at == sorted(at)  # the paper's claims first
    assert words.count("0.891 best") == 3
    assert " best" not in words.replace("0.891 best", "")  # seconds are not ranked unless said
    assert "author 0.844" in words
    assert "83,000 1.000" in words


def test_hostile_labels_are_text(tmp_path: Path) -> None:
    line = Line(label=HOSTILE, x=[1, 2], y=[0.1, 0.2])
    odd = [
        Line(label=label, x=[1, 2], y=[0.3, 0.4]) for label in ("_hidden", "\x00\ud800nul", "分散学習", "a\n\nb", "")
    ]
    section = Section(
        name="x",
        title=HOSTILE,
        text=HOSTILE,
        panels=(Panel(title=HOSTILE, lines=(line, *odd), xlabel=HOSTILE, ylabel=HOSTILE),),
        tables=(Table(title=HOSTILE, columns=(HOSTILE,), rows=((HOSTILE,),), caption=HOSTILE),),
        findings=(Finding(claim=HOSTILE, held=True, measured=HOSTILE, source="paper"),),
    )
    page = page_of(Report(title=HOSTILE, summary=HOSTILE, sections=(section,), facts=((HOSTILE, HOSTILE),)), tmp_path)
    assert_loads_nothing(page)
    assert page.words().count('<script src="https://evil.example/x.js">') >= 8
    drawn = ElementTree.parse(tmp_path / "x.svg")
    assert "_hidden" in "".join(drawn.getroot().itertext())
    assert not [element for element in drawn.iter() if element.tag.endswith("script")]


def test_a_panel_stays_small(tmp_path: Path) -> None:
    """Nine lines of a hundred points with bands: fourteen figures of four such panels stay below 6 MB."""
    x = list(range(100))

    def line(number: int) -> Line:
        y = [0.5 + 0.05 * number + 0.01 * ((7 * at * (number + 3)) % 11 - 5) for at in x]
        return Line(label=f"rule {number}", x=x, y=y, low=[v - 0.02 for v in y], high=[v + 0.02 for v in y])

    panel = Panel(title="", lines=tuple(map(line, range(9))), xlabel="iteration", ylabel="accuracy")
    section = Section(name="x", title="", text="", panels=(panel,))
    write(Report(title="", summary="", sections=(section,), facts=()), tmp_path)
    assert (tmp_path / "report.html").stat().st_size < 6e6 / (14 * 4)


def test_nothing_is_written_when_drawing_fails(report: Report, tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(report, tmp_path / "out", progress=stop)
    assert not (tmp_path / "out").exists()


def test_without_matplotlib_one_clear_error(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from bristle.report import Report, write\n"
        "try: write(Report(title='', summary='', sections=(), facts=()), sys.argv[1])\n"
        "except ModuleNotFoundError as error: print(error)\n"
    )
    done: Any = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "out")], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == f"figures need matplotlib: {to_install('plots')}"
    assert not (tmp_path / "out").exists()
