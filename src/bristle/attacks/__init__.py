"""What an adversary sends: attacks that state what they know and are shown no more.

Every attack has the same call: `attack(view, rng=)` returns heads [..., K, C, D], what K attackers send to
each victim; `attack.labels(y)` returns the labels that they train on.
"""

from bristle._core import Array, namespace
from bristle.attacks.adaptive import ClaimLiar, ExcusedTrojan, ForeignTrojan, Inflate, LateTrojan, Outnumber, RowCopy
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
    PoisonedScatter,
    SoleOwner,
    StatementEdge,
)
from bristle.attacks.registry import create, names
from bristle.attacks.search import Adaptive
from bristle.attacks.statements import Liars, Scene, StatementAttack
from bristle.attacks.statistics import ALittleIsEnough, InnerProduct, MinMax, MinSum
from bristle.attacks.sybil import Sybil
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
    "Outnumber",
    "Partisans",
    "PermutedLabels",
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
