"""The settings with which every attack is tried where tables say what a rule holds against: a fixed, published grid."""

from __future__ import annotations

from typing import Any

Options = dict[str, Any]

GRIDS: dict[str, list[Options]] = {
    "none": [{}],
    "label-flip": [{}],
    "additive-noise": [{}, {"scale": 10.0}],
    "krum": [{}],
    "krum-along": [{}],
    "trimmed-mean": [{}],
    "trimmed-mean-along": [{}],
    "sign-flip": [{}],
    "inner-product": [{"epsilon": value} for value in (0.1, 1.0, 10.0)],
    "alie": [{}, *({"z": value} for value in (0.5, 1.0, 2.0))],
    "optimal-inner-product": [{}],
    "optimal-alie": [{}],
    "min-max": [{"perturbation": kind} for kind in ("std", "sign", "unit")],
    "min-sum": [{"perturbation": kind} for kind in ("std", "sign", "unit")],
    "mimic": [{"target": place} for place in (0, 4, 8)],
    "dissensus": [{"epsilon": value} for value in (0.5, 1.5, 4.0)],
    "free-ride": [{}],
    "stale": [{}],
    "sybil": [{"inner": name} for name in ("label-flip", "alie", "foreign-trojan", "home-bias")],
    "non-finite": [{}],
    "foreign-trojan": [{}],
    "excused-trojan": [{}, {"together": False}],
    "late-trojan": [{}],
    "row-copy": [{}],
    "outnumber": [{"target": label} for label in (0, 4, 8)],
    "claim-liar": [{}],
    "inflate": [{"factor": value} for value in (3.0, 30.0)],
    "home-bias": [*({"size": value} for value in (0.3, 1.0, 3.0, 10.0)), {"home": (0, 1, 2, 3, 4)}],
    "edge": [{"cosine": k, "turn": turn} for k in (0.76, 0.9) for turn in ("away", "next", "common")],
    "common-shift": [{"size": value} for value in (0.2, 2.0)],
    "familiar-volume": [{"factor": value} for value in (1.2, 10.0)],
    "slow-drift": [{"size": value} for value in (0.3, 1.0)],
    "near-copies": [{}, {"noise": 0.1}],
    "backdoor": [{}, {"source": 4, "target": 6}],
    "statement-edge": [
        *({"size": z, "noise": e} for z in (1.0, 2.0, 3.0, 4.0, 6.0, 10.0) for e in (0.0, 0.5, 1.0)),
        *({"size": -z, "noise": e} for z in (1.0, 2.0, 4.0, 8.0, 16.0) for e in (0.0, 1.0)),
        *({"size": z, "towards": to} for z in (2.0, 4.0, 8.0, 16.0) for to in ("foreign", "own", "farthest")),
        *({"size": z, "towards": "home"} for z in (-8.0, -4.0, -2.0, 2.0, 4.0, 8.0)),
        *({"size": z, "about": about} for z in (1.0, 2.0, 4.0) for about in ("own", "all", "one")),
        *({"size": z, "split": True} for z in (2.0, 4.0)),
        *({"size": z, "together": True} for z in (2.0, 4.0)),
        *({"size": z, "everybody": classes} for z in (3.0, 6.0) for classes in (1, 2, 3, 10)),
    ],
    "bridge": [
        *({"size": z, "between": where} for z in (2.0, 4.0) for where in ("middle", "pairs")),
        *({"bridges": 2, "between": where, "bridge_claims": None} for where in ("middle", "pairs")),
    ],
    "partisans": [
        *({"noise": e, "past": z} for e in (0.0, 0.35, 0.5, 0.7, 1.0) for z in (0.0, 1.0, 3.0)),
    ],
    "false-counts": [
        *({"size": z, "count": n} for z in (2.0, 4.0, 10.0) for n in (1.0, 2.0, 1e6)),
        *({"size": z, "low": 1} for z in (2.0, 4.0)),
    ],
    "poisoned-scatter": [
        *(
            {"times": times, "along": along}
            for times in (10.0, 100.0, 1e4)
            for along in ("nearest", "pairs", "discriminants")
        ),
        {"along": "nothing"},
        *({"along": along, "times": 1e4} for along in ("huge", "tiny")),
        *({"size": z, "along": along} for z in (-4.0, 2.0, 4.0) for along in ("pairs", "discriminants")),
        *({"size": z, "along": "pairs", "times": 1e4} for z in (-4.0, 4.0)),
        *({"along": "nearest", "times": t, "classes_each": 1, "count": n} for t in (100.0, 1e4) for n in (25.0, 1e6)),
        {"along": "nearest", "times": 1e4, "classes_each": 4},
    ],
    "permuted-labels": [{"order": order, "noise": e} for order in ("next", "nearest", "random") for e in (0.0, 1.0)],
    "laid-on": [
        *(
            {"part": p, "noise": e, "spread": s}
            for p in (0.3, 0.5, 0.7, 1.0)
            for e in (0.0, 1.0)
            for s in (False, True)
        ),
        *({"part": p, "against": q} for p in (0.3, 0.7, 1.0) for q in (0.5, 1.0, 2.0, 4.0)),
    ],
    "pincer": [
        *({"size": z, "aside": w} for z in (0.0, 2.0, 4.0) for w in (2.0, 4.0, 6.0)),
        *({"size": 2.0, "aside": 4.0, "noise": e} for e in (0.0, 0.5)),
    ],
    "foreign-only": [
        *({"lie": lie} for lie in ("permuted", "laid-on")),
        *({"lie": "edge", "size": z} for z in (-4.0, 3.0, 6.0)),
    ],
    "sole-owner": [{"size": z} for z in (2.0, 4.0, 10.0, 30.0)],
    "garbage": [
        {"kind": kind} for kind in ("nan", "huge", "negative", "many", "fraction", "shape", "indefinite", "empty")
    ],
    "adaptive": [{"budget": trials} for trials in (24, 96)],
}
"""For each attack by name, the options of every trial: `attacks.create(name, **options)`."""
