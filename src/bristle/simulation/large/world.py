"""Worlds of very many peers that each hear few: torch tensors, on a CUDA device or on the processor.

The rules are the same, and so is a peer's iteration: what differs is where things lie. Heads, moments and what is
shared are kept once and changed in place, receivers come in chunks, draws are made on the device, samples stay in one
table, and nothing is kept of a decision but sums. On a CUDA device kernels read heads from the pool (`fused`), and for
rules that never wait for the device an iteration is captured once as a graph and replayed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bristle._core import Array, namespace
from bristle._core.rng import Stream, stream_key
from bristle.learning import Evaluation
from bristle.learning.optimiser import HeadState, paces
from bristle.learning.samples import Samples
from bristle.learning.training import Batch, head_step, mean_shift, trained_classes
from bristle.rules import RULES, STEPS, Bristle, FedAvg, Local, Rule, Task
from bristle.rules.steps import Chain
from bristle.simulation.large.device import draw_on_device, free_bytes
from bristle.simulation.large.fused import MOST_MODELS, Batches, Moments, WeightedSum, fused_for
from bristle.simulation.large.inbox import SparseInbox, TableRows
from bristle.simulation.large.memory import FORGETFUL, MemoryPlan, heard_by_each, one_list, plan_for, suits
from bristle.simulation.large.workers import Territory, Workers
from bristle.simulation.population import FeatureData, Population, populate
from bristle.simulation.scenario import Scenario
from bristle.simulation.topology import Integers, Neighbourhoods
from bristle.wire.sizes import head_bytes

# Rules that never wait for the device and do not depend on the iteration: their work can be captured as a graph.

CAPTURED = (Bristle, FedAvg, Local)


class LargeWorld:
    """A world of very many peers in the middle of a run. `advance()` is one iteration of all peers.

    Parameters
    ----------
    scenario : Scenario
        The world; `suits` says what is possible.
    data : FeatureData
        Torch tensors, on the device of the world.
    population : Population, optional
        The population of another world with the same scenario and data but for the rule.
    workers : Workers
        The processes that share the world.

    Raises
    ------
    ValueError
        If this cannot be a large world, or does not fit into memory.
    """

    def __init__(
        self,
        scenario: Scenario,
        data: FeatureData,
        *,
        population: Population | None = None,
        workers: Workers | None = None,
    ) -> None:
        import torch  # noqa: PLC0415

        scenario.check()
        reason = suits(scenario, data)
        if reason is not None:
            raise ValueError(f"this cannot be a large world: {reason}")
        self.scenario, self.data, self.iteration = scenario, data, 0
        self._own_rule = _is_own(scenario.rule)
        self._torch, self._device = torch, data.train.device
        self.head_shape = (len(data.classes), int(data.train.shape[1]))
        self.workers = workers or Workers()
        self.plan = self._planned()
        self.plan.check(free_bytes(self._device), where=str(self._device))
        around = Neighbourhoods(scenario).at(1)
        index = one_list(around, scenario.peers)
        self.territory = Territory(self.workers, scenario.peers, scenario.attackers, index)
        self.audience = around.audience
        self.population = populate(scenario, data) if population is None else population
        self._place(torch)
        self._graph: Any = None

    def _planned(self) -> MemoryPlan:
        scenario, workers, models = self.scenario, self.workers, heard_by_each(self.scenario)
        peers = len(workers.share_of(scenario.peers))
        nodes = peers + len(workers.share_of(scenario.attackers))
        # At most all others' heads, or all that its own peers hear.
        halo = min(scenario.peers + scenario.attackers - nodes, peers * models)
        classes, features = self.head_shape
        samples = int(self.data.train.shape[0]) + int(self.data.test.shape[0])
        sizes = {"classes": classes, "features": features, "samples": samples, "models": models}
        return plan_for(scenario, kind=self._device.type, nodes=nodes, halo=halo, **sizes)

    def _place(self, torch: Any) -> None:
        """Allocate the world on its device."""
        scenario, territory, device = self.scenario, self.territory, self._device
        nodes, classes = territory.nodes, self.head_shape[0]
        peers, attackers = territory.own_peers, territory.own_attackers
        self._peers = len(peers)
        self._ids = torch.arange(peers.start, peers.stop, device=device)
        self._attacker_ids = scenario.peers + torch.arange(attackers.start, attackers.stop, device=device)
        self._index = torch.as_tensor(territory.positions(), device=device)
        self._senders = self._index
        if self.workers.size > 1:
            self._senders = torch.as_tensor(territory.index[peers.start : peers.stop], device=device)
        self._held = _part(self.population.held, peers)
        self._attackers_hold = _part(self.population.attackers_hold, attackers)
        self._tests = _part(self.population.held_out, peers)
        assert self._tests.index is not None
        self._test_rows = self._tests.index.clamp(min=0).contiguous()
        self._trained = trained_classes(self._held.labels, classes)
        if not scenario.rule.consolidates:
            self._trained = (self._held.labels >= 0).any(dim=1)[:, None].expand(-1, classes).contiguous()
        self._attackers_train = (self._attackers_hold.labels >= 0).any(dim=1)[:, None].expand(-1, classes).contiguous()
        narrow = scenario.precision.shared != "same"
        self._table = self.data.train.to(torch.bfloat16) if narrow else self.data.train
        begun = HeadState.zeros((1, *self.head_shape), like=self.data.train)
        kinds = scenario.precision.narrowed(begun)
        self.nodes_heads = torch.zeros((nodes, *self.head_shape), device=device)
        self._first = torch.zeros((nodes, *self.head_shape), dtype=kinds.first.dtype, device=device)
        self._second = torch.zeros((nodes, *self.head_shape), dtype=kinds.second.dtype, device=device)
        self._steps = torch.zeros(nodes, dtype=torch.int64, device=device)
        width = self.head_shape[0] * self.head_shape[1]
        self._pool, self._exchange = territory.pool(width, like=self._table)
        self._claims = self._claimed() if scenario.rule.uses_claims else None
        forgets = type(scenario.rule) in FORGETFUL
        self._previous = None if forgets else torch.zeros((self._peers, width), device=device)
        self._keys = torch.zeros(2, dtype=torch.int64, device=device)
        self._given = torch.zeros(2, dtype=torch.float64, device=device)
        self._fused = fused_for(self.data.train) if self._index.shape[1] <= MOST_MODELS else None

    def _claimed(self) -> Array:
        """Return the classes that every node of the world claims [peers + attackers, C]; attackers claim all."""
        scenario, classes = self.scenario, self.head_shape[0]
        claims = np.ones((scenario.peers + scenario.attackers, classes), dtype=np.bool)
        claims[: scenario.peers] = self.population.claims(classes, scenario.rule)
        claims[: scenario.peers - round(scenario.claiming * scenario.peers)] = False
        return self._torch.as_tensor(claims, device=self._device)

    @property
    def heads(self) -> Array:
        """The heads of this worker's benign peers [peers, C, D]."""
        return self.nodes_heads[: self._peers]

    @property
    def held(self) -> Samples:
        """Training samples of the benign peers, as rows of the data."""
        return self.population.held

    @property
    def bytes_sent(self) -> Integers:
        """Bytes sent by each benign peer since the beginning."""
        return self.audience * (head_bytes(*self.head_shape) * self.iteration)

    @property
    def captured(self) -> bool:
        """Whether iterations are replays of a captured graph."""
        return self._graph is not None

    def advance(self, *, weigh: bool = False) -> tuple[float, float] | None:
        """Advance by one iteration: every peer integrates, trains and shares once.

        With `weigh`, return the mean weight of other benign peers and of attackers in a row of a head, over this
        worker's peers and the classes.
        """
        iteration, seed = self.iteration + 1, self.scenario.seed
        for place, stream in enumerate((Stream.BATCHES, Stream.MODELS)):
            self._keys[place].fill_(stream_key(seed, stream, iteration))
        captured = self._fused is not None and type(self.scenario.rule) in CAPTURED
        if weigh or self.iteration == 0 or not captured:
            self._iterate(iteration, weigh)
        else:
            if self._graph is None:
                self._graph = self._capture(iteration)
            self._graph.replay()
        if self._exchange is not None:
            self._exchange()
        self.iteration = iteration
        if not weigh:
            return None
        rows = max(1, self._peers * self.head_shape[0])
        benign, malicious = (self._given / rows).tolist()
        return benign, malicious

    def _capture(self, iteration: int) -> Any:
        torch = self._torch
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self._device), torch.cuda.graph(graph):
            self._iterate(iteration, weigh=False)
        return graph

    def _iterate(self, iteration: int, weigh: bool) -> None:
        self._given.zero_()
        for start in range(0, self._peers, self.plan.chunk):
            self._step(slice(start, min(start + self.plan.chunk, self._peers)), iteration, weigh)
        nodes = self.territory.nodes
        for start in range(self._peers, nodes, self.plan.chunk):
            self._attackers_step(slice(start, min(start + self.plan.chunk, nodes)))
        self._pool[:nodes].copy_(self.nodes_heads.view(nodes, -1))

    def _step(self, part: slice, iteration: int, weigh: bool) -> None:
        scenario, index = self.scenario, self._index[part]
        own = self.nodes_heads[part].view(index.shape[0], -1)
        who = self._torch.arange(part.start, part.stop, device=self._device)
        # Rules that never ask for the head before training return a weighted sum as it is.
        defers = self._previous is None
        inbox = SparseInbox(own, self.head_shape[0], self._pool, index, who, self._fused, defers)
        tests: Any = TableRows(self._table, self._test_rows[part])
        if not self._own_rule:  # A user's rule gets plain arrays, as everywhere else.
            tests = tests.gathered(own.dtype)
        task = Task(
            evaluation=Evaluation(tests, self._tests.labels[part]),
            claims=None if self._claims is None else self._claims[self._senders[part]],
            previous=None if self._previous is None else self._previous[part],
            senders=self._senders[part],
            draws=self._draws(1, self._ids[part], index.shape[1]) if scenario.rule.stochastic else None,
            iteration=iteration,
            total=scenario.iterations,
        )
        verdict = scenario.rule.decide(inbox if self._own_rule else inbox.gathered, task)
        if weigh:
            shares = verdict.weights()[:, 1:, :].sum(dim=2, dtype=self._torch.float64)
            malicious = (shares * (self._senders[part] >= scenario.peers)).sum()
            self._given += self._torch.stack([shares.sum() - malicious, malicious])
        head = verdict.head if isinstance(verdict.head, WeightedSum) else verdict.head.view(-1, *self.head_shape)
        rows = _rows(self._held, part)
        self._train(head, part, rows, self._ids[part], self._trained[part], level=scenario.rule.consolidates)

    def _attackers_step(self, part: slice) -> None:
        local = slice(part.start - self._peers, part.stop - self._peers)
        rows, ids = _rows(self._attackers_hold, local), self._attacker_ids[local]
        self._train(self.nodes_heads[part], part, rows, ids, self._attackers_train[local], level=False)

    def _train(self, head: Any, part: slice, held: Samples, ids: Array, trained: Array, *, level: bool) -> None:
        """Train integrated heads [B, C, D] and store them; with `level`, on rows about their means."""
        settings, precision, torch = self.scenario.training, self.scenario.precision, self._torch
        assert held.index is not None
        draws = self._draws(0, ids, held.labels.shape[1])
        if self._previous is not None and part.stop <= self._peers:
            head = mean_shift(head) if level else head
            self._previous[part], level = head.reshape(head.shape[0], -1), False
        if self._fused is not None:
            labels, rows, shares = self._fused.batches(draws, held.labels, held.index, settings.batch)
            self._steps[part] += (held.labels >= 0).any(dim=1)
            pace = paces(namespace(draws), self._steps[part].clamp(min=1), torch.float32, settings)
            batches = Batches(self.data.train, rows, labels, shares, trained)
            moments = Moments(self._first[part], self._second[part], precision.moments != "same")
            self._fused.train(head, self.nodes_heads[part], moments, batches, pace, settings, level=level)
            return
        head = mean_shift(head) if level else head
        chosen = _smallest(draws, held.labels >= 0, settings.batch)
        kept = HeadState(head, self._first[part], self._second[part], self._steps[part])
        batch = Batch(held.labels.where(chosen, -1), self.data.train, held.index.clamp(min=0))
        after = precision.narrowed(head_step(precision.widened(kept), batch, trained, settings, donate=False))
        self.nodes_heads[part], self._first[part], self._second[part] = after.head, after.first, after.second
        self._steps[part] = after.steps

    def _draws(self, place: int, ids: Array, size: int) -> Array:
        return draw_on_device(self._torch, self._keys[place], ids, size)


def _is_own(rule: Rule) -> bool:
    """Return whether a rule is one of Bristle's, and so are the steps before it."""
    if isinstance(rule, Chain):
        return _is_own(rule.rule) and all(type(step) in STEPS.values() for step in rule.steps)
    return type(rule) in RULES.values()


def _smallest(draws: Array, real: Array, size: int) -> Array:
    """Mark the real samples [B, S] with the `size` smallest draws; among equal draws the first ones."""
    if size >= draws.shape[1]:
        return real
    xp = namespace(draws)
    keys = xp.where(real, draws, xp.full_like(draws, 2.0))
    before = keys[:, None, :] < keys[:, :, None]
    place = xp.arange(draws.shape[1], device=draws.device)
    tied = (keys[:, None, :] == keys[:, :, None]) & (place[None, :] < place[:, None])
    return real & ((before | tied).sum(dim=2) < size)


def _part(samples: Samples, rows: range) -> Samples:
    # Kernels need contiguous rows.
    some = _rows(samples, slice(rows.start, rows.stop))
    assert some.index is not None
    return Samples(some.features, some.labels.contiguous(), some.index.contiguous())


def _rows(samples: Samples, part: slice) -> Samples:
    assert samples.index is not None
    return Samples(samples.features, samples.labels[part], samples.index[part])
