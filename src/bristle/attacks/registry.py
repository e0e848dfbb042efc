"""Attacks by name. Adding one is a file and a line."""

from __future__ import annotations

from bristle._core.validation import make
from bristle.attacks.adaptive import ClaimLiar, ExcusedTrojan, ForeignTrojan, Inflate, LateTrojan, Outnumber, RowCopy
from bristle.attacks.base import Attack
from bristle.attacks.data_free import AdditiveNoise, LabelFlip, NoAttack, NonFinite, SignFlip, Stale
from bristle.attacks.fang import FangKrum, FangKrumAlong, FangTrimmedMean, FangTrimmedMeanAlong
from bristle.attacks.gossip import Dissensus, FreeRide, Mimic
from bristle.attacks.statistics import ALittleIsEnough, InnerProduct, MinMax, MinSum
from bristle.attacks.sybil import Sybil

ATTACKS: dict[str, type[Attack]] = {
    "none": NoAttack,
    "label-flip": LabelFlip,
    "additive-noise": AdditiveNoise,
    "krum": FangKrum,
    "krum-along": FangKrumAlong,
    "trimmed-mean": FangTrimmedMean,
    "trimmed-mean-along": FangTrimmedMeanAlong,
    "sign-flip": SignFlip,
    "inner-product": InnerProduct,
    "alie": ALittleIsEnough,
    "min-max": MinMax,
    "min-sum": MinSum,
    "mimic": Mimic,
    "dissensus": Dissensus,
    "free-ride": FreeRide,
    "stale": Stale,
    "sybil": Sybil,
    "non-finite": NonFinite,
    "foreign-trojan": ForeignTrojan,
    "excused-trojan": ExcusedTrojan,
    "late-trojan": LateTrojan,
    "row-copy": RowCopy,
    "outnumber": Outnumber,
    "claim-liar": ClaimLiar,
    "inflate": Inflate,
}


def names() -> list[str]:
    """Return the names of all attacks."""
    return list(ATTACKS)


def create(name: str, **options: object) -> Attack:
    """Make an attack by name: `create("label-flip", classes=26)`, `create("sybil", inner="krum")`."""
    inner = options.get("inner")
    if isinstance(inner, str):
        options["inner"] = create(inner)
    attack: Attack = make("attack", ATTACKS, name, options)
    return attack
