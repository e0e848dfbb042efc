"""The report of a reproduction: sections, panels, tables and findings from rows and declarations."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np

from bristle.paper import Figure, MeasuredRows, WorldPanel
from bristle.paper.claims import BARS, CLAIMS, ClaimResult, observations
from bristle.paper.declaration import ORACLE, TUNED
from bristle.paper.measured import CAVEAT, HEAD, NEIGHBOURS, WHOLE, author_curve, author_timing, bytes_per_iteration
from bristle.paper.plan import Wanted
from bristle.paper.reproduce import QUICK, Reproduction
from bristle.report.content import Line, Panel, Report, Section, Table
from bristle.rules.bristle import Integrator

REFERENCES = ("local", ORACLE)
AUTHORS_LINES = ("bristle",)
"""Rules whose curves by the author are drawn; tables have the final values of all."""


def findings_of(made: Reproduction) -> list[ClaimResult]:
    """Return all claims and bars about the wanted figures, and the worlds in which another rule ends above Bristle."""
    wanted = made.wanted
    measured = MeasuredRows(made.rows, wanted.size.iterations)
    names = {figure.name for figure in wanted.figures}
    checks = [*CLAIMS, *BARS]
    if wanted.size == QUICK:
        measured = MeasuredRows((), 0)  # A quick run shows that things work; it bears out nothing.
    found = [check(measured) for check in checks if check.figure in names]
    panels = [(figure.name, panel.name) for figure in wanted.figures for panel in wanted.panels(figure)]
    return found + observations(measured, panels)


def report_of(made: Reproduction, *, seconds: float | None = None) -> Report:
    """Return the report of a reproduction."""
    wanted, found = made.wanted, findings_of(made)
    measured = MeasuredRows(made.rows, wanted.size.iterations)
    sections = [_section(figure, wanted, measured, found) for figure in wanted.figures]
    return Report(
        title="Bristle: the paper's figures, reproduced",
        summary=_summary(wanted, found),
        sections=tuple(section for section in sections if section is not None),
        facts=_facts(made, seconds),
    )


def _summary(wanted: Wanted, found: Sequence[ClaimResult]) -> str:
    def count(source: str) -> str:
        ours = [finding for finding in found if finding.source == source]
        held, missed = (sum(finding.held is value for finding in ours) for value in (True, False))
        unknown = len(ours) - held - missed
        return f"{held} held and {missed} did not" + (f", {unknown} were not measured here" if unknown else "")

    above = sum(finding.source == "observation" for finding in found)
    size = wanted.size
    quick = "This is a quick run, too short to judge anything by. " if size == QUICK else ""
    tests = "the whole MNIST test set" if size.test_samples is None else f"{size.test_samples} MNIST test images"
    return (
        f"{quick}Lines are means over {wanted.seeds} seed{'s' if wanted.seeds > 1 else ''}, bands run from the lowest "
        f"to the highest; accuracy is that of benign peers on {tests}. Of the paper's claims {count('paper')}; of the "
        f"project's own bars {count('target')}. In {above} cases another rule ends above Bristle.\n\n"
        f"{TUNED.label} is FedAvg with {TUNED.note} (learning rate {TUNED.training.learning_rate:g}, L2 "
        f"{TUNED.training.l2:g}). The oracle is one head trained on what all benign peers hold; local peers never "
        f"integrate. {CAVEAT}"
    )


def _facts(made: Reproduction, seconds: float | None) -> tuple[tuple[str, str], ...]:
    wanted = made.wanted
    facts = [(name, value) for name, value in made.versions.items()]
    facts += [
        ("python", platform.python_version()),
        ("seeds", ", ".join(str(seed) for seed in range(wanted.seeds))),
        ("iterations", str(wanted.size.iterations)),
        ("machine", f"{platform.system()} {platform.machine()}"),
        ("date", datetime.now(UTC).strftime("%Y-%m-%d")),
    ]
    if seconds is not None:
        facts.append(("time of this run", f"{seconds:.0f} s"))
    return tuple(facts)


def _section(figure: Figure, wanted: Wanted, measured: MeasuredRows, found: Sequence[ClaimResult]) -> Section | None:
    panels, tables = _CONTENT[figure.measures](figure, wanted, measured)
    if not panels and not any(table.rows for table in tables):
        return None
    caveats = [f"{panel.title}: {panel.caveat}" for panel in wanted.panels(figure) if panel.caveat]
    return Section(
        name=figure.name,
        title=figure.heading,
        text="\n\n".join([figure.text, *([" ".join(caveats)] if caveats else [])]),
        panels=tuple(panels),
        tables=tuple(tables),
        findings=tuple(one for one in found if one.figure == figure.name),
    )


Content = tuple[list[Panel], list[Table]]


def _worlds(figure: Figure, wanted: Wanted, measured: MeasuredRows) -> Content:
    if figure.tabled:
        return [], [_matches(figure, wanted, measured)]
    panels, table = [], []
    for declared in wanted.panels(figure):
        lines = _lines(figure, declared, measured)
        if lines:
            panels.append(
                Panel(title=declared.title, lines=tuple(lines), xlabel="Iteration", ylabel="Accuracy", ylim=(0, 1))
            )
        table += _ends(figure, declared, measured)
    columns = ("panel", "rule", "accuracy, %", "lowest seed", "highest seed", "worst peer", "author, %")
    caption = f"After {measured.last} iterations. {CAVEAT}"
    return panels, [Table(title="Where the lines end", columns=columns, rows=tuple(table), caption=caption)]


def _matches(figure: Figure, wanted: Wanted, measured: MeasuredRows) -> Table:
    """Return a table with a row per world and a column per rule."""
    labels = [contender.label for contender in wanted.contenders(figure)] + [ORACLE]
    rows: list[tuple[str | float, ...]] = []
    for panel in wanted.panels(figure):
        ends = [measured.final(figure.name, panel.name, label) for label in labels]
        if any(end is not None for end in ends):
            rows.append((panel.title, *("" if end is None else round(100 * end, 1) for end in ends)))
    caption = f"Accuracy in %, after {measured.last} iterations, mean over seeds."
    return Table(title="Where the lines end", columns=("world", *labels), rows=tuple(rows), caption=caption)


def _lines(figure: Figure, declared: WorldPanel, measured: MeasuredRows) -> list[Line]:
    lines = []
    for rule in measured.rules(figure.name, declared.name):
        points = measured.curve(figure.name, declared.name, rule)
        if rule == ORACLE:  # It has no course of its own: a level line.
            points = points[-1:] * 2
        first = 0 if rule == ORACLE else points[0].iteration
        lines.append(
            Line(
                label=rule,
                x=[first, *(point.iteration for point in points[1:])],
                y=[point.mean for point in points],
                low=[point.low for point in points],
                high=[point.high for point in points],
                kind="reference" if rule in REFERENCES else "rule",
            )
        )
    for rule in AUTHORS_LINES:
        curve = author_curve(declared, rule)
        if curve is not None and lines:
            pairs = zip(curve.iterations, curve.accuracy, strict=True)
            shown = [pair for pair in pairs if pair[0] % 10 == 0 and pair[0] <= measured.last]
            lines.append(Line(label=rule, x=[at for at, _ in shown], y=[value for _, value in shown], kind="author"))
    return lines


def _ends(figure: Figure, declared: WorldPanel, measured: MeasuredRows) -> list[tuple[str | float, ...]]:
    rows = []
    for rule in measured.rules(figure.name, declared.name):
        last = measured.curve(figure.name, declared.name, rule)[-1]
        author = author_curve(declared, rule)
        values = [round(100 * value, 1) for value in (last.mean, last.low, last.high, last.worst)]
        rows.append((declared.title, rule, *values, "" if author is None else round(100 * author.accuracy[-1], 1)))
    return rows


def _speed(figure: Figure, wanted: Wanted, measured: MeasuredRows) -> Content:
    lines = []
    for contender in wanted.contenders(figure):
        times = measured.milliseconds(contender.label)
        if times:
            kind = "reference" if contender.label in REFERENCES else "rule"
            lines.append(Line(label=contender.label, x=list(times), y=list(times.values()), kind=kind))
    if not lines:
        return [], []
    theirs = [
        Line(label=rule, x=[peers for peers, _ in pairs], y=[value for _, value in pairs], kind="author")
        for rule, pairs in author_timing().items()
    ]
    panels = [
        Panel(
            title=title,
            lines=tuple(drawn),
            xlabel="Connected peers",
            ylabel="Milliseconds per iteration",
            log_x=True,
            log_y=True,
            better="lower",
        )
        for title, drawn in (("Ours", lines), ("The author's, on his machine", theirs))
    ]
    return panels, []


def _traffic(figure: Figure, wanted: Wanted, measured: MeasuredRows) -> Content:
    lines = tuple(
        Line(label=label, x=NEIGHBOURS, y=[bytes_per_iteration(shape, count) / 1e3 for count in NEIGHBOURS])
        for label, shape in (("head", HEAD), ("whole network", WHOLE))
    )
    rows = tuple((count, bytes_per_iteration(HEAD, count), bytes_per_iteration(WHOLE, count)) for count in NEIGHBOURS)
    table = Table(title="Bytes per iteration and peer", columns=("neighbours", "head", "whole network"), rows=rows)
    panel = Panel(
        title="Bytes sent",
        lines=lines,
        xlabel="Neighbours",
        ylabel="Kilobytes per iteration and peer",
        better="lower",
    )
    return [panel], [table]


def _distances(figure: Figure, wanted: Wanted, measured: MeasuredRows) -> Content:
    shared = (3, 2, 1, 0)
    benign = [measured.distance(f"{count} classes shared") for count in shared]
    known = [value for value in benign if value is not None]
    if len(known) < len(shared):
        return [], []
    attacks = dict.fromkeys(row["attack"] for row in measured.rows if row.get("model") == "malicious")
    malicious = {attack: measured.distance("malicious", attack) or 0.0 for attack in attacks}
    lines = [Line(label="benign", x=shared, y=known)]
    lines += [Line(label=attack, x=(0, 3), y=(value, value)) for attack, value in malicious.items()]
    rows = [
        (f"benign, {count} of 4 classes shared", round(value, 3)) for count, value in zip(shared, known, strict=True)
    ]
    rows += [(f"malicious, {attack}", round(value, 3)) for attack, value in malicious.items()]
    table = Table(title="Mean distance", columns=("to", "distance"), rows=tuple(rows))
    panel = Panel(
        title="From a peer's head",
        lines=tuple(lines),
        xlabel="Classes shared",
        ylabel="Euclidean distance",
        log_y=True,
    )
    return [panel], [table]


def _curves(figure: Figure, wanted: Wanted, measured: MeasuredRows) -> Content:
    alpha = np.linspace(0, 1, 51)
    shares = (("low", (1 - alpha) ** 2), ("medium", 2 * alpha * (1 - alpha)), ("high", alpha**2))
    lines = tuple(Line(label=f"{name} distance", x=alpha.tolist(), y=values.tolist()) for name, values in shares)
    first, second = Integrator().familiar
    score = np.linspace(-500, 500, 101)
    weight = np.maximum(0, first / (1 + np.exp(-score / 100)) - second)
    sigmoid = Line(label="weight at certainty 1", x=score.tolist(), y=weight.tolist())
    return [
        Panel(title="Share of each tier", lines=lines, xlabel="alpha", ylabel="Share of beta"),
        Panel(title="Weight of a row", lines=(sigmoid,), xlabel="Score s", ylabel="Weight against 1 for the own row"),
    ], []


_CONTENT = {"worlds": _worlds, "speed": _speed, "traffic": _traffic, "distances": _distances, "curves": _curves}


def said(found: Sequence[ClaimResult]) -> list[str]:
    """Return findings as lines for a terminal, those that did not hold last, so that they stay visible."""
    judged = sorted((one for one in found if one.held is not None), key=lambda one: not one.held)
    lines = [
        f"{'held' if one.held else 'NOT HELD':>8}  {one.source:6}  {one.figure}: {one.claim}: {one.measured}"
        for one in judged
        if one.source != "observation"
    ]
    above = [
        f"{'noted':>8}  {one.figure}: {one.claim}: {one.measured}" for one in judged if one.source == "observation"
    ]
    left = sum(one.held is None for one in found)
    return [*lines, *above, *([f"{left} claims were not measured in this run"] if left else [])]
