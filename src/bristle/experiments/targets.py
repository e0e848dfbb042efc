"""The project's own bars for Bristle, with its default settings and 2 samples a class and peer unless said."""

from __future__ import annotations

from dataclasses import dataclass

from bristle.experiments.claims import ATTACKS
from bristle.experiments.finding import Check, Finding, need, percent
from bristle.experiments.measured import Measured


@dataclass(frozen=True, kw_only=True)
class Target:
    """Accuracy of Bristle that a panel must show, on average and for its worst peer (None: reported only)."""

    figure: str
    panel: str
    mean: float | None
    worst: float | None = None
    rule: str = "bristle"

    def check(self) -> Check:
        """Return the check."""
        level = "reported" if self.mean is None else f"at least {percent(self.mean)}"
        worst = "" if self.worst is None else f", worst peer at least {percent(self.worst)}"
        return Check(self.figure, f"{self.rule}, {self.panel}: {level}{worst}", self._outcome, "target")

    def _outcome(self, m: Measured) -> tuple[bool, str]:
        mean = need(m.final(self.figure, self.panel, self.rule))
        worst = need(m.worst(self.figure, self.panel, self.rule))
        held = mean >= (self.mean or 0) and worst >= (self.worst or 0)
        return held, f"{percent(mean)}, worst peer {percent(worst)}"


TARGETS = (
    Target(figure="non-iid", panel="10 classes", mean=0.945),
    Target(figure="non-iid", panel="4 classes", mean=0.92, worst=0.90),
    *(Target(figure="byzantine-iid", panel=f"{name} 5+5", mean=0.90) for name in ATTACKS if name != "trimmed-mean"),
    Target(figure="byzantine-iid", panel="trimmed-mean 5+5", mean=0.86),
    *(Target(figure="byzantine-non-iid", panel=name, mean=0.92, worst=0.90) for name in ATTACKS),
    Target(figure="along", panel="trimmed-mean-along", mean=0.87),
    *(Target(figure="attackers", panel=count, mean=0.92) for count in ("9+1", "10+10", "10+24")),
    Target(figure="degree", panel="2 classes", mean=0.85),
    Target(figure="degree", panel="6 classes", mean=0.93),
    Target(figure="connection-ratio", panel="5 %", mean=0.93),
    Target(figure="connection-ratio", panel="2 %", mean=None),
    Target(figure="sybil", panel="10+100", mean=0.90),
    *(Target(figure="samples", panel=name, mean=0.95) for name in ATTACKS),
    *(
        Target(figure="knowing", panel=f"foreign-trojan {size}, 4 classes", mean=0.92, rule="bristle-plus")
        for size in ("10+1", "10+2", "10+3", "30+9")
    ),
    Target(figure="knowing", panel="alie 10+5, 4 classes", mean=0.91, rule="bristle-plus"),
    Target(figure="along", panel="trimmed-mean-along", mean=0.90, rule="bristle-plus"),
)


@dataclass(frozen=True)
class NotBelow:
    """bristle-plus must not end more than half a point below bristle."""

    figure: str
    panel: str

    def check(self) -> Check:
        """Return the check."""
        claim = f"bristle-plus, {self.panel}: no more than 0.5 points below bristle"
        return Check(self.figure, claim, self._outcome, "target")

    def _outcome(self, m: Measured) -> tuple[bool, str]:
        plus, plain = (need(m.final(self.figure, self.panel, rule)) for rule in ("bristle-plus", "bristle"))
        return plus >= plain - 0.005, f"{percent(plus)} against {percent(plain)}"


NOT_BELOW = tuple(NotBelow(one.figure, one.panel) for one in TARGETS if one.rule == "bristle")

BARS = (*(one.check() for one in TARGETS), *(one.check() for one in NOT_BELOW))
"""All of them, as checks."""


def observations(measured: Measured, panels: list[tuple[str, str]]) -> list[Finding]:
    """Say where another rule ends above Bristle."""
    found = []
    for figure, panel in panels:
        ours = measured.final(figure, panel)
        if ours is None:
            continue
        for rule in measured.rules(figure, panel):
            theirs = measured.final(figure, panel, rule)
            if rule == "oracle" or rule.startswith("bristle") or theirs is None or theirs <= ours:
                continue
            words = f"{rule} {percent(theirs)}, Bristle {percent(ours)}: {100 * (theirs - ours):.1f} points"
            claim = f"{rule} ends above Bristle, {panel}"
            found.append(Finding(figure=figure, claim=claim, held=True, measured=words, source="observation"))
    return found
