"""The attackers of a world: training, views and crafted heads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from bristle._core import Array, Pool, namespace, take_rows
from bristle._core.arrays import from_numpy
from bristle._core.rng import Stream, draw, draw_many
from bristle.attacks import Knowledge, View
from bristle.learning.metrics import Evaluation
from bristle.learning.optimiser import HeadState
from bristle.learning.samples import Samples
from bristle.learning.training import train_step
from bristle.peer.step import StepState
from bristle.simulation.indexing import heard, replaced, rows_of
from bristle.simulation.population import Population, samples_of
from bristle.simulation.scenario import Scenario
from bristle.simulation.topology import Booleans, Integers, Senders


@dataclass(frozen=True, eq=False)
class IterationScene:
    """The state of a world at the start of an iteration.

    Parameters
    ----------
    iteration : int
        Number of the iteration, from 1.
    heads : array [N, C, D]
        The benign peers' own heads.
    pool : array [P, C, D]
        Heads in transit between them.
    arrived : Senders [N, M]
        Positions in `pool` of the heads that arrive at each peer.
    attackers : integer array [N, K']
        The attackers that each peer hears.
    attackers_mask : boolean array [N, K'], optional
        False for padding and lost messages.
    senders : integer array [N, M + K']
        Numbers of all senders; attackers are numbered after the benign peers.
    """

    iteration: int
    heads: Array
    pool: Array
    arrived: Senders
    attackers: Integers
    attackers_mask: Booleans | None
    senders: Integers

    def mask(self) -> Booleans | None:
        """Return the mask of what is received from benign peers, then from attackers [N, M + K'] (None: everything)."""
        parts = ((self.arrived.index, self.arrived.mask), (self.attackers, self.attackers_mask))
        if all(mask is None for _, mask in parts):
            return None
        masks = [np.ones(index.shape, dtype=np.bool) if mask is None else mask for index, mask in parts]
        return np.concatenate(masks, axis=1)


class Adversary:
    """All attackers of a world. They own samples of all classes, train alone, if at all, and never integrate."""

    def __init__(
        self,
        scenario: Scenario,
        population: Population,
        *,
        like: Array,
        head_shape: tuple[int, int],
        claims: Array | None = None,
    ) -> None:
        self._scenario = scenario
        # Claims of benign peers [N, C]; None if the rule does not use claims.
        self._benign_claims = claims
        self._count, self._attack = scenario.attackers, scenario.attack.pointed_at(scenario.rule)
        self._trainees = min(1, self._count) if self._attack.one_head else self._count
        self._hold = samples_of(population.attackers_hold, np.arange(self._trainees))
        self.trained = scenario.start((self._trainees, *head_shape), like=like)
        self._knowing = bool(self._count) and self._attack.knows != Knowledge.NOTHING
        differs = self._knowing or (self._attack.stochastic and self._attack.equivocates)
        self._per_victim = bool(self._count) and differs and not self._attack.broadcasts
        self._sent: Array | None = None
        everything = self._knowing and self._attack.knows == Knowledge.EVERYTHING
        self._population = population
        # The step of each victim's latest training, and the classes that it can test.
        self._update: Array | None = None
        self._testable: Array | None = None
        if everything:
            self._update = HeadState.zeros((scenario.peers, *head_shape), like=like).head
            self._testable = from_numpy(population.testable(head_shape[0], scenario.rule), like=like)
        self._held = _flat(population.attackers_hold) if everything and not self._attack.flips_labels else None
        self._shared: Array | None = None
        self._claims: Array | None = None
        self._before: Array | None = None

    def claims(self, scene: IterationScene, rows: Integers | None) -> Array | None:
        """Return the claims of all senders of an inbox [B, M + K', C]; None if the rule does not use claims.

        Call it after `inbox`: attackers may make different claims to each victim.
        """
        benign = self._benign_claims
        if benign is None:
            return None
        xp = namespace(benign)
        senders = rows_of(scene.senders, rows)
        honest = senders[:, : scene.arrived.index.shape[1]]
        claims = rows_of(benign, honest.ravel())
        claims = xp.reshape(claims, (*honest.shape, benign.shape[-1]))
        if self._claims is None:
            return claims
        attackers = from_numpy(rows_of(scene.attackers, rows), like=benign)
        theirs = xp.broadcast_to(self._claims, (len(senders), *self._claims.shape[-2:]))
        return xp.concat([claims, take_rows(xp, theirs, attackers)], axis=1)

    @property
    def heads_per_victim(self) -> int:
        """Number of heads that the attackers craft for each victim separately."""
        return self._count if self._per_victim else 0

    def meet(self, scene: IterationScene) -> None:
        """Start an iteration: craft the heads that are the same for all victims."""
        self._before = self._sent
        if self._count and not self._per_victim:
            view = self._view(scene, None, self._sent)
            sent, claims = self._send(view, None), self._claimed(view)
            # What is broadcast is the same for all victims.
            self._shared = self._sent = sent[0, ...] if self._knowing else sent
            self._claims = claims[0, ...] if claims is not None and self._knowing else claims

    def inbox(self, scene: IterationScene, rows: Integers | None) -> tuple[Pool, Array | None]:
        """Return the heads that some of the benign peers receive (None: all), and their mask."""
        index, like = rows_of(scene.arrived.index, rows), scene.heads
        mask = scene.mask()
        found = None if mask is None else from_numpy(rows_of(mask, rows), like=like)
        if not self._count:
            heads, index = heard([scene.pool], index, rows)
            return Pool(heads, from_numpy(index, like=like)), found
        attackers = rows_of(scene.attackers, rows)
        sent = self._against(scene, rows) if self._per_victim else self._shared
        assert sent is not None
        if self._per_victim:
            attackers = np.arange(len(index))[:, None] * self._count + attackers
        together = np.concatenate([index, int(scene.pool.shape[0]) + attackers], axis=1)
        sent = namespace(like).reshape(sent, (-1, *scene.pool.shape[1:]))
        heads, together = heard([scene.pool, sent], together, rows)
        return Pool(heads, from_numpy(together, like=like)), found

    def observe(self, iteration: int, kept: HeadState, after: StepState) -> None:
        """Record the training step of each victim in an iteration, in all rows.

        `kept` is the state before the step. For a victim that did not act it is the step that it would have taken.
        """
        if self._update is None:
            return
        moved = after.head
        if self._scenario.rule.consolidates:
            held = self._population.training(None)
            trained = replace(self._scenario.precision.widened(kept), head=after.previous)
            moved = self._next(trained, held, np.arange(self._scenario.peers), iteration).head
        self._update = moved - after.previous

    def train(self, scene: IterationScene) -> None:
        """Train the attackers' heads by one step."""
        if self._count and self._attack.trains:
            everyone = np.arange(self._trainees) + self._scenario.peers
            self.trained = self._next(self.trained, self._hold, everyone, scene.iteration)

    def _against(self, scene: IterationScene, rows: Integers | None) -> Array:
        """Craft and remember the heads for some victims [B, K, C, D]."""
        own = self._own_heads()
        view = self._view(scene, rows, None if self._before is None else rows_of(self._before, rows))
        sent, self._claims = self._send(view, rows), self._claimed(view)
        if rows is not None and self._sent is None:
            self._sent = namespace(own).broadcast_to(own, (self._scenario.peers, *own.shape))
        self._sent = sent if rows is None else replaced(self._sent, rows, sent)
        return sent

    def _view(self, scene: IterationScene, rows: Integers | None, sent: Array | None) -> View:
        """Return the attackers' view; if heads differ between victims, with a leading axis for these."""
        own, mask = self._own_heads(), scene.arrived.mask
        total, claims = self._scenario.iterations, self._benign_claims
        view = View(own=own, iteration=scene.iteration, total=total, sent=sent, claims=claims)
        if not (self._knowing or self._per_victim):
            return view
        victims = self._scenario.peers if rows is None else len(rows)
        xp, shape = namespace(own), (victims, *own.shape)
        return replace(
            view,
            own=xp.broadcast_to(own, shape),
            sent=None if sent is None else xp.broadcast_to(sent, shape),
            inbox=Pool(scene.pool, from_numpy(rows_of(scene.arrived.index, rows), like=own)),
            inbox_mask=None if mask is None else from_numpy(rows_of(mask, rows), like=own),
            victim=rows_of(scene.heads, rows),
            update=None if self._update is None else rows_of(self._update, rows),
            testable=None if self._testable is None else rows_of(self._testable, rows),
            held=self._held,
        )

    def _claimed(self, view: View) -> Array | None:
        return None if self._benign_claims is None else self._attack.claimed(view)

    def _own_heads(self) -> Array:
        head = self.trained.head
        return namespace(head).broadcast_to(head, (self._count, *head.shape[1:]))

    def _next(self, state: HeadState, held: Samples, who: Integers, iteration: int) -> HeadState:
        """Return the state after one mini-batch of each of `who`, without consolidation."""
        drawn = draw(self._scenario.seed, Stream.BATCHES, who, iteration, int(held.labels.shape[-1]))
        draws, settings = from_numpy(drawn.astype(np.float32), like=held.features), self._scenario.training
        return train_step(state, held.features, held.labels, draws, index=held.index, settings=settings)

    def _send(self, view: View, rows: Integers | None) -> Array:
        if not self._attack.stochastic:
            return self._attack(view)
        shape, who = self._own_heads().shape, np.arange(1)
        if self._per_victim and self._attack.equivocates:
            # Separate draws for every victim, whichever are stepped together; 0 is for shared draws.
            who = 1 + (np.arange(self._scenario.peers) if rows is None else rows)
        drawn = draw_many(self._scenario.seed, Stream.ATTACK, who, view.iteration, prod(shape))
        uniforms = from_numpy(drawn.reshape(shape if len(who) == 1 and who[0] == 0 else (-1, *shape)), like=view.own)
        return self._attack(view, rng=namespace(view.own).broadcast_to(uniforms, view.own.shape))

    def state(self) -> dict[str, Array]:
        """Return all arrays that change, by name."""
        found = dict(zip(("head", "first", "second", "steps"), self.trained.arrays, strict=True))
        optional = {"sent": self._sent, "update": self._update}
        return found | {name: values for name, values in optional.items() if values is not None}

    def restore(self, state: dict[str, Array]) -> None:
        """Restore what `state` returned."""
        self.trained = HeadState(state["head"], state["first"], state["second"], state["steps"])
        self._sent, self._update = state.get("sent"), state.get("update")


def _flat(samples: Samples) -> Evaluation:
    """Return all samples of some peers, pooled."""
    xp, index = namespace(samples.features), samples.index.reshape((-1,))
    features = xp.take(samples.features, xp.where(index >= 0, index, xp.zeros_like(index)), axis=0)
    return Evaluation(features, xp.reshape(samples.labels, (-1,)))
