from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from bristle import attacks
from bristle._core import Array, namespace
from bristle.attacks import Attack, Knowledge, LabelFlip, Scene, StatementAttack, View, required
from bristle.rules.evidence import Statement
from bristle.testing.attacks import check_attack


@pytest.mark.parametrize("name", attacks.names())
def test_every_registered_attack_conforms(name: str) -> None:
    check_attack(attacks.create(name))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *(("min-max", {"perturbation": kind}) for kind in ("sign", "unit")),
        *(("min-sum", {"perturbation": kind}) for kind in ("sign", "unit")),
        *(("sybil", {"inner": inner}) for inner in ("krum", "alie", "foreign-trojan", "stale", "non-finite")),
        ("mimic", {"target": 3}),
        ("krum", {"f": 2, "epsilon": 0}),
        ("alie", {"z": 1.5}),
        ("stale", {"last": 9}),
    ],
)
def test_variants_conform(name: str, options: dict[str, Any]) -> None:
    check_attack(attacks.create(name, **options), seed=1)


def test_an_attack_for_other_data_is_checked_on_its_own_classes() -> None:
    check_attack(LabelFlip(classes=4), classes=4)
    with pytest.raises(AssertionError, match="fails on labels"):
        check_attack(LabelFlip(classes=4))


@dataclass(frozen=True)
class Harmless(Attack):
    def craft(self, view: View, draws: Array | None) -> Array:
        return view.own


class Peeks(Harmless):
    def __call__(self, view: View, *, rng: Any = None) -> Array:
        return view.own if view.victim is None else view.own - view.victim[..., None, :, :]


class PeeksAtSigns(Harmless):
    """Blind to NaN, so that only other values tell."""

    def __call__(self, view: View, *, rng: Any = None) -> Array:
        positive = False if view.victim is None else bool(np.nansum(np.asarray(view.victim)) > 0)
        return view.own if positive else view.own * 2


class NeedsMore(Harmless):
    def craft(self, view: View, draws: Array | None) -> Array:
        return view.own - required(view.victim, "victim", self)[:, None]


class Mutates(Harmless):
    def craft(self, view: View, draws: Array | None) -> Array:
        view.own[...] = 0
        return view.own * 1


class MutatesTheInbox(Harmless):
    @property
    def knows(self) -> Knowledge:
        return Knowledge.INBOX

    def __call__(self, view: View, *, rng: Any = None) -> Array:
        assert view.inbox is not None
        view.inbox[...] = 0  # type: ignore[index]
        return view.own


class AveragesOverVictims(Harmless):
    def craft(self, view: View, draws: Array | None) -> Array:
        xp = namespace(view.own)
        return view.own - xp.mean(view.own, axis=0, keepdims=True)


class CountsTheAbsent(Harmless):
    @property
    def knows(self) -> Knowledge:
        return Knowledge.INBOX

    def __call__(self, view: View, *, rng: Any = None) -> Array:
        assert isinstance(view.inbox, np.ndarray)
        xp = namespace(view.own)
        return view.own + xp.sum(xp.where(xp.isnan(view.inbox), 0.0, view.inbox), axis=-3, keepdims=True)


class Forgets(Harmless):
    def craft(self, view: View, draws: Array | None) -> Array:
        return view.own + np.random.default_rng().random()


class Explodes(Harmless):
    def craft(self, view: View, draws: Array | None) -> Array:
        return view.own * float("inf")


class NeedsCompany(Harmless):
    @property
    def knows(self) -> Knowledge:
        return Knowledge.INBOX

    def craft(self, view: View, draws: Array | None) -> Array:
        inbox = required(view.inbox, "inbox", self)
        return view.own * 0 + namespace(inbox).max(inbox, axis=1, keepdims=True)


class Widens(Harmless):
    def __call__(self, view: View, *, rng: Any = None) -> Array:
        return namespace(view.own).astype(view.own, namespace(view.own).float64)


class Shrinks(Harmless):
    def __call__(self, view: View, *, rng: Any = None) -> Array:
        return view.own[..., :1, :]


class OnlyNumPy(Harmless):
    def craft(self, view: View, draws: Array | None) -> Array:
        return view.own.copy()


class SaysItTrainsNothing(Harmless):
    @property
    def trains(self) -> bool:
        return False


class FlipsPadding(Harmless):
    @property
    def flips_labels(self) -> bool:
        return True

    def labels(self, y: Array) -> Array:
        return (y + 1) % 10


class LeavesTheRange(FlipsPadding):
    def labels(self, y: Array) -> Array:
        return np.where(y >= 0, y + 1, y)


class FlipsInSecret(Harmless):
    def labels(self, y: Array) -> Array:
        return np.where(y >= 0, y - y, y)


class FlipsInPlace(FlipsPadding):
    def labels(self, y: Array) -> Array:
        y[y >= 0] = 0
        return y


class KnowsSomething(Harmless):
    @property
    def knows(self) -> Any:
        return "something"


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (Peeks, "not finite, with NaN in what it does not know"),
        (PeeksAtSigns, "says that it knows nothing but uses more"),
        (NeedsMore, "needs view.victim"),
        (Mutates, "changes view.own in place"),
        (MutatesTheInbox, "changes view.inbox in place"),
        (AveragesOverVictims, "something else in a batch than alone"),
        (CountsTheAbsent, "lets heads that are masked out influence"),
        (Forgets, "does not repeat when the generator does"),
        (Explodes, "sends values that are not finite"),
        (NeedsCompany, "fails on an empty inbox"),
        (Widens, "sends float64, not float32"),
        (Shrinks, "sends shape"),
        (OnlyNumPy, "fails on arrays of (torch|array_api_strict)"),
        (SaysItTrainsNothing, "says that it trains no heads"),
        (FlipsPadding, "does not leave padding"),
        (LeavesTheRange, "gives labels outside 0..9"),
        (FlipsInSecret, "flips_labels is False, not True"),
        (FlipsInPlace, "changes labels in place"),
        (KnowsSomething, "which is no Knowledge"),
    ],
)
def test_a_broken_attack_is_told_what_it_breaks(broken: type[Harmless], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_attack(broken())


def test_a_harmless_attack_of_ones_own_passes() -> None:
    check_attack(Harmless())


def test_something_else_is_no_attack() -> None:
    with pytest.raises(AssertionError, match=r"is no bristle.attacks.Attack"):
        check_attack(lambda view, rng: view.own)  # type: ignore[arg-type]


@dataclass(frozen=True)
class States(StatementAttack):
    def state(self, scene: Scene, victim: int, rng: np.random.Generator) -> list[Statement]:
        return list(scene.attackers)


class StatesTooLittle(States):
    def state(self, scene: Scene, victim: int, rng: np.random.Generator) -> list[Statement]:
        return list(scene.attackers[1:])


class StatesSomethingElse(States):
    def state(self, scene: Scene, victim: int, rng: np.random.Generator) -> list[Statement]:
        return [one.rows for one in scene.attackers]


class StatesAtRandom(States):
    def state(self, scene: Scene, victim: int, rng: np.random.Generator) -> list[Statement]:
        return [replace(one, rows=one.rows + np.random.default_rng().random()) for one in scene.attackers]


class StatesNothingFinite(States):
    def state(self, scene: Scene, victim: int, rng: np.random.Generator) -> list[Statement]:
        return [replace(one, rows=one.rows * np.inf) for one in scene.attackers]


class StatesInPlace(States):
    def state(self, scene: Scene, victim: int, rng: np.random.Generator) -> list[Statement]:
        scene.statements[victim].rows[:] = 0
        return list(scene.attackers)


class StatesNothing(States):
    def state(self, scene: Scene, victim: int, rng: np.random.Generator) -> list[Statement]:
        raise KeyError(victim)


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (StatesTooLittle, "returns 0 statements of 1 attackers"),
        (StatesSomethingElse, "something else than statements"),
        (StatesAtRandom, "does not repeat when the generator does"),
        (StatesNothingFinite, "states values that are not finite"),
        (StatesInPlace, "changes the scene in place"),
        (StatesNothing, "fails to state anything: KeyError"),
    ],
)
def test_a_broken_attack_on_evidence_is_told_what_it_breaks(broken: type[States], complaint: str) -> None:
    check_attack(States())
    with pytest.raises(AssertionError, match=complaint):
        check_attack(broken())
