"""What a check of rows is: a claim in words, and a function that says whether it held and by which numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

from bristle.experiments.measured import Measured

T = TypeVar("T")
Outcome = Callable[[Measured], tuple[bool, str]]
Source = Literal["paper", "target", "observation"]


class NotMeasuredError(Exception):
    """Something that a check needs was not run, or not to the end."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A claim, whether it held (None: not measured), and the numbers that say so."""

    figure: str
    claim: str
    held: bool | None
    measured: str
    source: Source


@dataclass(frozen=True)
class Check:
    """A claim about a figure, and how rows are asked for it."""

    figure: str
    claim: str
    outcome: Outcome
    source: Source = "paper"

    def __call__(self, measured: Measured) -> Finding:
        """Say whether it held."""
        held: bool | None
        try:
            held, words = self.outcome(measured)
        except NotMeasuredError:
            held, words = None, "not measured in this run"
        return Finding(figure=self.figure, claim=self.claim, held=held, measured=words, source=self.source)


def need(value: T | None) -> T:
    """Insist on something that must have been measured."""
    if value is None:
        raise NotMeasuredError
    return value


def all_of(*parts: Outcome) -> Outcome:
    """Hold where all parts hold."""

    def check(measured: Measured) -> tuple[bool, str]:
        outcomes = [part(measured) for part in parts]
        return all(held for held, _ in outcomes), "; ".join(words for _, words in outcomes)

    return check


def percent(value: float) -> str:
    """Return 0.954 as 95.4 %."""
    return f"{100 * value:.1f} %"
