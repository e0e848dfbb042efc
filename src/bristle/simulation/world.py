"""An ordinary world: benign peers and attackers, stepped in batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from bristle._core import Array, to_numpy
from bristle._core.arrays import from_numpy
from bristle._core.rng import Stream, draw, draw_normals
from bristle.learning.baselines import accuracy_on
from bristle.learning.metrics import Evaluation
from bristle.learning.samples import Samples
from bristle.peer.step import StepState, step
from bristle.rules import Decision
from bristle.simulation.adversary import Adversary, IterationScene
from bristle.simulation.exchange import Exchange, augmented, with_ones
from bristle.simulation.indexing import SPARSE, arrays_of, joined, rows_of, state_of
from bristle.simulation.mailbox import Mailbox, Schedule
from bristle.simulation.population import KEPT_BYTES, FeatureData, populate, samples_of
from bristle.simulation.scenario import Scenario
from bristle.simulation.topology import Booleans, Integers, Neighbourhoods
from bristle.wire.grid import GridHead, encode_grid, on_grid
from bristle.wire.sizes import head_bytes


def published(scenario: Scenario, heads: Array, iteration: int) -> Array:
    """Return heads [peers, C, D] as shared in an iteration: unchanged, or clipped and with noise."""
    if scenario.sharing.plain:
        return heads
    peers, classes, features = heads.shape
    normals = None
    if scenario.sharing.noise:
        drawn = draw_normals(scenario.seed, Stream.SHARING, range(peers), iteration, classes * features)
        normals = from_numpy(drawn.reshape(heads.shape), like=heads, dtype=heads.dtype)
    return scenario.sharing(heads, normals)


CHUNK_BYTES = 64 << 20
"""Memory budget for the heads that a chunk of receivers hears, if each hears few of all."""


@dataclass(frozen=True, eq=False)
class Round:
    """One iteration of a world.

    Parameters
    ----------
    iteration : int
        Number of the iteration, from 1.
    receivers : integer array [B]
        The benign peers that acted.
    senders : integer array [B, M]
        The senders that each of them hears; attackers are numbered after the benign peers, -1 is padding.
    mask : boolean array [B, M], optional
        False where nothing was received (None: all received).
    decision : Decision [B, M]
        Their decisions.
    """

    iteration: int
    receivers: Integers
    senders: Integers
    mask: Booleans | None
    decision: Decision


class World:
    """A world in the middle of a run. `advance()` is one iteration of all peers; nothing else changes the world."""

    def __init__(self, scenario: Scenario, data: FeatureData) -> None:
        scenario.check()
        if scenario.precision.shared == "bfloat16":
            raise ValueError(
                "shared='bfloat16' is for large worlds on a device: share heads as they are (same) or on a grid (grid)"
            )
        if scenario.precision.shared == "grid" and scenario.rule.shares != "heads":
            raise ValueError(
                f"shared='grid' is for heads, and {type(scenario.rule).__name__} needs {scenario.rule.shares}"
            )
        self.scenario = scenario
        self.data = data
        self.iteration = 0
        peers, classes = scenario.peers, len(data.classes)
        self.population = populate(scenario, data)
        self.head_shape = (classes, int(data.train.shape[1]))
        begun = scenario.start((peers, *self.head_shape), like=data.train)
        self.state = StepState.start(scenario.precision.narrowed(begun), scenario.rule)
        self.bytes_sent = np.zeros(peers, dtype=np.int64)
        self.public: GridHead | None = None
        """The heads that benign peers shared last [peers, C, D], if they share on a grid."""
        benign: Array | None = None
        if scenario.rule.uses_claims:
            claims = self.population.claims(classes, scenario.rule)
            claims[: peers - round(scenario.claiming * peers)] = False
            benign = from_numpy(claims, like=data.train)
        self.adversary = Adversary(
            scenario, self.population, like=data.train, head_shape=self.head_shape, claims=benign
        )
        self.exchange = Exchange(scenario, self.population, classes) if scenario.rule.shares == "evidence" else None
        self.bias: Array | None = None
        self._message_bytes: Integers = np.array(head_bytes(*self.head_shape))
        self._neighbourhoods = Neighbourhoods(scenario)
        self._neighbourhoods.at(1)  # raises if the topology is impossible
        self._schedule = Schedule(scenario.asynchrony, peers=peers, total=scenario.iterations, seed=scenario.seed)
        self.mailbox = Mailbox(scenario.asynchrony, self.heads, self._schedule.present(1), seed=scenario.seed)
        held_out = prod(self.population.held_out.labels.shape) * self.head_shape[1] * 4
        small = held_out <= KEPT_BYTES
        self._evaluation = self.population.evaluation(None) if small else None
        self._training = self.population.training(None) if small else None

    @property
    def heads(self) -> Array:
        """The heads of the benign peers [peers, C, D]."""
        return self.state.head

    @property
    def scoring(self) -> tuple[Array, Array]:
        """Heads and test features whose products are scores; with a further column if heads have a bias."""
        if self.bias is None:
            return self.heads, self.data.test
        return augmented(self.heads, self.bias), self.test_with_ones

    @cached_property
    def test_with_ones(self) -> Array:
        """The test features with a 1 at the end, for heads with a bias."""
        return with_ones(self.data.test)

    @property
    def held(self) -> Samples:
        """Training samples of the benign peers, as rows of the data."""
        return self.population.held

    @property
    def evaluation(self) -> Evaluation:
        """Held-out samples of the benign peers."""
        return self.population.evaluation(None) if self._evaluation is None else self._evaluation

    def advance(self, *, weigh: bool = True) -> Round:
        """Advance by one iteration: every acting peer integrates, trains and shares once. Return their decisions.

        Without `weigh`, decisions have weights only if all receivers were stepped at once.
        """
        iteration = self.iteration + 1
        if self.exchange is not None:
            return self._exchanged(self.exchange, iteration)
        scenario, schedule, mailbox = self.scenario, self._schedule, self.mailbox
        present, acting = schedule.present(iteration), schedule.acting(iteration)
        around = self._neighbourhoods.at(iteration)
        mailbox.absent(present, iteration)
        arrived = mailbox.arrived(around.peers, present, iteration)
        theirs = around.attackers
        scene = IterationScene(
            iteration=iteration,
            heads=self.heads,
            pool=mailbox.heads,
            arrived=arrived,
            attackers=theirs.index,
            attackers_mask=_both(theirs.mask, mailbox.kept(theirs.index, iteration)),
            senders=np.concatenate([around.peers.index, scenario.peers + theirs.index], axis=1),
        )
        receivers = np.flatnonzero(acting)
        self.adversary.meet(scene)
        chunks = list(self._chunks(scene, receivers)) or [receivers]
        parts = (self._step(scene, rows) for rows in chunks)
        chosen = None if len(receivers) == scenario.peers else receivers
        before, (self.state, decision) = self.state, joined(self.state, chosen, parts, len(chunks), weigh=weigh)
        self.adversary.observe(iteration, before.trained, self.state)
        self.adversary.train(scene)
        mailbox.put(self._shared(acting, iteration), acting, iteration)
        self.bytes_sent = self.bytes_sent + np.where(acting, around.audience * self._message_bytes, 0)
        self.iteration = iteration
        mask = scene.mask()
        return Round(
            iteration,
            receivers,
            rows_of(scene.senders, chosen),
            None if mask is None else rows_of(mask, chosen),
            decision,
        )

    def _shared(self, acting: Booleans, iteration: int) -> Array:
        """Return the heads that benign peers share; those that do not act keep the last one."""
        heads = published(self.scenario, self.heads, iteration)
        if self.scenario.precision.shared != "grid":
            return heads
        before, now = self.public, on_grid(to_numpy(heads), self.public)
        if before is not None:
            now.exponents[~acting], now.steps[~acting] = before.exponents[~acting], before.steps[~acting]
        self.public = now
        bodies = [
            len(encode_grid(now[peer], None if before is None else before[peer])) if acting[peer] else 0
            for peer in range(len(acting))
        ]
        self._message_bytes = np.array([head_bytes(*self.head_shape, body=body) for body in bodies])
        return from_numpy(now.values(), like=heads)

    def _exchanged(self, exchange: Exchange, iteration: int) -> Round:
        found, sent = exchange.advance(self._neighbourhoods.at(iteration), iteration, self.data.train)
        decision, moved = found.decision, replace(self.state.trained, head=found.decision.head)
        self.state, self.bias = StepState(moved, self.state.head), decision.bias
        self.bytes_sent = self.bytes_sent + sent
        self.iteration = iteration
        return Round(iteration, np.arange(self.scenario.peers), found.senders, found.mask, decision)

    def accuracy(self) -> Array:
        """Return the accuracy of each benign peer on the whole test set [peers]."""
        return accuracy_on(*self.scoring, self.data.test_labels)

    def _chunks(self, scene: IterationScene, receivers: Integers) -> Iterator[Integers]:
        models = scene.arrived.index.shape[1] + scene.attackers.shape[1]
        size = self.scenario.receivers_at_once
        if size is None:
            one_victim = self.adversary.heads_per_victim
            heads = scene.pool.shape[0] + (one_victim * self.scenario.peers or self.scenario.attackers)
            # Receivers that hear many of all heads share the pool; others need copies.
            shared = heads <= SPARSE * (models + 1)
            per_receiver = 4 * self.head_shape[0] * self.head_shape[1] * (models + 1 + one_victim)
            size = len(receivers) if shared else max(1, CHUNK_BYTES // per_receiver)
        for start in range(0, len(receivers), max(1, size)):
            yield receivers[start : start + size]

    def _step(self, scene: IterationScene, receivers: Integers) -> tuple[StepState, Decision]:
        scenario, iteration = self.scenario, scene.iteration
        rows = None if len(receivers) == scenario.peers else receivers
        received, mask = self.adversary.inbox(scene, rows)
        models = int(received.index.shape[-1])
        if self._evaluation is None or self._training is None:
            evaluation, samples = self.population.evaluation(rows), self.population.training(rows)
        else:
            held_out, held = self._evaluation, self._training
            evaluation = Evaluation(rows_of(held_out.features, rows), rows_of(held_out.labels, rows))
            if held.index is None:
                samples = Samples(rows_of(held.features, rows), rows_of(held.labels, rows))
            else:
                samples = samples_of(held, rows)
        before = state_of({name: rows_of(values, rows) for name, values in arrays_of(self.state).items()})
        state, decision = step(
            replace(before, trained=scenario.precision.widened(before.trained)),
            received,
            rule=scenario.rule,
            samples=samples,
            evaluation=evaluation,
            mask=mask,
            claims=self.adversary.claims(scene, rows),
            batch_draws=self._draws(Stream.BATCHES, receivers, iteration, int(samples.labels.shape[-1])),
            model_draws=self._draws(Stream.MODELS, receivers, iteration, models) if scenario.rule.stochastic else None,
            senders=from_numpy(rows_of(scene.senders, rows), like=self.heads),
            iteration=iteration,
            total=scenario.iterations,
            settings=scenario.training,
        )
        return replace(state, trained=scenario.precision.narrowed(state.trained)), decision

    def _draws(self, stream: Stream, peers: Integers, iteration: int, size: int) -> Array:
        # Draws are 32-bit like the features, so that every library sees the same numbers.
        drawn = draw(self.scenario.seed, stream, peers, iteration, size).astype(np.float32)
        return from_numpy(drawn, like=self.heads)

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return all arrays that change between iterations, by name."""
        precision, state = self.scenario.precision, arrays_of(self.state)
        found = {
            **state,
            **{name: precision.plain(state[name], state["head"]) for name in ("first", "second")},
            "bytes_sent": self.bytes_sent,
            "iteration": np.array(self.iteration),
            **{f"mailbox.{name}": values for name, values in self.mailbox.state().items()},
            **{f"adversary.{name}": values for name, values in self.adversary.state().items()},
        }
        if self.exchange is not None and self.bias is not None:
            found |= {"bias": self.bias, "known": self.exchange.known, "decided": np.array(self.exchange.decided)}
        if self.public is not None:
            found |= {"public.exponents": self.public.exponents, "public.steps": self.public.steps}
        if self.mailbox.depth == 1 and self.scenario.sharing.plain and self.public is None:
            del found["mailbox.slots"]  # They are the heads.
        return {name: to_numpy(values) for name, values in found.items()}

    def restore(self, arrays: dict[str, np.ndarray[Any, Any]]) -> None:
        """Restore what `arrays` returned, in a world of the same scenario and data."""

        def of(name: str) -> Array:
            return from_numpy(arrays[name], like=self.data.train)

        names = [name for name in arrays if name in arrays_of(self.state)]
        moments = {name: self.scenario.precision.kept(of(name)) for name in ("first", "second")}
        self.state = state_of({name: of(name) for name in names} | moments)
        self.bytes_sent = arrays["bytes_sent"]
        if self.exchange is not None and "bias" in arrays:
            self.bias = of("bias")
            self.exchange.restore(arrays["known"], int(arrays["decided"]))
        if "public.steps" in arrays:
            self.public = GridHead(arrays["public.exponents"], arrays["public.steps"])
        self.iteration = int(arrays["iteration"])
        slots = of("mailbox.slots") if "mailbox.slots" in arrays else self.heads
        self.mailbox.restore({"acted": arrays["mailbox.acted"], "shared": arrays["mailbox.shared"], "slots": slots})
        start = len("adversary.")
        self.adversary.restore({name[start:]: of(name) for name in arrays if name.startswith("adversary.")})


def _both(first: Booleans | None, second: Booleans | None) -> Booleans | None:
    if first is None or second is None:
        return second if first is None else first
    return first & second
