"""The paper's claims and the project's own bars, each with the check of the measured rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from bristle.paper.measured import HEAD, WHOLE, MeasuredRows, bytes_per_iteration
from bristle.report.content import Finding, Source

T = TypeVar("T")
Outcome = Callable[[MeasuredRows], tuple[bool, str]]


class NotMeasuredError(Exception):
    """A run that a check needs is missing or incomplete."""


@dataclass(frozen=True, kw_only=True)
class ClaimResult(Finding):
    """A finding about a figure."""

    figure: str


@dataclass(frozen=True)
class Check:
    """A claim about a figure, and the check of the rows."""

    figure: str
    claim: str
    outcome: Outcome
    source: Source = Source.PAPER

    def __call__(self, measured: MeasuredRows) -> ClaimResult:
        """Return whether the claim held."""
        held: bool | None
        try:
            held, words = self.outcome(measured)
        except NotMeasuredError:
            held, words = None, "not measured in this run"
        return ClaimResult(figure=self.figure, claim=self.claim, held=held, measured=words, source=self.source)


def need(value: T | None) -> T:
    """Return a measured value, or raise NotMeasuredError."""
    if value is None:
        raise NotMeasuredError
    return value


def all_of(*parts: Outcome) -> Outcome:
    """Return a check that holds where all parts hold."""

    def check(measured: MeasuredRows) -> tuple[bool, str]:
        outcomes = [part(measured) for part in parts]
        return all(held for held, _ in outcomes), "; ".join(words for _, words in outcomes)

    return check


def percent(value: float) -> str:
    """Return 0.954 as 95.4 %."""
    return f"{100 * value:.1f} %"


IID, NON_IID = "byzantine-iid", "byzantine-non-iid"
ATTACKS = ("label-flip", "additive-noise", "krum", "trimmed-mean")
FIVE = tuple(f"{attack} 5+5" for attack in ATTACKS)
BASELINES = ("fedavg", "median", "krum", "bridge", "mozi")
RESILIENT = ("median", "krum", "bridge", "mozi")
MANY = ("9+1", "10+5", "10+10", "10+24")
BETA = 32  # the first measured number of peers beyond beta = 30


def _values(m: MeasuredRows, figure: str, panels: tuple[str, ...], rule: str) -> dict[str, float]:
    return {panel: need(m.final(figure, panel, rule)) for panel in panels}


def _said(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {percent(value)}" for name, value in values.items())


def _at_least(figure: str, panels: tuple[str, ...], level: float) -> Outcome:
    def check(m: MeasuredRows) -> tuple[bool, str]:
        values = _values(m, figure, panels, "bristle")
        return min(values.values()) >= level, _said(values)

    return check


def _below(figure: str, panel: str, rules: tuple[str, ...], level: float, *, above: bool = False) -> Outcome:
    """Return a check that all rules end below a level, or with `above` at least at it."""

    def check(m: MeasuredRows) -> tuple[bool, str]:
        values = {rule: need(m.final(figure, panel, rule)) for rule in rules}
        return all((value >= level) == above for value in values.values()), _said(values)

    return check


def _best(figure: str, panels: tuple[str, ...], rivals: tuple[str, ...] = BASELINES) -> Outcome:
    def check(m: MeasuredRows) -> tuple[bool, str]:
        ahead, words = True, []
        for panel in panels:
            ours = need(m.final(figure, panel))
            rule, best = max(((rule, need(m.final(figure, panel, rule))) for rule in rivals), key=lambda pair: pair[1])
            ahead = ahead and ours > best
            words.append(f"{panel}: Bristle {percent(ours)}, best baseline {rule} {percent(best)}")
        return ahead, "; ".join(words)

    return check


def _reach(figure: str, panel: str, rule: str, level: float, within: int) -> Outcome:
    def check(m: MeasuredRows) -> tuple[bool, str]:
        need(m.final(figure, panel, rule))
        when = m.reach(figure, panel, rule, level)
        words = f"reached {percent(level)} at iteration {when}" if when else f"never reached {percent(level)}"
        return when is not None and when <= within, f"{rule} {words} (evaluated every 10)"

    return check


def _fewer_iterations(level: float, fewer: float) -> Outcome:
    """Compare regular and transfer learning over the rules that were run in both."""

    def check(m: MeasuredRows) -> tuple[bool, str]:
        rules = [rule for rule in m.rules("regular-vs-transfer", "regular") if rule in BASELINES]
        need(rules or None)
        slow = [m.reach("regular-vs-transfer", "regular", rule, level) for rule in rules]
        fast = [m.reach("regular-vs-transfer", "transfer", rule, level) for rule in rules]
        after = [when for when in fast if when is not None]
        before = [when for when in slow if when is not None]
        need(after if len(after) == len(rules) else None)
        quick = sum(after) / len(after)
        if len(before) < len(rules):
            missing = f"{len(rules) - len(before)} of {len(rules)} rules never get there with regular learning"
            return True, f"{missing}; with transfer learning {quick:.0f} iterations on average"
        late = sum(before) / len(before)
        return (
            1 - quick / late >= fewer,
            f"{late:.0f} iterations against {quick:.0f}: {percent(1 - quick / late)} fewer",
        )

    return check


def _ratio(m: MeasuredRows) -> tuple[bool, str]:
    ours = need(m.mean(NON_IID, ATTACKS, "bristle"))
    rule, best = max(((rule, need(m.mean(NON_IID, ATTACKS, rule))) for rule in RESILIENT), key=lambda pair: pair[1])
    mozi = need(m.mean(NON_IID, ATTACKS, "mozi"))
    words = f"Bristle {percent(ours)} over the four attacks: {ours / best:.2f} times {rule}, the best of the resilient "
    return ours / best >= 2.3, f"{words}baselines, and {ours / mozi:.2f} times Mozi"


def _slower(m: MeasuredRows) -> tuple[bool, str]:
    when = {rule: m.reach("non-iid", "4 classes", rule, 0.9) for rule in ("bristle", "fedavg", "bridge", "median")}
    need(m.final("non-iid", "4 classes", "bridge")), need(m.final("non-iid", "4 classes", "median"))
    words = ", ".join(f"{rule} {f'at iteration {at}' if at else 'never'}" for rule, at in when.items())
    first = when["bristle"]
    slow = [when[rule] is None or (first is not None and (when[rule] or 0) > first) for rule in ("bridge", "median")]
    return first is not None and all(slow), f"90.0 % reached: {words}"


def _effective(figure: str, attacked: str, rule: str, drop: float, benign: tuple[str, str], *, more: bool) -> Outcome:
    def check(m: MeasuredRows) -> tuple[bool, str]:
        before, after = need(m.final(*benign, rule)), need(m.final(figure, attacked, rule))
        lost = before - after
        return (lost >= drop) == more, f"{rule} falls from {percent(before)} to {percent(after)}"

    return check


def _early_fedavg(m: MeasuredRows) -> tuple[bool, str]:
    points = [point for point in m.curve(NON_IID, "krum", "fedavg") if point.iteration <= 50]
    best = max(need(points or None), key=lambda point: point.mean)
    last = need(m.final(NON_IID, "krum", "fedavg"))
    words = f"{percent(best.mean)} at iteration {best.iteration}, {percent(last)} at the end"
    return best.mean >= 0.87 and last < 0.87, words


def _same_as_benign(m: MeasuredRows) -> tuple[bool, str]:
    before = need(m.final("non-iid", "4 classes", "mozi"))
    values = _values(m, NON_IID, ATTACKS, "mozi")
    return all(abs(value - before) <= 0.03 for value in values.values()), f"benign {percent(before)}; {_said(values)}"


def _on_par(m: MeasuredRows) -> tuple[bool, str]:
    words, near = [], True
    for attack in ("label-flip", "additive-noise", "trimmed-mean"):
        krum, mozi = need(m.final(NON_IID, attack, "krum")), need(m.final(NON_IID, attack, "mozi"))
        near = near and abs(krum - mozi) <= 0.1
        words.append(f"{attack}: Krum {percent(krum)}, Mozi {percent(mozi)}")
    return near, "; ".join(words)


def _grows(m: MeasuredRows) -> tuple[bool, str]:
    values = _values(m, "degree", ("2 classes", "4 classes", "6 classes"), "krum")
    two, four, six = values.values()
    return two < four < six, _said(values)


def _flat(m: MeasuredRows) -> tuple[bool, str]:
    times = m.milliseconds("bristle")
    near, far = need(times.get(BETA)), need(times.get(96))
    return far <= 1.5 * near, f"{near:.2f} ms with 32 peers, {far:.2f} ms with 96: {far / near:.2f} times as long"


def _slowest_first(m: MeasuredRows) -> tuple[bool, str]:
    times = {rule: need(m.milliseconds(rule).get(8)) for rule in ("bristle", *BASELINES)}
    words = ", ".join(f"{rule} {value:.2f}" for rule, value in sorted(times.items(), key=lambda pair: pair[1]))
    return max(times, key=lambda rule: times[rule]) == "bristle", f"milliseconds with 8 peers: {words}"


def _bytes(m: MeasuredRows) -> tuple[bool, str]:
    head, whole = bytes_per_iteration(HEAD, 14), bytes_per_iteration(WHOLE, 14)
    words = f"{head / 1e3:.0f} kB against {whole / 1e3:.0f} kB for 14 neighbours: {percent(1 - head / whole)} fewer"
    return 1 - head / whole >= 0.9, words


def _distance(m: MeasuredRows) -> tuple[bool, str]:
    near, far = need(m.distance("3 classes shared")), need(m.distance("1 classes shared"))
    attacked = need(m.distance("malicious", "trimmed-mean"))
    words = f"to benign heads {near:.2f} (3 classes shared) to {far:.2f} (1), to trimmed-mean heads {attacked:.2f}"
    return min(near, far) <= attacked <= max(near, far), words


BENIGN_IID, BENIGN_NON_IID = ("non-iid", "10 classes"), ("non-iid", "4 classes")

CLAIMS = (
    Check(IID, "Bristle converges to 95 % under 50 % attackers (abstract)", _at_least(IID, FIVE, 0.95)),
    Check(IID, "Bristle outperforms all baselines under attack, i.i.d. (abstract)", _best(IID, FIVE)),
    Check(NON_IID, "Bristle outperforms all baselines under attack, non-i.i.d. (section 5.5)", _best(NON_IID, ATTACKS)),
    Check(NON_IID, "2.3 times the accuracy of the most resilient baselines (abstract)", _ratio),
    Check("regular-vs-transfer", "83 % fewer iterations to 90 % with transfer learning", _fewer_iterations(0.9, 0.83)),
    Check("regular-vs-transfer", "93 % fewer iterations to 70 % with transfer learning", _fewer_iterations(0.7, 0.93)),
    Check("non-iid", "Bristle reaches 90 % in 55 iterations", _reach(*BENIGN_NON_IID, "bristle", 0.9, 60)),
    Check("non-iid", "FedAvg reaches 90 % in 65 iterations", _reach(*BENIGN_NON_IID, "fedavg", 0.9, 70)),
    Check("non-iid", "Krum and Mozi fail with 4 classes (below 80 %)", _below(*BENIGN_NON_IID, ("krum", "mozi"), 0.8)),
    Check("non-iid", "Bridge and Median converge more slowly than Bristle", _slower),
    Check(
        IID,
        "Label flipping breaks FedAvg (below 80 %) and no other rule (5+5)",
        all_of(
            _below(IID, "label-flip 5+5", ("fedavg",), 0.8),
            _below(IID, "label-flip 5+5", (*RESILIENT, "bristle"), 0.8, above=True),
        ),
    ),
    Check(
        IID,
        "Noise hurts FedAvg and Median (below 80 %, 5+5)",
        _below(IID, "additive-noise 5+5", ("fedavg", "median"), 0.8),
    ),
    Check(
        IID,
        "The Krum attack breaks Krum (20 points or more, 5+5)",
        _effective(IID, "krum 5+5", "krum", 0.2, BENIGN_IID, more=True),
    ),
    Check(
        IID,
        "The Krum attack hardly touches the others (less than 10 points, 5+5)",
        all_of(
            *(
                _effective(IID, "krum 5+5", rule, 0.1, BENIGN_IID, more=False)
                for rule in ("median", "bridge", "mozi", "bristle")
            )
        ),
    ),
    Check(
        IID,
        "The trimmed-mean attack is ineffective against resilient rules (less than 10 points, 5+5)",
        all_of(
            *(
                _effective(IID, "trimmed-mean 5+5", rule, 0.1, BENIGN_IID, more=False)
                for rule in (*RESILIENT, "bristle")
            )
        ),
    ),
    Check(
        NON_IID,
        "All baselines fare poorly under every attack (below 80 %)",
        all_of(*(_below(NON_IID, attack, BASELINES, 0.8) for attack in ATTACKS)),
    ),
    Check(NON_IID, "FedAvg gets to 87 % early in the Krum attack, and is lost later", _early_fedavg),
    Check(NON_IID, "Krum falls to the Krum attack (below 80 %)", _below(NON_IID, "krum", ("krum",), 0.8)),
    Check(NON_IID, "Krum is on par with Mozi under the other attacks (within 10 points)", _on_par),
    Check(NON_IID, "Mozi does as well as without attackers (within 3 points)", _same_as_benign),
    Check(
        NON_IID,
        "The trimmed-mean attack hits Median and Bridge (20 points or more)",
        all_of(
            *(
                _effective(NON_IID, "trimmed-mean", rule, 0.2, BENIGN_NON_IID, more=True)
                for rule in ("median", "bridge")
            )
        ),
    ),
    Check(
        "attackers",
        "One attacker in ten degrades all baselines (below 80 %)",
        _below("attackers", "9+1", BASELINES, 0.8),
    ),
    Check("attackers", "Bristle withstands any number of attackers (90 %)", _at_least("attackers", MANY, 0.9)),
    Check(
        "attackers",
        "With 70 % attackers only Bristle holds (baselines below 80 %)",
        all_of(_below("attackers", "10+24", BASELINES, 0.8), _at_least("attackers", ("10+24",), 0.9)),
    ),
    Check(
        "degree",
        "FedAvg and Bridge have no resilience at any degree (below 50 %)",
        all_of(*(_below("degree", f"{count} classes", ("fedavg", "bridge"), 0.5) for count in (2, 4, 6))),
    ),
    Check("degree", "Krum gains with the number of classes", _grows),
    Check("degree", "Bristle is best at every degree", _best("degree", ("2 classes", "4 classes", "6 classes"))),
    Check(
        "connection-ratio",
        "At 2 % no rule does well (below 80 %)",
        _below("connection-ratio", "2 %", (*BASELINES, "bristle"), 0.8),
    ),
    Check(
        "connection-ratio",
        "At 5 % Bristle and Krum do well (80 %), the others do not",
        all_of(
            _below("connection-ratio", "5 %", ("bristle", "krum"), 0.8, above=True),
            _below("connection-ratio", "5 %", ("fedavg", "median", "bridge", "mozi"), 0.8),
        ),
    ),
    Check("intro", "Bristle outperforms all baselines, 10+7", _best("intro", ("10+7",))),
    Check("speed", "Bristle is the slowest rule with few peers", _slowest_first),
    Check("speed", "More than beta = 30 peers cost Bristle next to nothing (at most half as much again)", _flat),
    Check("traffic", "90 % fewer bytes than sending the whole network", _bytes),
    Check("distances", "Trimmed-mean heads lie between benign ones: distance alone cannot tell", _distance),
)


@dataclass(frozen=True, kw_only=True)
class AccuracyTarget:
    """Accuracy that a panel must show, on average and for its worst peer (None: reported only)."""

    figure: str
    panel: str
    mean: float | None
    worst: float | None = None
    rule: str = "bristle"

    def check(self) -> Check:
        """Return the check."""
        level = "reported" if self.mean is None else f"at least {percent(self.mean)}"
        worst = "" if self.worst is None else f", worst peer at least {percent(self.worst)}"
        return Check(self.figure, f"{self.rule}, {self.panel}: {level}{worst}", self._outcome, Source.TARGET)

    def _outcome(self, m: MeasuredRows) -> tuple[bool, str]:
        mean = need(m.final(self.figure, self.panel, self.rule))
        worst = need(m.worst(self.figure, self.panel, self.rule))
        held = mean >= (self.mean or 0) and worst >= (self.worst or 0)
        return held, f"{percent(mean)}, worst peer {percent(worst)}"


TARGETS = (
    AccuracyTarget(figure="non-iid", panel="10 classes", mean=0.945),
    AccuracyTarget(figure="non-iid", panel="4 classes", mean=0.92, worst=0.90),
    *(
        AccuracyTarget(figure="byzantine-iid", panel=f"{name} 5+5", mean=0.90)
        for name in ATTACKS
        if name != "trimmed-mean"
    ),
    AccuracyTarget(figure="byzantine-iid", panel="trimmed-mean 5+5", mean=0.86),
    *(AccuracyTarget(figure="byzantine-non-iid", panel=name, mean=0.92, worst=0.90) for name in ATTACKS),
    AccuracyTarget(figure="along", panel="trimmed-mean-along", mean=0.87),
    *(AccuracyTarget(figure="attackers", panel=count, mean=0.92) for count in ("9+1", "10+10", "10+24")),
    AccuracyTarget(figure="degree", panel="2 classes", mean=0.85),
    AccuracyTarget(figure="degree", panel="6 classes", mean=0.93),
    AccuracyTarget(figure="connection-ratio", panel="5 %", mean=0.93),
    AccuracyTarget(figure="connection-ratio", panel="2 %", mean=None),
    AccuracyTarget(figure="sybil", panel="10+100", mean=0.90),
    *(AccuracyTarget(figure="samples", panel=name, mean=0.95) for name in ATTACKS),
    *(
        AccuracyTarget(figure="knowing", panel=f"foreign-trojan {size}, 4 classes", mean=0.92, rule="evidence")
        for size in ("10+1", "10+2", "10+3", "30+9")
    ),
    AccuracyTarget(figure="knowing", panel="alie 10+5, 4 classes", mean=0.91, rule="evidence"),
    AccuracyTarget(figure="along", panel="trimmed-mean-along", mean=0.90, rule="evidence"),
)


BARS = tuple(one.check() for one in TARGETS)
"""All claims and bars, as checks."""


def observations(measured: MeasuredRows, panels: list[tuple[str, str]]) -> list[ClaimResult]:
    """Return the worlds in which another rule ends above Bristle."""
    found = []
    for figure, panel in panels:
        ours = measured.final(figure, panel)
        if ours is None:
            continue
        for rule in measured.rules(figure, panel):
            theirs = measured.final(figure, panel, rule)
            if rule in ("oracle", "evidence") or rule.startswith("bristle") or theirs is None or theirs <= ours:
                continue
            words = f"{rule} {percent(theirs)}, Bristle {percent(ours)}: {100 * (theirs - ours):.1f} points"
            claim = f"{rule} ends above Bristle, {panel}"
            found.append(ClaimResult(figure=figure, claim=claim, held=True, measured=words, source=Source.OBSERVATION))
    return found
