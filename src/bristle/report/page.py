"""A report as one HTML file that needs nothing else: no script, no outside request, light and dark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files

from bristle.report.content import Finding, Panel, Report, Section, Source
from bristle.report.figure import legend_entries, panel_svg, sample_svg
from bristle.report.page_tables import claims_table, final_values, plain_table, verdict_class, verdict_span
from bristle.report.style import GRID, INK, MUTED, PAPER, Style, Styles
from bristle.report.svg import inline, variable
from bristle.report.words import plain, seen, tally

# What the page may load: nothing. Browsers hold it to that, whatever a label may contain.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
DARK_PAGE = {"--soft": "#1f252c", "--held": "#5fd6a0", "--not-held": "#ff9c85", "--link": "#5cadff"}


def page(report: Report, parts: Sequence[str], styles: Styles) -> str:
    """Return the whole page; `parts` are those that `section_part` makes of the report's sections."""
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{_text(report.title)}</title>",
            f"<style>\n{_style_sheet()}{_colours(styles)}\n</style>",
            "</head>",
            '<body id="top">',
            '<a class="skip" href="#main">Skip to the content</a>',
            f"<header>\n<h1>{_text(report.title)}</h1>\n{_paragraphs(report.summary)}\n</header>",
            _contents(report),
            '<main id="main">',
            _claims(report),
            *parts,
            _facts(report),
            "</main>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _text(value: str) -> str:
    return escape(plain(value))


def _paragraphs(text: str) -> str:
    parts = (" ".join(part.split()) for part in text.split("\n\n"))
    return "\n".join(f"<p>{_text(part)}</p>" for part in parts if part)


def _style_sheet() -> str:
    return files("bristle.report").joinpath("page.css").read_text(encoding="utf-8")


def _colours(styles: Styles) -> str:
    """Return the colours of figures and page as variables, for both schemes; print is light."""
    named = {"--paper": PAPER, "--ink": INK, "--muted": MUTED, "--grid": GRID}
    dark_of = styles.dark_of()
    light = named | {variable(colour): colour for colour in dark_of}
    dark = {name: dark_of[colour] for name, colour in named.items()} | DARK_PAGE
    dark |= {variable(colour): instead for colour, instead in dark_of.items()}

    def rule(variables: Mapping[str, str]) -> str:
        return ":root { " + " ".join(f"{name}: {colour};" for name, colour in variables.items()) + " }"

    return f"{rule(light)}\n@media screen and (prefers-color-scheme: dark) {{ {rule(dark)} }}"


def _contents(report: Report) -> str:
    items = ['<li><a href="#claims">Claims and findings</a></li>'] if _findings_of(report) else []
    for section in report.sections:
        count = tally([finding for finding in section.findings if finding.source is not Source.OBSERVATION])
        told = f" <span>({count})</span>" if count else ""
        items.append(f'<li><a href="#{_anchor(section)}">{_text(section.title)}</a>{told}</li>')
    items.append('<li><a href="#facts">How this was made</a></li>')
    listed = "\n".join(items)
    return f'<nav aria-labelledby="contents">\n<h2 id="contents">Contents</h2>\n<ol>\n{listed}\n</ol>\n</nav>'


def _anchor(section: Section) -> str:
    return f"section-{section.name}"


def _findings_of(report: Report) -> list[Finding]:
    return [finding for section in report.sections for finding in section.findings]


def _claims(report: Report) -> str:
    if not (findings := _findings_of(report)):
        return ""
    rows = [(finding, section.title, _anchor(section)) for section in report.sections for finding in section.findings]
    rows.sort(key=lambda row: list(Source).index(Source(row[0].source)))  # the paper's claims first
    return "\n".join(
        [
            '<section id="claims" aria-labelledby="claims-title">',
            '<h2 id="claims-title">Claims and findings</h2>',
            f"<p>{tally(findings)}.</p>",
            claims_table(rows),
            "</section>",
        ]
    )


def section_part(section: Section, styles: Styles) -> str:
    """Return a section of the page, with each panel as a picture of its own, so that they wrap on a small screen."""
    name = _anchor(section)
    parts = [
        f'<section id="{name}" aria-labelledby="{name}:title">',
        f'<h2 id="{name}:title">{_text(section.title)}</h2>',
        f'<div class="text">\n{_paragraphs(section.text)}\n</div>',
    ]
    if section.panels:
        parts += [_figure(section, styles), final_values(section.panels, styles, name=f"{name}:last")]
    parts += [plain_table(table, name=f"{name}:table-{place}") for place, table in enumerate(section.tables)]
    if section.findings:
        parts += ["<h3>Findings</h3>", '<ul class="findings">', *map(_finding, section.findings), "</ul>"]
    parts += ['<p class="up"><a href="#top">Back to the top</a></p>', "</section>"]
    return "\n".join(parts)


def _finding(finding: Finding) -> str:
    source = "" if finding.source is Source.OBSERVATION else f" ({_text(finding.source)})"
    told = f"{_text(finding.claim)}<br>Measured: <strong>{_text(finding.measured)}</strong>"
    return f'<li class="{verdict_class(finding)}">{verdict_span(finding)}{source}: {told}</li>'


def _figure(section: Section, styles: Styles) -> str:
    colours = styles.dark_of()
    entries = legend_entries(section.panels, styles)
    keys = [_key(label, style, colours, f"key-{section.name}-{place}") for place, (label, style) in enumerate(entries)]
    few = len(section.panels) in (1, 2, 4)  # two columns instead of three
    panels = [
        _panel(panel, styles, f"panel-{section.name}-{place}", width=4.0 if few else 3.0)
        for place, panel in enumerate(section.panels)
    ]
    return "\n".join(
        [
            f'<figure role="group" aria-label="{_text(section.title)}: {len(panels)} '
            f'{"panel" if len(panels) == 1 else "panels"}">',
            '<ul class="legend" aria-label="Legend">',
            *keys,
            "</ul>",
            f'<div class="panels{" few" if few else ""}">',
            *panels,
            "</div>",
            "</figure>",
        ]
    )


def _key(label: str, style: Style, colours: Mapping[str, str], prefix: str) -> str:
    hidden = {"aria-hidden": "true", "focusable": "false"}
    sample = inline(sample_svg(style), prefix=prefix, colours=colours, attributes=hidden)
    return f"<li>{sample}<span>{_text(label)}</span></li>"


def _panel(panel: Panel, styles: Styles, name: str, *, width: float) -> str:
    told = {"role": "img", "aria-label": seen(panel)}
    drawn = inline(
        panel_svg(panel, styles, salt=name, width=width), prefix=name, colours=styles.dark_of(), attributes=told
    )
    return f"<figure><figcaption>{_text(panel.title)}</figcaption>{drawn}</figure>"


def _facts(report: Report) -> str:
    facts = "\n".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in report.facts)
    return (
        '<section id="facts" aria-labelledby="facts-title">\n<h2 id="facts-title">How this was made</h2>\n'
        f'<dl class="facts">\n{facts}\n</dl>\n</section>'
    )
