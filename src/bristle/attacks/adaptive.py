"""The adaptive attack: whatever rule it is pointed at, it tries lies on it and sends what hurts most."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np

from bristle._core import Array, namespace, squared_norms
from bristle._core.validation import check_count
from bristle.attacks.base import required
from bristle.attacks.feedback import HeadsGround, class_centres, unit
from bristle.attacks.lies import FalseCounts, LaidOn, Partisans, PermutedLabels, PoisonedScatter, StatementEdge
from bristle.attacks.statements import Floats, Ground, Liars, Scene, StatementAttack
from bristle.attacks.view import View
from bristle.learning.metrics import Evaluation
from bristle.rules.base import Rule
from bristle.rules.evidence import Evidence, Statement

ENOUGH = 10
"""So many samples a class are shown to a rule that tests: attackers who have fewer show each of them several times."""
TIE = 1e-6
# Pushes of heads in the order of `_pushes`, as multiples: a start is one of them, the search goes on from the best.
STARTS = (
    (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    (10.0, 0.85, 0.0, 0.0, 0.0, 0.0, 0.0),
    (0.0, 0.0, 0.85, 0.0, 0.0, 0.0, 0.0),
    (0.0, 0.0, 0.0, 0.85, 0.0, 0.0, 0.0),
    (0.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0),
    (0.0, 0.0, 0.0, 0.0, 0.0, 9.0, 0.0),
)
LIES: tuple[Liars, ...] = (
    LaidOn(part=0.7, against=2.0),
    Partisans(noise=0.7),
    PoisonedScatter(along="pairs", times=1e4),
    LaidOn(part=0.3, against=2.0),
    StatementEdge(size=4.0),
    LaidOn(part=1.0, against=1.0),
    StatementEdge(size=-4.0),
    PermutedLabels(order="nearest"),
    StatementEdge(size=4.0, about="all"),
    FalseCounts(size=6.0, count=1.0),
    LaidOn(part=0.7, against=4.0),
    PoisonedScatter(size=4.0, along="pairs", times=1e4),
)
"""Lies in statements that the search starts from."""


@dataclass(frozen=True, kw_only=True)
class Adaptive(StatementAttack):
    r"""m = argmax over `budget` trials of the loss of what the rule would make of m, on samples that attackers hold.

    The rule itself is the oracle: it is called with what the victim will receive and with m, and the head that comes
    out is tested. Against rules that exchange heads, m = μ + Σ_j p_j V_j, the honest mean pushed along directions that
    are known to hurt: familiar rows along the mean feature, foreign ones away from it, away from their class or towards
    the next, all rows together, and volumes. p starts from the best single push and is changed one by one, in steps
    that grow while they help. Against `evidence`, the best of known lies, and then pushes of single classes along
    discriminants, kept where they help. Knows everything. Costs `budget` decisions a victim and exchange.

    Parameters
    ----------
    rule : Rule, optional
        What to attack; worlds fill in the rule of their peers. Without one, a plain mean, or `evidence`.
    budget : int
        How many trials there are for each victim, each time.
    """

    rule: Rule | None = None
    budget: int = 24

    def __post_init__(self) -> None:
        if self.rule is not None and not isinstance(self.rule, Rule):
            raise ValueError(f"rule must be a Rule, made with rules.create(name), or None, not {self.rule!r}")
        check_count("budget", self.budget, least=1)

    def pointed_at(self, rule: Rule) -> Adaptive:
        """Attack this rule, unless another one was asked for."""
        return self if self.rule is not None else replace(self, rule=rule)

    def craft(self, view: View, draws: Array | None) -> Array:
        """Search among pushes of the honest mean."""
        xp, own = namespace(view.own), view.own
        inbox = required(view.inbox, "inbox", self)
        heard = xp.any(required(view.inbox_mask, "inbox_mask", self), axis=-1)
        if not inbox.shape[1]:
            return own
        ground = HeadsGround.of(view, self)
        pushes = _pushes(xp, ground)
        oracle = Oracle(self.rule, view)
        best = ground.mean
        place = xp.zeros((own.shape[0], len(pushes)), dtype=own.dtype, device=own.device)
        most = xp.zeros((own.shape[0],), dtype=own.dtype, device=own.device)
        step, sign = xp.ones_like(place), xp.ones_like(place)
        for trial in range(self.budget):
            if trial < len(STARTS):
                start = xp.asarray(STARTS[trial], dtype=own.dtype, device=own.device)
                tried = xp.broadcast_to(start[None, :], place.shape)
                at = None
            else:
                number = (trial - len(STARTS)) % len(pushes)
                at = xp.arange(len(pushes), device=own.device)[None, :] == number
                tried = xp.where(at, place + sign * step, place)
            head = ground.mean
            for number, push in enumerate(pushes):
                head = head + tried[:, number, None, None] * push
            loss = oracle.loss(head)
            # What is better by rounding alone is no better.
            better = loss > most + TIE * (1 + xp.abs(most)) if trial else xp.ones_like(heard)
            best = xp.where(better[:, None, None], head, best)
            most = xp.where(better, loss, most)
            place = xp.where(better[:, None], tried, place)
            if at is not None:
                kept = better[:, None]
                step = xp.where(at, xp.where(kept, 2 * step, step / 2), step)
                sign = xp.where(at & ~kept, -sign, sign)
        return xp.where(heard[:, None, None, None], xp.broadcast_to(best[:, None, ...], own.shape), own)

    def state(self, scene: Scene, victim: int, rng: np.random.Generator) -> list[Statement]:
        """Search among lies."""
        rule = self.rule if isinstance(self.rule, Evidence) else Evidence()
        honest = [one for place, one in enumerate(scene.statements) if place != victim]
        best, most = list(scene.attackers), -np.inf
        for lie in self._tried():
            tried = _nudged(best, scene.ground, victim, rng) if lie is None else lie.state(scene, victim, rng)
            weighed = rule.weigh(scene.statements[victim], [*honest, *tried], scene.samples[victim])
            loss = _loss(weighed.answer.head, weighed.answer.bias, weighed.answer.temperature, scene.ground)
            if loss > most:
                best, most = tried, loss
        return best

    def _tried(self) -> list[Liars | None]:
        """Return known lies for half of the budget, and then None: change the best one."""
        known = LIES[: max(1, self.budget // 2)]
        return [*known, *[None] * (self.budget - len(known))]


class Oracle:
    """What a rule would make of a head, for a block of victims."""

    def __init__(self, rule: Rule | None, view: View) -> None:
        self.xp, self.view, self.rule = namespace(view.own), view, rule
        xp, own = self.xp, view.own
        if view.held is None:
            features, labels = class_centres(view), xp.arange(own.shape[2], dtype=xp.int64, device=own.device)
        else:
            features, labels = view.held.features[None, ...], view.held.labels
        times = max(1, ceil(ENOUGH * own.shape[2] / max(int(labels.shape[0]), 1)))
        shape = (own.shape[0], *features.shape[1:])
        self.features = xp.concat([xp.broadcast_to(features, shape)] * times, axis=1)
        self.labels = xp.broadcast_to(xp.concat([labels] * times)[None, :], self.features.shape[:2])
        testable = view.testable
        assert testable is not None
        classes = xp.arange(own.shape[2], dtype=self.labels.dtype, device=own.device)
        self.belongs = self.labels[:, :, None] == classes
        tested = xp.any(self.belongs & testable[:, None, :], axis=-1)
        self.evaluation = Evaluation(self.features, xp.where(tested, self.labels, -xp.ones_like(self.labels)))

    def loss(self, head: Array) -> Array:
        """Return the victims' loss [B], had they received this head [B, C, D] from all attackers."""
        xp = self.xp
        logits = self.features @ xp.matrix_transpose(self.after(head))
        raised = logits - xp.max(logits, axis=-1, keepdims=True)
        total = xp.log(xp.sum(xp.exp(raised), axis=-1))
        truth = xp.sum(xp.where(self.belongs, raised, xp.zeros_like(raised)), axis=-1)
        return xp.mean(total - truth, axis=-1)

    def after(self, head: Array) -> Array:
        """Return what the victims [B, C, D] would make of this head [B, C, D], had all attackers sent it."""
        xp, view = self.xp, self.view
        victim, inbox, mask, own = view.victim, view.inbox, view.inbox_mask, view.own
        assert victim is not None
        assert mask is not None
        sent = xp.broadcast_to(head[:, None, ...], own.shape)
        received = xp.concat([inbox, sent], axis=1)
        there = xp.concat([mask, xp.ones(own.shape[:2], dtype=xp.bool, device=own.device)], axis=1)
        if self.rule is None:
            weight = xp.astype(there, own.dtype)[:, :, None, None]
            return (victim + xp.sum(received * weight, axis=1)) / (1 + xp.sum(weight, axis=1))
        claims = xp.ones((*received.shape[:2], own.shape[2]), dtype=xp.bool, device=own.device)
        return self.rule(victim, received, mask=there, evaluation=self.evaluation, claims=claims).head


def _pushes(xp: Any, ground: HeadsGround) -> list[Array]:
    """Return the directions [B, C, D] in which the honest mean may be pushed; see STARTS."""
    mean, nothing = ground.mean, xp.zeros_like(ground.mean)
    lengths = xp.sqrt(squared_norms(xp, mean))[..., None]
    along = unit(xp, mean)

    def aside(towards: Array) -> Array:
        towards = xp.broadcast_to(towards, mean.shape)
        rest = towards - xp.sum(towards * along, axis=-1, keepdims=True) * along
        return xp.where(ground.foreign, lengths * unit(xp, rest), nothing)

    shift = xp.broadcast_to(ground.size * ground.common, mean.shape)
    return [
        xp.where(ground.foreign, nothing, shift),
        aside(-ground.common),
        aside(-ground.centres),
        aside(xp.roll(ground.centres, -1, axis=1)),
        shift,
        xp.where(ground.foreign, nothing, mean),
        xp.where(ground.foreign, mean, nothing),
    ]


def _nudged(statements: list[Statement], ground: Ground, victim: int, rng: np.random.Generator) -> list[Statement]:
    """Push one class a little along one of its discriminants, in all statements or in every second one."""
    foreign, everything = ground.foreign(victim), ground.known
    label = int(rng.choice(foreign if len(foreign) and rng.random() < 0.8 else everything))
    others = everything[everything != label]
    size, every = 3 * rng.normal(), 1 + int(rng.random() < 0.3)
    if not len(others):
        return statements
    moved = ground.pushed(label, ground.means[int(rng.choice(others))], size) - ground.means[label]
    found = list(statements)
    for place in range(0, len(found), every):
        rows = np.array(found[place].rows)
        rows[label] += moved.astype(rows.dtype)
        found[place] = replace(found[place], rows=rows)
    return found


def _loss(head: Floats, bias: Floats, temperature: float, ground: Ground) -> float:
    """Return the share of honest samples that are lost, and a little of how surely."""
    scores = (ground.features @ head.T + bias) / temperature
    raised = scores - scores.max(axis=1, keepdims=True)
    entropy = np.log(np.exp(raised).sum(axis=1)) - raised[np.arange(len(raised)), ground.labels]
    wrong = scores.argmax(axis=1) != ground.labels
    return float(wrong.mean() + 0.1 * np.minimum(entropy, 5).mean())
