import subprocess
import sys

import numpy as np
import pytest

import bristle
from bristle import attacks
from bristle.attacks import Attack, LabelFlip, Sybil

NAMES = [
    *("none", "label-flip", "additive-noise", "sign-flip", "non-finite", "stale", "sybil", "foreign-trojan"),
    *("krum", "krum-along", "trimmed-mean", "trimmed-mean-along", "inner-product", "alie"),
    *("min-max", "min-sum", "mimic", "dissensus", "free-ride"),
    *("excused-trojan", "late-trojan", "row-copy", "outnumber", "claim-liar", "inflate"),
    *("home-bias", "edge", "common-shift", "familiar-volume", "slow-drift", "near-copies", "backdoor"),
    *("statement-edge", "bridge", "partisans", "false-counts", "poisoned-scatter", "permuted-labels", "laid-on"),
    "pincer",
    *("foreign-only", "sole-owner", "garbage", "adaptive"),
    *("optimal-alie", "optimal-inner-product"),
]


def test_every_promised_name_is_there() -> None:
    assert sorted(attacks.names()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_attack_is_made_by_name_and_explains_itself(name: str) -> None:
    attack = attacks.create(name)
    assert isinstance(attack, Attack)
    assert attack == attacks.create(name)
    doc = type(attack).__doc__
    assert doc is not None
    assert "=" in doc.splitlines()[0] or "~" in doc.splitlines()[0]
    assert "knows" in doc.lower()
    assert "O(" in doc or "Costs" in doc


def test_a_slip_of_the_pen_gets_a_hint() -> None:
    with pytest.raises(ValueError, match="did you mean 'label-flip'"):
        attacks.create("label-flop")
    with pytest.raises(ValueError, match="there are: none, label-flip"):
        attacks.create("zzz")
    with pytest.raises(ValueError, match="has no option 'f'; it takes classes"):
        attacks.create("label-flip", f=3)
    with pytest.raises(ValueError, match="it takes none"):
        attacks.create("none", f=3)


def test_options_are_stored_unchanged() -> None:
    flip = attacks.create("label-flip", classes=26)
    assert isinstance(flip, LabelFlip)
    assert flip.classes == 26


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("label-flip", "classes", 1),
        ("additive-noise", "scale", 0),
        ("krum", "f", -1),
        ("krum", "epsilon", 2),
        ("krum", "threshold", 0),
        ("trimmed-mean", "b", 1),
        ("inner-product", "epsilon", float("nan")),
        ("alie", "z", float("inf")),
        ("min-max", "perturbation", "size"),
        ("mimic", "target", -1),
        ("dissensus", "epsilon", 0),
        ("free-ride", "noise", -1),
        ("stale", "last", 0),
        ("sybil", "jitter", -1),
        ("sybil", "inner", 3),
        ("home-bias", "size", 0),
        ("home-bias", "home", (-1,)),
        ("edge", "cosine", 2),
        ("edge", "turn", "left"),
        ("common-shift", "size", -1),
        ("familiar-volume", "factor", 0),
        ("slow-drift", "size", 0),
        ("near-copies", "noise", 2),
        ("backdoor", "source", -1),
        ("backdoor", "target", 3),
        ("statement-edge", "size", "much"),
        ("statement-edge", "noise", -1),
        ("statement-edge", "towards", "up"),
        ("statement-edge", "about", "nothing"),
        ("statement-edge", "count", 0),
        ("statement-edge", "everybody", -1),
        ("bridge", "bridges", 0.5),
        ("bridge", "between", "us"),
        ("bridge", "bridge_claims", -1),
        ("partisans", "past", float("nan")),
        ("false-counts", "low", -1),
        ("poisoned-scatter", "times", 0),
        ("poisoned-scatter", "along", "me"),
        ("permuted-labels", "order", "none"),
        ("laid-on", "part", float("inf")),
        ("laid-on", "against", None),
        ("foreign-only", "lie", "true"),
        ("garbage", "kind", "nice"),
    ],
)
def test_options_are_checked(name: str, option: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{option} must be"):
        attacks.create(name, **{option: value})


def test_sybil_takes_the_name_of_its_inner_attack() -> None:
    sybil = attacks.create("sybil", inner="krum")
    assert isinstance(sybil, Sybil)
    assert sybil.inner == attacks.create("krum")
    with pytest.raises(ValueError, match="did you mean"):
        attacks.create("sybil", inner="krumm")


def test_the_public_call() -> None:
    attack = bristle.attacks.create("label-flip")
    assert attack.knows == "nothing"
    assert attack.labels(np.array([0, 9, -1])).tolist() == [1, 0, -1]


def test_importing_attacks_loads_nothing_heavy() -> None:
    heavy = ("torch", "scipy", "pydantic", "typer", "rich", "onnxruntime")
    code = f"import sys, bristle.attacks; print([name for name in {heavy} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
