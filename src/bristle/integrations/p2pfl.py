"""An aggregator for p2pfl that follows any rule of Bristle, and says of every model what became of it.

    from bristle import rules
    from bristle.integrations.p2pfl import RuleAggregator

    node = Node(model, data, aggregator=RuleAggregator(rules.Krum(f=3)))

Needs p2pfl 0.4 (`pip install p2pfl`), which is under the GPL: a program that uses this module together with it is, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

try:
    from p2pfl.learning.aggregators.aggregator import Aggregator, NoModelsToAggregateError
    from p2pfl.learning.frameworks.p2pfl_model import P2PFLModel
except ImportError as error:
    raise type(error)(f"bristle.integrations.p2pfl needs p2pfl: pip install p2pfl ({error})", name=error.name) from None

from bristle.integrations.layout import Layout, check_rule_fits
from bristle.learning.metrics import Evaluation
from bristle.rules import Context, Reason, Rule, stack


class RuleAggregator(Aggregator):  # type: ignore[misc]
    """p2pfl's aggregation by a rule of Bristle: the node's own model is the own head, those of others are received.

    Parameters
    ----------
    rule : Rule
        How to aggregate, e.g. `rules.Krum(f=3)` or `Bristle()`.
    evaluation : Evaluation, optional
        The node's held-out samples, for rules that test: features [T, D] as the head gets them, and labels [T].
    head : tuple of int
        For rules that test: the positions among p2pfl's parameters of the weights [C, D], and of the bias [C] if there
        is one. The model has no others.
    seed : int
        For rules that draw random numbers.

    Attributes
    ----------
    fates : dict
        What became of the latest models, in words, by the address of who trained them.
    """

    SUPPORTS_PARTIAL_AGGREGATION = False

    def __init__(
        self, rule: Rule, *, evaluation: Evaluation | None = None, head: Sequence[int] = (), seed: int = 0
    ) -> None:
        check_rule_fits(rule, head=[str(place) for place in head], evaluation=evaluation, own_update=True)
        super().__init__()
        self.rule = rule
        self.fates: dict[str, str] = {}
        self._evaluation, self._head = evaluation, tuple(str(place) for place in head)
        self._rng = np.random.default_rng(seed)
        self._round = 0
        self._state: Mapping[str, Any] | None = None
        self._answer: Any = None

    def aggregate(self, models: list[P2PFLModel]) -> P2PFLModel:
        """Return the new model, with all contributors whose models were considered."""
        if not models:
            raise NoModelsToAggregateError(f"({self.addr}) there are no models to aggregate")
        self._round += 1
        ordered = sorted(models, key=lambda one: (self.addr not in one.get_contributors(), one.get_contributors()))
        mine = ordered[0]
        if self.addr not in mine.get_contributors():
            raise NoModelsToAggregateError(f"({self.addr}) its own model is not among those to aggregate")
        own = _named(mine.get_parameters())
        layout = Layout.of(own, self._head)
        heads = [_head_of(model, layout) for model in ordered[1:]]
        received, usable, refusals = stack(layout.to_head(own), heads)
        decision = self.rule(
            layout.to_head(own),
            received,
            mask=usable,
            evaluation=None if self._evaluation is None or not self._head else layout.evaluation(self._evaluation),
            context=Context(iteration=self._round, total=self._round, previous=self._answer, state=self._state),
            rng=self._rng,
        ).with_refusals(refusals)
        self._state, self._answer = decision.state, np.asarray(decision.head)
        self.fates = {
            address: decision.explain(place)
            for place, model in enumerate(ordered[1:])
            for address in model.get_contributors()
        }
        used = [mine, *(m for m, code in zip(ordered[1:], decision.reasons, strict=True) if code == Reason.KEPT)]
        return mine.build_copy(
            params=list(layout.from_head(np.asarray(decision.head)).values()),
            num_samples=sum(model.get_num_samples() for model in used),
            contributors=[address for model in models for address in model.get_contributors()],
        )


def _named(parameters: Sequence[Any]) -> dict[str, Any]:
    return {str(place): np.asarray(array) for place, array in enumerate(parameters)}


def _head_of(model: P2PFLModel, layout: Layout) -> Any:
    """Return a model as a head; what `stack` refuses with a reason, if it is not one."""
    try:
        arrays = _named(model.get_parameters())
    except (TypeError, ValueError):
        return np.empty(0)
    return layout.to_head(arrays) if layout.fits(arrays) else np.empty(0)
