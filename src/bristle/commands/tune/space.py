"""Search space of `bristle tune`: each parameter's range in a world, and configurations with given values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from bristle._core.registry import did_you_mean
from bristle.rules import Rule
from bristle.rules.steps import Chain
from bristle.simulation.build import make_rule
from bristle.simulation.config import SimulationConfig, read

OF_THE_RULE = ("alpha", "beta", "phi", "kappa", "eta", "familiar", "foreign")
LEARNING_RATE = "learning_rate"
KNOWN = (*OF_THE_RULE, LEARNING_RATE)
MOST_SHARE = 0.6  # of ω₁ for ω₂; above, hardly any model gets weight
DIGITS = 3  # significant digits of trial values


@dataclass(frozen=True, kw_only=True)
class Range:
    """One number to search: its bounds, its scale and its present value."""

    name: str
    low: float
    high: float
    now: float
    whole: bool = False
    log: bool = False

    def widened(self) -> Range:
        """Return a range that includes the present value, so that the search can start there."""
        low, high = min(self.low, self.now), max(self.high, self.now)
        return Range(name=self.name, low=low, high=high, now=self.now, whole=self.whole, log=self.log)


def chosen_parameters(wanted: Iterable[str], config: SimulationConfig) -> tuple[str, ...]:
    """Return the parameters to search; by default the rule's, and the learning rate if the file has it."""
    rule = _rule_of(config)
    having = [name for name in OF_THE_RULE if name in {field.name for field in fields(rule)}]
    names = [name.strip() for name in wanted]
    if not names:
        names = having + ([LEARNING_RATE] if LEARNING_RATE in config.training.model_fields_set else [])
        if not having:
            raise ValueError(
                f"rule {config.rule.name!r} has none of {', '.join(OF_THE_RULE)}; tune bristle, "
                f"or name other parameters, e.g. --parameters {LEARNING_RATE}"
            )
    for name in names:
        if name == "omega":
            raise ValueError("--parameters omega: there are two pairs of omega, familiar and foreign; name one or both")
        if name not in KNOWN:
            raise ValueError(f"--parameters {name}: there is no such parameter; {did_you_mean(name, KNOWN)}")
        if name not in having and name != LEARNING_RATE:
            raise ValueError(f"--parameters {name}: rule {config.rule.name!r} has no such parameter")
    return tuple(dict.fromkeys(names))


def ranges(parameters: Iterable[str], config: SimulationConfig, *, classes: int) -> tuple[Range, ...]:
    """Return the numbers to search for some parameters, with ranges that make sense in this world.

    β goes up to all heads that a peer can receive, κ up to the held-out samples of a class, φ up to one less than the
    classes that a peer can test. Of a pair, ω₁ is drawn, and ω₂ as a fraction of it: above half of it, models that are
    as good as the own one get no weight.
    """
    found = [one for name in parameters for one in _ranges_of(name, config, classes)]
    return tuple(one.widened() for one in found)


def with_values(config: SimulationConfig, values: Mapping[str, float]) -> SimulationConfig:
    """Return the configuration with these values, by the names of ranges."""
    content = config.model_dump(exclude_unset=True)
    for name, value in values.items():
        parameter, _, part = name.partition(".")
        if parameter == LEARNING_RATE:
            content.setdefault("training", {})[LEARNING_RATE] = _rounded(value)
        elif part == "w1":
            pair = [_rounded(value), _rounded(value * values[f"{parameter}.share"])]
            content.setdefault("rule", {})[parameter] = pair
        elif not part:
            content.setdefault("rule", {})[parameter] = _rounded(value)
    return read(content)


def spelled_out(config: SimulationConfig, parameters: Iterable[str]) -> SimulationConfig:
    """Return the configuration with explicit values for some parameters, defaults included."""
    content = config.model_dump(exclude_unset=True)
    for name, value in values_of(config, parameters).items():
        content.setdefault("training" if name == LEARNING_RATE else "rule", {})[name] = value
    return read(content)


def values_of(config: SimulationConfig, parameters: Iterable[str]) -> dict[str, Any]:
    """Return the values that some parameters have in a configuration, defaults included."""
    rule = vars(_rule_of(config))
    values = {name: config.training.learning_rate if name == LEARNING_RATE else rule[name] for name in parameters}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _ranges_of(name: str, config: SimulationConfig, classes: int) -> list[Range]:
    world, partition = config.world, config.partition
    if name == LEARNING_RATE:
        return [Range(name=name, low=1e-4, high=1e-1, now=config.training.learning_rate, log=True)]
    value = vars(_rule_of(config))[name]
    if name in ("familiar", "foreign"):
        return _pair(name, value)
    own = partition.classes_per_peer if partition.name == "consecutive" else classes
    heard = max(1, world.peers + world.attackers - 1)
    among = {
        "alpha": Range(name=name, low=0.0, high=1.0, now=value),
        "beta": Range(name=name, low=1, high=heard, now=min(value, heard), whole=True, log=True),
        "phi": Range(name=name, low=1, high=max(1, own - 1), now=value, whole=True),
        "kappa": Range(name=name, low=1, high=max(1, partition.held_out), now=value, whole=True),
        "eta": Range(name=name, low=1.0, high=100.0, now=value, log=True),
    }
    return [among[name]]


def _pair(name: str, value: tuple[float, float]) -> list[Range]:
    first, second = value
    if not first:
        raise ValueError(f"{name} = {list(value)} gives every model weight 0: start the search with e.g. [10, 4]")
    return [
        Range(name=f"{name}.w1", low=1.0, high=100.0, now=first, log=True),
        Range(name=f"{name}.share", low=0.0, high=MOST_SHARE, now=second / first),
    ]


def _rule_of(config: SimulationConfig) -> Rule:
    """Return the rule that has the parameters; of a chain, the rule after the steps."""
    rule = make_rule(config.rule)
    return rule.rule if isinstance(rule, Chain) else rule


def _rounded(value: float) -> float:
    return value if isinstance(value, int) else float(f"{value:.{DIGITS}g}")
