"""Where the time of a small call goes: one receiver, nine models of 8,000 numbers, the long way and the short one.

    python benchmarks/small_calls.py [--quick]

`make bench` puts the table into docs/benchmarks-rules.md. The long way is that of every call before there was a short
one, and still of calls with a mask, a batch, samples or anything else to sort out.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bristle import rules
from bristle.rules import Rule
from bristle.rules.call import Call
from bristle.rules.checks import measure_models
from bristle.rules.short_call import NOTHING, short_call
from timing import take_turns

CHOSEN = (
    rules.FedAvg(),
    rules.Median(),
    rules.Krum(f=4),
    rules.GeometricMedian(nu=0.1, iterations=3),
    rules.CenteredClipping(tau=40.0, iterations=10),
    rules.NearestNeighbourAveraging(f=4),
)


def parts_of(rule: Rule, own: Any, received: Any) -> dict[str, Callable[[], object]]:
    """Return the parts of a call, each to be timed alone."""
    flat, models = own.reshape(1, -1), received.reshape(1, len(received), -1)

    def short() -> Any:
        found = short_call(own, received, rule.measures)
        assert found is not None
        return found

    return {
        "measuring": lambda: measure_models(np, models, flat, rule.measures),
        "checked, short": short,
        "long": lambda: rule._answer(Call.check(own, received, measure=rule.measures)),
        "short": lambda: rule(own, received),
        "checked and computed": lambda: rule._verdict(short().inbox, NOTHING),
    }


def small_calls(say: Callable[[str], str], seconds: float) -> Iterator[str]:
    """Write the table."""
    yield say("## Where the time of a small call goes (10 models of 8,000 parameters, NumPy)\n")
    yield say(
        "| rule | measuring models | mathematics | all else, long way | all else, short way | long call | short call |"
    )
    yield say("|---|---|---|---|---|---|---|")
    vectors = np.random.default_rng(10).standard_normal((10, 10, 800)).astype(np.float32)
    for rule in CHOSEN:
        times = take_turns(parts_of(rule, vectors[0], vectors[1:]), seconds=seconds)
        mathematics = times["checked and computed"] - times["checked, short"]
        work = times["measuring"] + mathematics
        ways = times["long"], times["short"]
        shown = [times["measuring"], mathematics, *(way - work for way in ways), *ways]
        yield say(f"| {type(rule).__name__} | " + " | ".join(f"{1000 * max(0.0, each):.0f}" for each in shown) + " |")
    yield say(
        "\nMicroseconds, medians of calls in turn. Measuring finds models that are unfit for use, by what the rule "
        "needs anyway; all else is checking arguments, making an inbox, and putting the answer into the shape of "
        "the call. All calls went the long way before there was a short one.\n"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few turns only")

    def say(line: str) -> str:
        print(line, flush=True)
        return line

    list(small_calls(say, 0.05 if parser.parse_args().quick else 0.5))


if __name__ == "__main__":
    main()
