"""Figures with matplotlib, as files and as small SVG for the page. The same lines give the same bytes."""

from __future__ import annotations

import io
import math
import re
import textwrap
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

from bristle._core.extras import to_install
from bristle.report.content import Line, LineKind, Panel, Section
from bristle.report.style import DOTTED, GRID, INK, MUTED, PAPER, Style, Styles, rule_of
from bristle.report.words import one_line, position, seen

XLINK_HREF = "{http://www.w3.org/1999/xlink}href"
LONG_NUMBER = re.compile(r"-?\d*\.\d{3,}")
REFERENCE = re.compile(r"#([\w-]+)\)")
COLOUR = re.compile(r"#[0-9a-f]{6}\b")


def variable(colour: str) -> str:
    """Return the CSS variable of a colour of the light scheme."""
    return f"--on-{colour.removeprefix('#')}"


def inline(svg: bytes, *, prefix: str, colours: Mapping[str, str], attributes: Mapping[str, str]) -> str:
    """Return an SVG file as an element of a page.

    Parameters
    ----------
    svg : bytes
        As matplotlib wrote it.
    prefix : str
        What identifiers begin with: those of all pictures in a page must differ.
    colours : Mapping[str, str]
        Colours that change with the scheme; they become CSS variables.
    attributes : Mapping[str, str]
        Of the element, such as its role and label.

    """
    root = ElementTree.fromstring(svg)
    used = {match for element in root.iter() for value in element.attrib.values() for match in REFERENCE.findall(value)}
    used |= {element.attrib[XLINK_HREF].removeprefix("#") for element in root.iter() if XLINK_HREF in element.attrib}
    short = {name: f"{prefix}-{place}" for place, name in enumerate(sorted(used))}
    _drop(root)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        _rewrite(element, short, colours)
    kept = {"viewBox": root.attrib["viewBox"]} | dict(attributes)
    root.attrib.clear()
    root.attrib.update(kept)
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=True)


def _drop(parent: ElementTree.Element) -> None:
    """Remove metadata, style sheets of the file's own, and line breaks between elements."""
    for child in list(parent):
        if child.tag.endswith("}metadata"):
            parent.remove(child)
            continue
        if child.tag.endswith("}defs"):
            for style in [inner for inner in child if inner.tag.endswith("}style")]:
                child.remove(style)
        _drop(child)
    if parent.text is not None and not parent.text.strip():
        parent.text = None
    for child in parent:
        child.tail = None


def _rewrite(element: ElementTree.Element, short: Mapping[str, str], colours: Mapping[str, str]) -> None:
    link, name = element.attrib.pop(XLINK_HREF, None), element.attrib.pop("id", None)
    for key, value in element.attrib.items():
        linked = REFERENCE.sub(lambda match: f"#{short[match[1]]})", value)
        rewritten = _style(linked, colours) if key == "style" else LONG_NUMBER.sub(_shorter, linked)
        element.set(key, " ".join(rewritten.split()))
    if link is not None:
        element.set("href", f"#{short[link.removeprefix('#')]}")
    if name is not None and name in short:
        element.set("id", short[name])


def _style(value: str, colours: Mapping[str, str]) -> str:
    coloured = COLOUR.sub(lambda match: f"var({variable(match[0])})" if match[0] in colours else match[0], value)
    return re.sub(r"'DejaVu Sans'[^;]*", "sans-serif", coloured).replace(": ", ":").replace("; ", ";")


def _shorter(match: re.Match[str]) -> str:
    return f"{float(match[0]):.2f}".rstrip("0").rstrip(".")


try:
    import matplotlib
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FuncFormatter, NullFormatter
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(f"figures need matplotlib: {to_install('plots')}") from missing


COLUMN, PAGE = 3.4, 7.1  # inches: the widths of one column and of a page in a two-column paper
LONGEST_LABEL = 34
THIN = ("x", "+")  # markers that are all edge
ELSEWHERE = b"'DejaVu Sans', Verdana, Arial, sans-serif"  # for readers of an SVG who lack the first; none is wider
SETTINGS: Any = {  # matplotlib's own type for this names every setting there is
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # It comes with matplotlib, so that every machine measures text alike.
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.7,
    "axes.labelcolor": INK,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "text.parse_math": False,  # A rule may be called anything, "$x" too.
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "legend.handlelength": 2.6,
    "legend.columnspacing": 1.4,
    "svg.fonttype": "none",
    "path.simplify": True,
    "figure.constrained_layout.h_pad": 0.05,
    "figure.constrained_layout.w_pad": 0.05,
}


@contextmanager
def _settings(salt: str) -> Iterator[None]:
    with matplotlib.rc_context(), warnings.catch_warnings():
        # A label in a script that the font lacks is drawn as boxes in the PNG; the SVG and the page hold it as text.
        warnings.filterwarnings("ignore", message=r"(?s)Glyph .* missing from font", category=UserWarning)
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(SETTINGS | {"svg.hashsalt": salt})
        yield


def section_files(section: Section, styles: Styles) -> tuple[bytes, bytes]:
    """Return the figure of a section's panels as PNG and as SVG."""
    panels = section.panels
    columns = {1: 1, 2: 2, 4: 2}.get(len(panels), 3)
    rows = math.ceil(len(panels) / columns)
    width = COLUMN if columns == 1 else PAGE
    entries = legend_entries(panels, styles)
    legend_columns = _legend_columns([label for label, _ in entries], width)
    legend_height = 0.19 * math.ceil(len(entries) / legend_columns) + 0.1
    letters = int((width / columns - 0.45) / 0.084)  # that fit above a panel
    titles = [textwrap.wrap(one_line(panel.title, longest=120), letters) for panel in panels]
    title_lines = sum(max(map(len, titles[at : at + columns])) for at in range(0, len(titles), columns))
    with _settings(section.name):
        height = rows * (width / columns * 0.62 + 0.4) + 0.15 * title_lines + legend_height
        figure = Figure(figsize=(width, height), layout="constrained", facecolor=PAPER)
        grid = figure.subplots(rows, columns, squeeze=False)
        alike = len({(panel.ylabel, panel.ylim, panel.log_y) for panel in panels}) == 1
        same_x = len({panel.xlabel for panel in panels}) == 1
        for place, axes in enumerate(grid.flat):
            if place >= len(panels):
                axes.remove()
                continue
            _draw(axes, panels[place], styles)
            axes.set_title("\n".join(titles[place]), loc="left", fontweight="bold")
            if alike and place % columns:
                axes.set_ylabel("")
            if same_x and place + columns < len(panels):
                axes.set_xlabel("")
        # Placeholders first: matplotlib leaves labels out that begin with an underscore.
        legend = figure.legend(
            [_handle(style) for _, style in entries],
            ["-"] * len(entries),
            loc="outside lower center",
            ncols=legend_columns,
        )
        for text, (label, _) in zip(legend.get_texts(), entries, strict=True):
            text.set_text(label)
        _lay_out(figure)
        png, svg = io.BytesIO(), io.BytesIO()
        figure.savefig(png, format="png", dpi=200, metadata={"Software": None})
        about = {
            "Title": one_line(section.title),
            "Description": " ".join(f"{one_line(panel.title)}: {seen(panel)}" for panel in panels),
        }
        figure.savefig(svg, format="svg", metadata=about | {"Date": None, "Creator": "bristle"})
    return png.getvalue(), svg.getvalue().replace(b"'DejaVu Sans'", ELSEWHERE)


def panel_svg(panel: Panel, styles: Styles, *, salt: str, width: float) -> bytes:
    """Return one panel as SVG of a width in inches, without title, legend and background, which the page has."""
    with _settings(salt):
        figure = Figure(figsize=(width, 0.68 * width), layout="constrained")
        _draw(figure.add_subplot(), panel, styles)
        _lay_out(figure)
        return _bare_svg(figure)


@cache
def sample_svg(style: Style) -> bytes:
    """Return a sample of a line for the legend."""
    with _settings("legend"):
        figure = Figure(figsize=(0.42, 0.16))
        line = _handle(style)
        line.set_data([0.05, 0.5, 0.95], [0.5, 0.5, 0.5])
        line.set_markevery([1])
        figure.add_artist(line)
        return _bare_svg(figure)


def legend_entries(panels: tuple[Panel, ...], styles: Styles) -> list[tuple[str, Style]]:
    """Return the entries of a shared legend: rules in a fixed order, the author's runs as one, references last."""
    lines = [line for panel in panels for line in panel.lines]
    own = {rule_of(line) for line in lines if line.kind is LineKind.RULE}
    entries: dict[str, Style] = {}
    for line in sorted(lines, key=lambda line: (styles[line].rank, line.label)):
        label = one_line(line.label, longest=LONGEST_LABEL)
        if line.kind is not LineKind.AUTHOR:
            entries[label] = styles[line]
        elif rule_of(line) not in own:
            entries[f"{rule_of(line)} (author's run)"] = styles[line]
    if any(line.kind is LineKind.AUTHOR and rule_of(line) in own for line in lines):
        entries["author's run"] = Style(colour=INK, dark=INK, dash=DOTTED, width=1.1)
    return list(entries.items())


def _draw(axes: Axes, panel: Panel, styles: Styles) -> None:
    axes.set_xlabel(one_line(panel.xlabel, longest=48))
    axes.set_ylabel(one_line(panel.ylabel, longest=36))
    for line in panel.lines:
        _draw_line(axes, line, styles[line])
    if panel.log_x:
        axes.set_xscale("log")
    if panel.log_y:
        axes.set_yscale("log")
    for axis, log in ((axes.xaxis, panel.log_x), (axes.yaxis, panel.log_y)):
        if log:
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_formatter(NullFormatter())
        elif max(abs(end) for end in axis.get_view_interval()) >= 10_000:
            axis.set_major_formatter(FuncFormatter(lambda value, _: position(value)))
    if panel.ylim is not None:
        low, high = panel.ylim
        room = 0 if panel.log_y else 0.02 * (high - low)  # so that a line along the edge is seen whole
        axes.set_ylim(low - room, high + room)
    axes.margins(x=0.02)


def _draw_line(axes: Axes, line: Line, style: Style) -> None:
    front = 3 + 1 / (1 + style.rank)
    if line.low is not None and line.high is not None:
        axes.fill_between(line.x, line.low, line.high, color=style.colour, alpha=0.16, linewidth=0, zorder=front - 1)
    drawn = axes.add_line(_handle(style))
    drawn.set_data(line.x, line.y)
    drawn.set_zorder(front)
    # A marker on every point of a long line hides the line; rules begin at different points, so as not to coincide.
    step = max(1, math.ceil(len(line.x) / 7))
    drawn.set_markevery((style.rank % step, step))
    axes.update_datalim([(x, y) for x, y in zip(line.x, line.y, strict=True) if not math.isnan(y)])
    axes.autoscale_view()


def _handle(style: Style) -> Line2D:
    return Line2D(
        [],
        [],
        color=style.colour,
        linewidth=style.width,
        linestyle=(0, style.dash) if style.dash else "-",
        solid_capstyle="round",
        marker=style.marker or None,
        markersize=(3.4 + style.width) * (1.7 if style.marker == "*" else 1),  # a star's body is small for its size
        markerfacecolor=PAPER if style.hollow else style.colour,
        markeredgecolor=style.colour if style.hollow or style.marker in THIN else PAPER,
        markeredgewidth=0.35 + style.width / 2 if style.hollow or style.marker in THIN else 0.5,
    )


def _legend_columns(labels: list[str], width: float) -> int:
    """Return the number of columns that fit, by the width of letters and samples of lines."""
    for columns in range(len(labels), 1, -1):
        rows, longer = divmod(len(labels), columns)  # The first columns have one label more than the others.
        starts = [at * rows + min(at, longer) for at in range(columns + 1)]
        widest = [max(map(len, labels[start:stop])) for start, stop in pairwise(starts)]
        if sum(0.066 * letters + 0.6 for letters in widest) <= width:
            return columns
    return 1


def _lay_out(figure: Figure) -> None:
    """Lay out all labels once, since saving each file would repeat it."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine("none")


def _bare_svg(figure: Figure) -> bytes:
    svg = io.BytesIO()
    figure.savefig(svg, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return svg.getvalue()
