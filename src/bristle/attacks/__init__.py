"""Attacks: what an adversary sends, given no more than what the attack says it knows.

Every attack has the same call: `attack(view, rng=)` returns heads [..., K, C, D], what K attackers send to
each victim; `attack.labels(y)` returns the labels that they train on.
"""

from typing import Literal

from bristle._core import Array, namespace
from bristle._core.registry import Registry
from bristle.attacks.adaptive import Adaptive
from bristle.attacks.base import Attack, required
from bristle.attacks.data_free import AdditiveNoise, LabelFlip, NoAttack, NonFinite, SignFlip, Stale
from bristle.attacks.fang import FangKrum, FangKrumAlong, FangTrimmedMean, FangTrimmedMeanAlong
from bristle.attacks.feedback import Backdoor, CommonShift, Edge, FamiliarVolume, HomeBias, NearCopies, SlowDrift
from bristle.attacks.gossip import Dissensus, FreeRide, Mimic
from bristle.attacks.lies import (
    Bridge,
    FalseCounts,
    ForeignOnly,
    Garbage,
    LaidOn,
    Partisans,
    PermutedLabels,
    Pincer,
    PoisonedScatter,
    SoleOwner,
    StatementEdge,
)
from bristle.attacks.line_search import OptimalALittleIsEnough, OptimalInnerProduct
from bristle.attacks.statements import Liars, Scene, StatementAttack
from bristle.attacks.statistics import ALittleIsEnough, InnerProduct, MinMax, MinSum
from bristle.attacks.sybil import Sybil
from bristle.attacks.trojans import ClaimLiar, ExcusedTrojan, ForeignTrojan, Inflate, LateTrojan, Outnumber, RowCopy
from bristle.attacks.view import Knowledge, View

__all__ = [
    "ALittleIsEnough",
    "Adaptive",
    "AdditiveNoise",
    "Array",
    "Attack",
    "Backdoor",
    "Bridge",
    "ClaimLiar",
    "CommonShift",
    "Dissensus",
    "Edge",
    "ExcusedTrojan",
    "FalseCounts",
    "FamiliarVolume",
    "FangKrum",
    "FangKrumAlong",
    "FangTrimmedMean",
    "FangTrimmedMeanAlong",
    "ForeignOnly",
    "ForeignTrojan",
    "FreeRide",
    "Garbage",
    "HomeBias",
    "Inflate",
    "InnerProduct",
    "Knowledge",
    "LabelFlip",
    "LaidOn",
    "LateTrojan",
    "Liars",
    "Mimic",
    "MinMax",
    "MinSum",
    "NearCopies",
    "NoAttack",
    "NonFinite",
    "OptimalALittleIsEnough",
    "OptimalInnerProduct",
    "Outnumber",
    "Partisans",
    "PermutedLabels",
    "Pincer",
    "PoisonedScatter",
    "RowCopy",
    "Scene",
    "SignFlip",
    "SlowDrift",
    "SoleOwner",
    "Stale",
    "StatementAttack",
    "StatementEdge",
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
    "optimal-inner-product": OptimalInnerProduct,
    "optimal-alie": OptimalALittleIsEnough,
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
    "home-bias": HomeBias,
    "edge": Edge,
    "common-shift": CommonShift,
    "familiar-volume": FamiliarVolume,
    "slow-drift": SlowDrift,
    "near-copies": NearCopies,
    "backdoor": Backdoor,
    "statement-edge": StatementEdge,
    "bridge": Bridge,
    "partisans": Partisans,
    "false-counts": FalseCounts,
    "poisoned-scatter": PoisonedScatter,
    "permuted-labels": PermutedLabels,
    "laid-on": LaidOn,
    "pincer": Pincer,
    "foreign-only": ForeignOnly,
    "sole-owner": SoleOwner,
    "garbage": Garbage,
    "adaptive": Adaptive,
}

ATTACKS: Registry[Attack] = Registry("attack", Attack, _ATTACKS, "bristle.attacks")


def names(*, shares: Literal["heads", "evidence"] | None = None) -> tuple[str, ...]:
    """Return the names of all attacks: Bristle's own, then those of installed packages.

    With `shares`, only attacks on peers that exchange that. `heads` leaves out those that craft only statements, and
    imports the packages' attacks to ask them. `evidence` leaves out none: attacks on heads work on class means there.
    """
    return tuple(name for name in ATTACKS.names() if shares != "heads" or _attacks_heads(name))


def _attacks_heads(name: str) -> bool:
    found = ATTACKS.find(name)
    kind = found if isinstance(found, type) else type(found)
    return not (issubclass(kind, Attack) and crafts_statements_only(kind))


def crafts_statements_only(kind: type[Attack]) -> bool:
    """Return whether attacks of a type have nothing to send to peers that exchange heads."""
    return issubclass(kind, StatementAttack) and kind.craft is StatementAttack.craft


def create(name: str, **options: object) -> Attack:
    """Make an attack by name: `create("label-flip", classes=26)`, `create("sybil", inner="krum")`.

    `module:name` and attacks of installed packages work as well.
    """
    inner = options.get("inner")
    if name == "sybil" and isinstance(inner, str):
        options["inner"] = create(inner)
    return ATTACKS.create(name, options)
