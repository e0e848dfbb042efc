from __future__ import annotations

import pytest

from bristle import rules


def test_names_of_the_field_are_there() -> None:
    assert set(rules.names()) >= {
        "local", "fedavg", "median", "trimmed-mean", "krum", "multi-krum", "bulyan", "mozi", "geometric-median",
        "centered-clipping", "self-centered-clipping", "nearest-neighbour-averaging", "mean-around-median", "balance",
        "fltrust", "bristle",
    }  # fmt: skip
    assert set(rules.steps()) == {"nearest-neighbour-mixing", "bucketing", "clipping"}


def test_options_are_handed_on_unchanged() -> None:
    assert rules.create("krum", f=7) == rules.Krum(f=7)
    assert rules.create_step("bucketing", s=3) == rules.Bucketing(s=3)
    assert repr(rules.create("bristle", beta=9)).startswith("Bristle(alpha=0.4, beta=9")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("krumm", {}, "there is no rule 'krumm'; did you mean 'krum'?"),
        ("zzz", {}, "there is no rule 'zzz'; there are: local, fedavg"),
        ("krum", {"g": 4}, "rule 'krum' has no option 'g'; it takes f, with_own"),
        ("median", {"f": 4}, "rule 'median' has no option 'f'; it takes none"),
        ("krum", {"f": -1}, "f must be a whole number of at least 0, not -1"),
        ("krum", {"f": 2.5}, "f must be a whole number"),
        ("krum", {"f": True}, "f must be a whole number"),
        ("mozi", {"rho": 2}, "rho must be a number between 0 and 1, not 2"),
        ("balance", {"gamma": 0}, "gamma must be a number above 0 and up to 1e+15, not 0"),
        ("centered-clipping", {"tau": -1}, "tau must be a number above 0"),
        ("geometric-median", {"iterations": 0}, "iterations must be a whole number of at least 1"),
        ("multi-krum", {"m": 0}, "m must be a whole number of at least 1"),
    ],
)
def test_mistakes_are_named(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared below, literally
        rules.create(name, **options)
    assert message in str(caught.value)


def test_every_rule_says_what_it_does() -> None:
    made = [(name, rules.create(name)) for name in rules.names()]
    steps = [(name, rules.create_step(name, **({"f": 1} if name == "clipping" else {}))) for name in rules.steps()]
    for name, value in [*made, *steps]:
        kind = type(value)
        assert kind.__doc__
        assert "O(" in kind.__doc__ or name == "local", f"{name} does not state its cost"
