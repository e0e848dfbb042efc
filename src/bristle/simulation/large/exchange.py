"""One exchange of statements among very many peers: the statement of each, and its decision about its neighbours'.

Statements lie once in tables, in 32 bits or in the 16 that travel; receivers come in chunks, which gather what they
hear. The few that have too few samples for that are asked one by one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bristle._core import Array, to_numpy
from bristle.learning.metrics import Evaluation
from bristle.rules import Local
from bristle.rules.evidence import Evidence, Statement
from bristle.rules.evidence.voices import SKETCHES
from bristle.simulation.large.device import free_bytes
from bristle.simulation.large.evidence import Stated, Verdicts, weigh
from bristle.simulation.large.memory import WORKING_BYTES, heard_by_each, one_list, suits
from bristle.simulation.large.scatter import Sketches, principal
from bristle.simulation.population import FeatureData, Population, populate
from bristle.simulation.scenario import Scenario
from bristle.simulation.topology import Neighbourhoods


@dataclass(frozen=True, kw_only=True)
class ExchangePlan:
    """Memory of one exchange in bytes.

    Parameters
    ----------
    nodes : int
        Benign peers and attackers.
    statements, heads, lists : int
        Kept of each node: what it states, its head and what it holds, and lists of samples and neighbours.
    tables : int
        Features of all samples.
    chunk : int
        How many receivers are worked on together.
    working : int
        Room for them.
    """

    nodes: int
    statements: int
    heads: int
    lists: int
    tables: int
    chunk: int
    working: int

    @property
    def total(self) -> int:
        """All bytes."""
        return self.nodes * (self.statements + self.heads + self.lists) + self.tables + self.working

    def check(self, free: int, *, where: str) -> None:
        """Refuse an exchange that does not fit, with what would."""
        if self.total <= free:
            return
        fits = max(0, (free - self.tables - self.working) // (self.statements + self.heads + self.lists))
        raise ValueError(
            f"an exchange of {self.nodes:,} nodes takes {self.total / 1e9:,.1f} GB, but {where} has {free / 1e9:,.1f} "
            f'GB free: make it {fits:,} nodes, or state means and scatter in 16 bits (shared = "bfloat16")'
        )


class LargeExchange:
    """Peers that publish a statement, hear their neighbours once, and decide. `decide()` does it for all of them.

    Nothing is passed on here: every peer weighs what its neighbours state themselves. That is the first exchange of an
    ordinary world.

    Parameters
    ----------
    scenario : Scenario
        The world, with the rule `evidence`; its attackers state their own samples with the labels that they use.
    data : FeatureData
        Torch tensors, on the device where the exchange is to happen.

    Raises
    ------
    ValueError
        If the world does not suit, or does not fit into memory; it says what would.
    """

    def __init__(self, scenario: Scenario, data: FeatureData) -> None:
        import torch  # noqa: PLC0415

        scenario.check()
        rule = scenario.rule
        if not isinstance(rule, Evidence):
            raise ValueError(f"{type(rule).__name__} exchanges heads: give a LargeWorld to it")
        reason = suits(replace(scenario, rule=Local()), data)  # but for the rule, as worlds of heads
        if reason is None and (rule.cautious or rule.withheld or rule.coarse_counts or rule.privacy is not None):
            reason = "its peers must state all that they hold, and not be cautious"
        if reason is None and heard_by_each(scenario) >= SKETCHES:
            reason = f"a peer must hear fewer than {SKETCHES} others"
        if reason is not None:
            raise ValueError(f"this cannot be a large exchange: {reason}")
        self._torch, self.rule, self.scenario, self.data = torch, rule, scenario, data
        self._device = data.train.device
        self.plan = self._planned()
        self.plan.check(free_bytes(self._device), where=str(self._device))
        self.population: Population = populate(scenario, data)
        index = one_list(Neighbourhoods(scenario).at(1), scenario.peers)
        self.index = torch.as_tensor(index, device=self._device)
        self._place()

    def _planned(self) -> ExchangePlan:
        scenario, features, classes = self.scenario, int(self.data.train.shape[1]), len(self.data.classes)
        senders, width = heard_by_each(scenario) + 1, 4 if scenario.precision.shared == "same" else 2
        samples = scenario.classes_per_peer * (scenario.samples_per_class + scenario.held_out * self.rule.held_out)
        rank = min(max(1, round(self.rule.rank * samples**0.5)), samples, features)
        factors, claims = senders * rank, senders * classes
        # Sketches as they are gathered, scaled and cut; means in three forms; products of both; samples in three forms.
        one = 4 * features * (4 * factors + 3 * claims + 4 * samples + 8 * senders)
        one += 4 * (4 * factors * factors + 8 * claims * claims + 3 * factors * claims)
        one += 8 * (6 * senders * senders * rank * rank + 8 * classes * senders * senders * classes)
        chunk = max(1, min(scenario.receivers_at_once or 1 << 14, WORKING_BYTES[self._device.type] // one))
        chunk = min(chunk, scenario.peers)
        return ExchangePlan(
            nodes=scenario.peers + scenario.attackers,
            statements=width * features * (classes + rank + 1) + 4 * features + 8 * classes + 16,
            heads=4 * features * classes + 8 * classes,
            lists=8 * (senders + 4 * samples),
            tables=4 * features * int(self.data.train.shape[0] + self.data.test.shape[0]),
            chunk=chunk,
            working=one * chunk,
        )

    def _place(self) -> None:
        """Compute the statements of all peers."""
        torch, scenario, depth = self._torch, self.scenario, int(self.data.train.shape[1])
        nodes, classes = scenario.peers + scenario.attackers, len(self.data.classes)
        narrow = torch.float32 if scenario.precision.shared == "same" else torch.float16
        held = [self.population.held] + ([self.population.held_out] if self.rule.held_out else [])
        self._own = tuple(torch.cat(parts, dim=1) for parts in self._joined(held))
        theirs = self._joined([self.population.attackers_hold])
        parts = [self._own, tuple(torch.cat(part, dim=1) for part in theirs)]
        every = [self._freedom(labels) for _, labels in parts]
        self._freedoms = torch.cat(every)
        ranks = self._ranks(self._freedoms)
        rank = int(ranks.max())
        like = {"dtype": narrow, "device": self._device}
        self._rows = torch.zeros((nodes, classes, depth), **like)
        self._counts = torch.zeros((nodes, classes), device=self._device)
        self._factors = torch.zeros((nodes, rank, depth), **like)
        self._diagonal = torch.zeros((nodes, depth), **like)
        self._totals = torch.zeros((nodes, depth), device=self._device)
        first = 0
        for index, labels in parts:
            for start in range(0, len(labels), self.plan.chunk):
                some = slice(start, start + self.plan.chunk)
                self._state(first + start, index[some], labels[some])
            first += len(labels)

    def _joined(self, held: list[Any]) -> tuple[list[Array], list[Array]]:
        """Return positions and labels of samples, in lists."""
        torch, device = self._torch, self._device
        indices = [torch.as_tensor(to_numpy(one.index), device=device).clamp(min=0) for one in held]
        return indices, [torch.as_tensor(to_numpy(one.labels), device=device) for one in held]

    def _freedom(self, labels: Array) -> Array:
        counts = (labels[:, :, None] == self._torch.arange(len(self.data.classes), device=self._device)).sum(dim=1)
        return (counts - 1).clamp(min=0).sum(dim=1).double()

    def _ranks(self, freedom: Array) -> Array:
        most = freedom.clamp(min=1)
        wanted = self._torch.round(self.rule.rank * most.sqrt()).clamp(min=1)
        return self._torch.minimum(wanted, most).long()

    def _state(self, first: int, index: Array, labels: Array) -> None:
        """Write the statements of some nodes, from `first` on."""
        torch, part = self._torch, slice(first, first + len(labels))
        real = labels >= 0
        features = self.data.train[index] * real[:, :, None]
        kinds = torch.arange(len(self.data.classes), device=self._device)
        hot = (labels[:, :, None] == kinds).to(features.dtype)
        counts = hot.sum(dim=1)
        means = hot.mT @ features / counts.clamp(min=1)[:, :, None]
        rest = (features - hot @ means) * real[:, :, None]
        freedom = self._freedoms[part]
        sketch = principal(torch, rest, freedom.clamp(min=1), self._ranks(freedom))
        variance = (rest * rest).sum(dim=1) / freedom.clamp(min=1).to(rest.dtype)[:, None]
        taken = (sketch * sketch).sum(dim=1)
        left = (variance - taken).clamp(min=0)
        self._rows[part], self._counts[part] = means.to(self._rows.dtype), counts
        self._factors[part, : sketch.shape[1]] = sketch.to(self._rows.dtype)
        self._diagonal[part], self._totals[part] = left.to(self._rows.dtype), left + taken

    def decide(self) -> Verdicts:
        """Return the decisions of all benign peers about their neighbours' statements."""
        torch, found = self._torch, []
        for start in range(0, self.scenario.peers, self.plan.chunk):
            found.append(self._weighed(slice(start, min(start + self.plan.chunk, self.scenario.peers))))
        parts = [[getattr(one, name) for one in found] for name in Verdicts.__dataclass_fields__]
        return Verdicts(*(torch.cat(part) for part in parts))

    def _weighed(self, part: slice) -> Verdicts:
        torch = self._torch
        own = torch.arange(part.start, part.stop, device=self._device)
        who = torch.cat([own[:, None], self.index[part]], dim=1)
        index, labels = (values[part] for values in self._own)
        features = self.data.train[index]
        freedom = self._freedoms[who]
        sketches = Sketches(
            self._factors[who].float(), self._diagonal[who].float(), self._totals[who], freedom.clamp(min=1)
        )
        answer = weigh(torch, self.rule, Stated(self._rows[who].float(), self._counts[who], sketches), features, labels)
        unusual = answer.unusual | (freedom < 1).any(dim=1)
        for place in torch.nonzero(unusual)[:, 0].tolist():
            self._alone(answer, place, who[place], features[place], labels[place])
        return answer

    def _alone(self, into: Verdicts, place: int, who: Array, features: Array, labels: Array) -> None:
        """Decide for one receiver by the general method, which handles all cases."""
        own, *theirs = (self.statement(int(one)) for one in who)
        weighed = self.rule.weigh(own, theirs, Evaluation(to_numpy(features), to_numpy(labels)))
        answer = weighed.answer
        into.head[place] = self._torch.as_tensor(answer.head).to(into.head)
        into.bias[place] = self._torch.as_tensor(answer.bias).to(into.bias)
        shares = np.concatenate([np.zeros((1, len(answer.bias))), weighed.weights])
        answered = np.isin(np.arange(len(answer.bias)), answer.known)
        shares[0] = np.where(answered, 1 - shares.sum(axis=0), 0)
        into.weights[place] = self._torch.as_tensor(shares).to(into.weights)

    def statement(self, node: int) -> Statement:
        """Return what a node states."""
        rank = int(self._ranks(self._freedoms[node : node + 1])[0])
        parts = (self._rows[node], self._counts[node], self._factors[node, :rank], self._diagonal[node])
        return Statement(*(to_numpy(each.float()) for each in parts))

    def accuracy(self, answer: Verdicts, peers: Array | None = None) -> Array:
        """Return the accuracy of some benign peers (None: all) on the whole test set."""
        torch, test, labels = self._torch, self.data.test, self.data.test_labels
        chosen = torch.arange(len(answer.head), device=self._device) if peers is None else peers
        found = []
        for peer in chosen.tolist():
            scores = test @ answer.head[peer].T + answer.bias[peer].to(test.dtype)
            found.append((scores.argmax(dim=1) == labels).double().mean())
        return torch.stack(found)
