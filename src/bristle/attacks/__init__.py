"""Attacks: what an adversary sends, given no more than what the attack says it knows.

Every attack has the same call: `attack(view, rng=)` returns heads [..., K, C, D], what K attackers send to
each victim; `attack.labels(y)` returns the labels that they train on.
"""

from bristle._core import Array, namespace
from bristle._core.registry import Registry
from bristle.attacks.adaptive import ClaimLiar, ExcusedTrojan, ForeignTrojan, Inflate, LateTrojan, Outnumber, RowCopy
from bristle.attacks.base import Attack, required
from bristle.attacks.data_free import AdditiveNoise, LabelFlip, NoAttack, NonFinite, SignFlip, Stale
from bristle.attacks.fang import FangKrum, FangKrumAlong, FangTrimmedMean, FangTrimmedMeanAlong
from bristle.attacks.gossip import Dissensus, FreeRide, Mimic
from bristle.attacks.statistics import ALittleIsEnough, InnerProduct, MinMax, MinSum
from bristle.attacks.sybil import Sybil
from bristle.attacks.view import Knowledge, View

__all__ = [
    "ALittleIsEnough",
    "AdditiveNoise",
    "Array",
    "Attack",
    "ClaimLiar",
    "Dissensus",
    "ExcusedTrojan",
    "FangKrum",
    "FangKrumAlong",
    "FangTrimmedMean",
    "FangTrimmedMeanAlong",
    "ForeignTrojan",
    "FreeRide",
    "Inflate",
    "InnerProduct",
    "Knowledge",
    "LabelFlip",
    "LateTrojan",
    "Mimic",
    "MinMax",
    "MinSum",
    "NoAttack",
    "NonFinite",
    "Outnumber",
    "RowCopy",
    "SignFlip",
    "Stale",
    "Sybil",
    "View",
    "create",
    "names",
    "namespace",
    "required",
]

_ATTACKS: dict[str, type[Attack]] = {
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

ATTACKS: Registry[Attack] = Registry("attack", Attack, _ATTACKS, "bristle.attacks")


def names() -> tuple[str, ...]:
    """Return the names of all attacks: Bristle's own, then those of installed packages."""
    return ATTACKS.names()


def create(name: str, **options: object) -> Attack:
    """Make an attack by name: `create("label-flip", classes=26)`, `create("sybil", inner="krum")`.

    `module:name` and attacks of installed packages work as well.
    """
    inner = options.get("inner")
    if name == "sybil" and isinstance(inner, str):
        options["inner"] = create(inner)
    return ATTACKS.create(name, options)
