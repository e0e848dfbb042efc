from __future__ import annotations

import pytest

from bristle.report import Finding, Line, Panel, Report, Section, Table

ITERATIONS = list(range(10, 310, 10))


def curve(label: str, end: float, *, kind: str = "rule", band: float = 0.0) -> Line:
    y = [end * iteration / (iteration + 20) for iteration in ITERATIONS]
    low, high = ([value - band for value in y], [value + band for value in y]) if band else (None, None)
    return Line(label=label, x=ITERATIONS, y=y, low=low, high=high, kind=kind)


@pytest.fixture(scope="session")
def report() -> Report:
    """Return a report with all that one can hold."""
    panels = tuple(
        Panel(
            title=f"{attack}, 10 + 5",
            lines=(
                curve("fedavg", 0.2, band=0.05),
                curve("bristle", 0.95, band=0.01),
                curve("my own rule", 0.6),
                curve("bristle", 0.9, kind="author"),
                curve("bridge", 0.3, kind="author"),
                curve("oracle", 0.97, kind="reference"),
                curve("local", 0.4, kind="reference"),
            ),
            xlabel="iteration",
            ylabel="accuracy",
            ylim=(0, 1),
        )
        for attack in ("label flip", "noise", "Krum")
    )
    time = Panel(
        title="Time",
        lines=(Line(label="bristle", x=[1, 10, 96], y=[2e-3, 8e-3, 0.4]), Line(label="krum", x=[1, 96], y=[1e-3, 0.1])),
        xlabel="connected peers",
        ylabel="seconds",
        log_x=True,
        log_y=True,
    )
    findings = (
        Finding(claim="At least .92.", held=True, measured="0.931", source="target"),
        Finding(claim="Reaches 95 %.", held=False, measured="0.931", source="paper"),
        Finding(claim="Works on phones.", held=None, measured="not run here", source="paper"),
    )
    table = Table(
        title="Traffic", columns=("What", "Bytes", "Share"), rows=(("head", 32_000, 0.3855), ("all", 83_000, 1.0))
    )
    sections = (
        Section(
            name="noniid", title="Non-i.i.d.", text="One.\n\nTwo.", panels=panels, tables=(table,), findings=findings
        ),
        Section(name="speed", title="Speed", text="", panels=(time,)),
        Section(name="words", title="Words only", text="Nothing to see."),
    )
    facts = (("Seeds", "0, 1, 2"), ("Bristle", "0.2.0"))
    return Report(title="All of it", summary="What was found.", sections=sections, facts=facts)
