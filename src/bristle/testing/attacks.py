"""`check_attack`: a conformance test for attacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bristle._core import Array, Pool, to_numpy
from bristle.attacks import Attack, Knowledge, Scene, StatementAttack, View, crafts_statements_only
from bristle.learning.metrics import Evaluation
from bristle.rules.evidence import Statement, state
from bristle.testing.expectation import expect, other_libraries

FEATURES, MODELS = 3, 7
# Views are float64 where answers are compared: what is left is rounding.
TOLERANCE = 1e-7


def check_attack(attack: Attack, *, classes: int = 10, seed: int = 0) -> None:
    """Check that `attack` does what every attack promises; an AssertionError says what it breaks.

    Checked with one attacker and with three: the answer is [..., K, C, D] of the type given, and finite
    unless the attack says otherwise; a batch of victims gives what each would get alone, a `Pool` what the
    array gives, and every array library that is installed what NumPy gives; the same randomness gives the
    same bits; nothing that comes in is changed; absent heads count for nothing, and having none is no
    mishap; claims are booleans [..., K, C]; labels stay in range and padding stays padding; and what the attack
    does not know has no influence on what it sends. An attack that `broadcasts` sends all victims of a batch the
    same instead; one with a `feature_count` is tried on heads with so many features. Of an attack that crafts
    statements: it returns one for each attacker, finite unless it says otherwise, changes nothing that comes in, and
    repeats with the same generator.

    Parameters
    ----------
    attack : Attack
        The attack.
    classes : int
        The number of classes that it is made for.
    seed : int
        For the heads on which it is tried.
    """
    expect(isinstance(attack, Attack), f"{attack!r} is no bristle.attacks.Attack")
    expect(attack.knows in list(Knowledge), f"{attack!r} knows {attack.knows!r}, which is no Knowledge")
    if isinstance(attack, StatementAttack):
        for attackers in (1, 3):
            check_statements(attack, evidence_scene(attackers, classes, seed), seed=seed)
        if crafts_statements_only(type(attack)):
            return
    for attackers in (1, 3):
        trial = _Trial(attack, attackers, classes, np.random.default_rng(seed))
        for check in (
            _check_purity,  # first: what changes its input would spoil the other checks
            _check_form,
            _check_claims,
            _check_knowledge,
            _check_absent_heads,
            _check_no_heads,
            _check_first_round,
            _check_training,
            _check_batches,
            _check_pool,
            _check_libraries,
        ):
            check(trial)
    _check_labels(attack, classes, np.random.default_rng(seed))


def evidence_scene(attackers: int, classes: int, seed: int = 0) -> Scene:
    """Return a small scene of peers with samples of some classes each, for attacks on evidence."""
    rng = np.random.default_rng(seed)
    centres = 3 * rng.normal(size=(classes, 2 * FEATURES))

    def samples(held: Any) -> Evaluation:
        labels = np.repeat(held, 4)
        return Evaluation(centres[labels] + rng.normal(size=(len(labels), 2 * FEATURES)), labels)

    everybody = [samples((peer + np.arange(min(4, classes))) % classes) for peer in range(MODELS)]
    liars = [samples(np.arange(classes)) for _ in range(attackers)]
    return Scene([state(one, classes) for one in everybody], everybody, [state(one, classes) for one in liars], classes)


def check_statements(attack: StatementAttack, scene: Scene, *, seed: int = 0) -> None:
    """Check what an attack states to the first and the last victim of a scene."""
    before = _copies(scene)
    for victim in (0, len(scene.statements) - 1):
        try:
            first, again = (attack.state(scene, victim, np.random.default_rng([seed, victim])) for _ in range(2))
        except Exception as error:
            raise AssertionError(f"{attack!r} fails to state anything: {type(error).__name__}: {error}") from error
        count = len(scene.attackers)
        expect(len(first) == count, f"{attack!r} returns {len(first)} statements of {count} attackers")
        expect(all(isinstance(one, Statement) for one in first), f"{attack!r} returns something else than statements")
        same = all(
            np.array_equal(one, other, equal_nan=True) for one, other in zip(_parts(first), _parts(again), strict=True)
        )
        expect(same, f"{attack!r} does not repeat when the generator does")
        finite = all(np.isfinite(part).all() for part in _parts(first))
        expect(finite or not attack.finite, f"{attack!r} states values that are not finite")
        unchanged = all(np.array_equal(one, other) for one, other in zip(before, _copies(scene), strict=True))
        expect(unchanged, f"{attack!r} changes the scene in place")


def _parts(statements: Sequence[Statement]) -> list[Any]:
    found = (part for one in statements for part in (one.rows, one.counts, one.factors, one.diagonal))
    return [np.asarray(part) for part in found if part is not None]


def _copies(scene: Scene) -> list[Any]:
    samples = [part for one in scene.samples for part in (one.features, one.labels)]
    return [np.array(part) for part in [*_parts(scene.statements), *_parts(scene.attackers), *samples]]


class _Trial:
    """An attack, and views of random heads to try it on, for victims of batch shape (2, 3)."""

    batch = (2, 3)

    def __init__(self, attack: Attack, attackers: int, classes: int, rng: np.random.Generator) -> None:
        self.attack = attack
        self.rng = rng
        head = (classes, attack.feature_count or FEATURES)
        mask = rng.random((*self.batch, MODELS)) < 0.7
        mask[..., -1] = True
        inbox = rng.normal(size=(*self.batch, MODELS, *head))
        inbox[~mask] = np.nan
        self.inbox, self.mask = inbox, mask
        victim = rng.normal(size=(*self.batch, *head))
        self.view = View(
            own=rng.normal(size=(*self.batch, attackers, *head)),
            iteration=4,
            total=9,
            inbox=inbox,
            inbox_mask=mask,
            victim=victim,
            update=rng.normal(size=victim.shape) / 4,
            testable=rng.random((*self.batch, classes)) < 0.5,
            sent=rng.normal(size=(*self.batch, attackers, *head)),
            claims=rng.random((9, classes)) < 0.5,
        )
        self.draws = rng.random(self.view.own.shape)

    def send(self, view: View, occasion: str, rng: Any = None) -> np.ndarray[Any, Any]:
        """Return what is sent, as NumPy, once its library, shape and type are found right."""
        rng = self.draws if rng is None else rng
        try:
            sent = self.attack(view, rng=rng)
        except Exception as error:
            raise AssertionError(f"{self.attack!r} fails {occasion}: {type(error).__name__}: {error}") from error
        shape, dtype, kind = tuple(view.own.shape), view.own.dtype, type(view.own)
        self.expect(isinstance(sent, kind), f"sends a {type(sent).__name__}, not a {kind.__name__}, {occasion}")
        self.expect(tuple(sent.shape) == shape, f"sends shape {tuple(sent.shape)}, not {shape}, {occasion}")
        self.expect(sent.dtype == dtype, f"sends {sent.dtype}, not {dtype}, {occasion}")
        sent = to_numpy(sent)
        if self.attack.finite:
            self.expect(bool(np.isfinite(sent).all()), f"sends values that are not finite, {occasion}")
        return sent

    def compare(self, found: Array, expected: Array, complaint: str, tolerance: float = TOLERANCE) -> None:
        same = np.allclose(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
        self.expect(same, complaint)

    def expect(self, holds: bool, complaint: str) -> None:
        expect(holds, f"{self.attack!r} {complaint}")


def _check_form(trial: _Trial) -> None:
    trial.send(trial.view, "on heads of type float64")
    single = _converted(trial.view, lambda values: values if values.dtype == bool else values.astype(np.float32))
    trial.send(single, "on heads of type float32", trial.draws.astype(np.float32))
    trial.send(_at(trial.view, (0, 0)), "on a single victim", trial.draws[0, 0])


def _check_claims(trial: _Trial) -> None:
    """What attackers claim is one boolean for each of them and each class, from what they know alone."""
    for view in (trial.view, replace(trial.view, claims=None)):
        try:
            claims = trial.attack.claimed(view)
        except Exception as error:
            raise AssertionError(f"{trial.attack!r} cannot claim: {type(error).__name__}: {error}") from error
        shape = tuple(trial.view.own.shape[:-1])
        trial.expect(tuple(claims.shape) == shape, f"claims {tuple(claims.shape)}, not {shape}")
        trial.expect(claims.dtype == np.bool, f"claims {claims.dtype}, not booleans")


def _check_purity(trial: _Trial) -> None:
    copy = _converted(trial.view, np.copy)
    first = trial.send(trial.view, "with a generator", np.random.default_rng(7))
    for field in _FIELDS:
        before, after = vars(copy)[field], vars(trial.view)[field]
        trial.expect(np.array_equal(before, after, equal_nan=before.dtype != bool), f"changes view.{field} in place")
    again = trial.send(trial.view, "with a generator", np.random.default_rng(7))
    trial.expect(np.array_equal(first, again, equal_nan=True), "does not repeat when the generator does")


def _check_knowledge(trial: _Trial) -> None:
    """Whatever stands in the fields that the attack says it does not know, it sends the same."""
    honest = trial.send(trial.view, "on heads of type float64")
    knows = trial.attack.knows
    decoys: dict[str, Callable[[Any], Any]] = {
        "NaN": lambda values: ~values if values.dtype == bool else np.full_like(values, np.nan),
        "other heads": lambda values: ~values if values.dtype == bool else trial.rng.normal(size=values.shape),
    }
    for occasion, decoy in decoys.items():
        view = trial.view
        hidden = replace(_converted(view, decoy), own=view.own, sent=view.sent, claims=view.claims)
        if knows != Knowledge.NOTHING:
            hidden = replace(hidden, inbox=trial.view.inbox, inbox_mask=trial.view.inbox_mask)
        if knows == Knowledge.EVERYTHING:
            hidden = trial.view
        sent = trial.send(hidden, f"with {occasion} in what it does not know")
        trial.compare(sent, honest, f"says that it knows {knows} but uses more", 0)
    alone = trial.send(trial.view.seen_by(knows), "without the fields that it does not know")
    trial.compare(alone, honest, f"says that it knows {knows} but needs more", 0)


def _check_absent_heads(trial: _Trial) -> None:
    expected = trial.send(trial.view, "with NaN in absent heads")
    others = trial.rng.normal(size=trial.inbox.shape)
    others[trial.mask] = trial.inbox[trial.mask]
    sent = trial.send(replace(trial.view, inbox=others), "with finite absent heads")
    trial.compare(sent, expected, "lets heads that are masked out influence what it sends")


def _check_no_heads(trial: _Trial) -> None:
    view = trial.view
    trial.send(replace(view, inbox=trial.inbox[..., :0, :, :], inbox_mask=None), "on an empty inbox")
    trial.send(replace(view, inbox_mask=np.zeros_like(trial.mask)), "on an inbox that is masked out")
    mixed = trial.mask.copy()
    mixed[0] = False
    sent = trial.send(replace(view, inbox_mask=mixed), "when some victims receive nothing")
    expected = trial.send(view, "on a full inbox")
    if not trial.attack.broadcasts:
        trial.compare(sent[1], expected[1], "sends a victim something else because another one receives nothing")


def _check_first_round(trial: _Trial) -> None:
    trial.send(replace(trial.view, iteration=1, sent=None), "in the first round")


def _check_training(trial: _Trial) -> None:
    if trial.attack.trains:
        return
    expected = trial.send(trial.view, "on heads of type float64")
    sent = trial.send(replace(trial.view, own=np.zeros_like(trial.view.own)), "on untrained heads")
    trial.compare(sent, expected, "says that it trains no heads but sends what depends on them", 0)


def _check_batches(trial: _Trial) -> None:
    together = trial.send(trial.view, "on a batch of victims")
    if trial.attack.broadcasts:
        same = replace(trial.view, own=np.broadcast_to(trial.view.own[:1, :1], trial.view.own.shape))
        draws = np.broadcast_to(trial.draws[:1, :1], trial.draws.shape)
        sent = trial.send(same, "on a batch of victims", draws)
        trial.compare(sent, sent[:1, :1], "says that it broadcasts but sends one victim something else than another")
        return
    for victim in np.ndindex(trial.batch):
        alone = trial.send(_at(trial.view, victim), "on a single victim", trial.draws[victim])
        trial.compare(together[victim], alone, f"sends victim {victim} something else in a batch than alone")


def _check_pool(trial: _Trial) -> None:
    inbox = np.reshape(trial.inbox, (-1, *trial.inbox.shape[-2:]))
    order = trial.rng.permutation(len(inbox))
    pool = Pool(inbox[order], np.reshape(np.argsort(order), (*trial.batch, MODELS)))
    sent = trial.send(replace(trial.view, inbox=pool), "with a Pool as inbox")
    trial.compare(sent, trial.send(trial.view, "with an array as inbox"), "treats a Pool otherwise than an array")


def _check_libraries(trial: _Trial) -> None:
    expected = trial.send(trial.view, "on NumPy arrays")
    for library in other_libraries():
        view = _converted(_converted(trial.view, np.copy), library.asarray)
        occasion = f"on arrays of {library.__name__}"
        trial.compare(trial.send(view, occasion), expected, f"sends something else {occasion} than on NumPy's")


def _check_labels(attack: Attack, classes: int, rng: np.random.Generator) -> None:
    for dtype in (np.int64, np.int32, np.int16):
        labels = rng.integers(-1, classes, size=(4, 25)).astype(dtype)
        labels[0, :2] = -1, classes - 1
        before = labels.copy()
        try:
            after = attack.labels(labels)
        except Exception as error:
            problem = f"{attack!r} fails on labels 0..{classes - 1}: {type(error).__name__}: {error}"
            raise AssertionError(problem) from error
        expect(np.array_equal(labels, before), f"{attack!r} changes labels in place")
        expect(after.shape == before.shape, f"{attack!r} gives labels of shape {after.shape}, not {before.shape}")
        expect(after.dtype == dtype, f"{attack!r} gives labels of type {after.dtype}, not {before.dtype}")
        expect(np.array_equal(after == -1, before == -1), f"{attack!r} does not leave padding (-1) as it is")
        in_range = after.min() >= -1 and after.max() < classes
        expect(in_range, f"{attack!r} gives labels outside 0..{classes - 1}")
        flips = not np.array_equal(after, before)
        expect(flips == attack.flips_labels, f"{attack!r}: flips_labels is {attack.flips_labels}, not {flips}")


_FIELDS = ("own", "inbox", "inbox_mask", "victim", "update", "testable", "sent", "claims")


def _converted(view: View, convert: Callable[[Any], Any]) -> View:
    """Return the view with every array converted."""
    return replace(view, **{name: convert(vars(view)[name]) for name in _FIELDS if vars(view)[name] is not None})


def _at(view: View, victim: tuple[int, ...]) -> View:
    return replace(_converted(replace(view, claims=None), lambda values: values[victim]), claims=view.claims)
