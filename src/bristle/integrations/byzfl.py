"""Bristle's rules as aggregators of ByzFL, and ByzFL's aggregators as rules.

    from bristle import rules
    from bristle.integrations.byzfl import AsAggregator, AsRule

    AsAggregator(rules.MDA(f=3))(vectors)                 # called as ByzFL's aggregators are
    rule = AsRule(aggregator="TrMean", parameters={"f": 3})   # a rule for `simulate`, peers and worlds

`register()` makes "Bristle" a name for ByzFL's configurations: `{"name": "Bristle", "parameters": {"rule": "mda",
"options": {"f": 3}}}`. Only `AsRule` and `register` need ByzFL (`pip install byzfl`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

from bristle import rules
from bristle._core import Array, namespace, to_numpy
from bristle._core.arrays import from_numpy, is_array
from bristle.rules import Inbox, Reason, Rule, Task, Verdict, stay
from bristle.rules.base import kept_or, per_class

NO_ANSWER = (Reason.TOO_FEW_MODELS, Reason.NOT_USED, Reason.NOTHING_TO_TEST_ON)
# A smaller share of the answer is rounding.
LEAST_SHARE = 1e-6


class AsAggregator:
    """A rule of Bristle that is called as ByzFL's aggregators are: `aggregator(vectors)` returns one vector.

    Vectors are NumPy arrays or torch tensors, stacked or in a list, of any shape; the answer is of the same library,
    type and device. Vectors that are not finite, or huge, are left out, where ByzFL's aggregators answer with NaN.

    Parameters
    ----------
    rule : Rule or str
        The rule, or its name.
    options : mapping, optional
        With a name: the rule's options, such as `{"f": 3}`.
    own : int
        Index of the own vector, for rules that distinguish it, like `idx` of ByzFL's MoNNA.
    """

    def __init__(self, rule: Rule | str, options: Mapping[str, Any] | None = None, own: int = 0) -> None:
        if isinstance(rule, str):
            rule = rules.create(rule, **dict(options or {}))
        elif options:
            raise ValueError("options= go with the name of a rule; give them to the rule itself")
        if not isinstance(rule, Rule):
            raise ValueError(f"rule must be a Rule or the name of one, not {rule!r}")
        if rule.test_samples or rule.shares != "heads":
            raise ValueError(
                f"{type(rule).__name__} tests heads on samples, which ByzFL's aggregators do not get; "
                "take a rule that needs vectors alone, such as mda"
            )
        self.rule, self.own = rule, own
        self._rng = np.random.default_rng(0)

    def __call__(self, vectors: Array | Sequence[Array]) -> Array:
        """Aggregate vectors [n, ...]."""
        stacked = _stacked(vectors)
        xp, count, shape = namespace(stacked), stacked.shape[0], tuple(stacked.shape[1:])
        kind = stacked.dtype
        if kind not in (xp.float32, xp.float64):
            stacked = xp.astype(stacked, xp.float32 if xp.isdtype(kind, "real floating") else xp.float64)
        if not -count <= self.own < count:
            raise ValueError(f"own={self.own} names none of the {count} vectors")
        heads = xp.reshape(stacked, (count, 1, -1))
        _, usable, _ = rules.stack(xp.zeros_like(heads[0, ...]), list(heads))
        there = np.flatnonzero(to_numpy(usable)).tolist()
        own = self.own % count
        if own not in there and self.rule.symmetric and there:
            own = there[0]
        if own not in there:
            raise ValueError(f"vector {own} is the own one and is not finite; choose another with own=")
        others = xp.asarray([place for place in there if place != own], dtype=xp.int64, device=heads.device)
        decision = self.rule(heads[own, ...], xp.take(heads, others, axis=0), rng=self._rng)
        reasons = [Reason(int(code)) for code in to_numpy(decision.reasons)]
        if reasons and all(reason in NO_ANSWER for reason in reasons) and not isinstance(self.rule, rules.Local):
            raise ValueError(f"{self.rule!r} has no answer for {len(there)} usable vectors: {reasons[0].words}")
        answer = xp.reshape(decision.head, shape)
        return xp.astype(answer, kind) if xp.isdtype(kind, "real floating") else answer


def register() -> None:
    """Register "Bristle" as an aggregator, so that ByzFL's configurations can name rules of Bristle."""
    _aggregators().Bristle = AsAggregator


@dataclass(frozen=True, kw_only=True)
class AsRule(Rule):
    """x' = what an aggregator of ByzFL makes of the own head and the received ones, own one first.

    Needs what the aggregator needs. It gets valid heads only, so that a NaN from a stranger does not reach it; if
    it answers with one nevertheless, or 2f ≥ n, the own head stays. Shares are those of the mixture of heads nearest to
    the answer, exact for aggregators that mix whole vectors. CAF and SMEA of ByzFL draw from global randomness: their
    answers do not repeat. O(n² d) besides the aggregator.

    Parameters
    ----------
    aggregator : str
        Its name in ByzFL: `TrMean`, `Krum`, `GeometricMedian`, ...
    parameters : mapping
        Its parameters, such as `{"f": 3}`.
    """

    aggregator: str
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._make()

    def decide(self, inbox: Inbox, task: Task) -> Verdict:
        """Ask the aggregator, receiver by receiver."""
        xp, own, count = inbox.xp, inbox.own, inbox.received + 1
        if 2 * int(self.parameters.get("f", 0)) >= count:
            return stay(inbox, Reason.TOO_FEW_MODELS)
        aggregate = self._make()
        heads = to_numpy(xp.stack(inbox.rows(0, own.shape[1]), axis=1))
        # Aggregators with a memory start anew: rules have none that is hidden.
        answers = np.stack([np.asarray(deepcopy(aggregate)(np.array(some))) for some in heads]).astype(heads.dtype)
        sound = np.isfinite(answers).all(axis=1)
        answers = np.where(sound[:, None], answers, heads[:, 0])
        shares = np.stack([_shares(*pair) for pair in zip(heads, answers, strict=True)]).astype(heads.dtype)
        weights, kept = from_numpy(shares, like=own), from_numpy(shares[:, 1:] > LEAST_SHARE, like=own)
        return Verdict(
            from_numpy(answers, like=own),
            lambda: per_class(inbox, weights),
            kept_or(xp, kept, Reason.NOT_CHOSEN),
            from_numpy(~sound, like=own),
        )

    def _make(self) -> Callable[[Any], Any]:
        known = _aggregators()
        made = getattr(known, self.aggregator, None)
        if not isinstance(made, type):
            names = sorted(name for name, value in vars(known).items() if isinstance(value, type))
            raise ValueError(f"ByzFL has no aggregator {self.aggregator!r}; it has {', '.join(names)}")
        try:
            aggregate: Callable[[Any], Any] = made(**dict(self.parameters))
        except TypeError as error:
            raise ValueError(f"ByzFL's {self.aggregator} does not take {dict(self.parameters)}: {error}") from None
        return aggregate


def _aggregators() -> Any:
    try:
        return import_module("byzfl.aggregators.aggregators")
    except ImportError as error:
        raise type(error)(f"ByzFL is needed for this: pip install byzfl ({error})", name=error.name) from None


def _stacked(given: Array | Sequence[Array]) -> Array:
    vectors: Any = given
    if isinstance(vectors, (list, tuple)):
        if not vectors or not all(is_array(vector) for vector in vectors):
            raise ValueError("vectors must be a list of NumPy arrays or torch tensors, at least one")
        shapes = {tuple(vector.shape) for vector in vectors}
        if len(shapes) > 1:
            raise ValueError(f"vectors must be of one shape, not of {', '.join(map(str, sorted(shapes)))}")
        vectors = namespace(*vectors).stack(list(vectors))
    if not is_array(vectors) or vectors.ndim < 2 or 0 in vectors.shape:
        raise ValueError("vectors must be NumPy arrays or torch tensors [n, ...], at least one with some numbers")
    return vectors


def _shares(heads: Any, answer: Any) -> Any:
    """Return the shares [n] of heads [n, F] in the mixture nearest to an answer [F]."""
    from_own = (heads[1:] - heads[0]).astype(np.float64)
    found = np.linalg.lstsq(from_own.T, (answer - heads[0]).astype(np.float64), rcond=None)[0]
    found = np.clip(found, 0, 1)
    total = found.sum()
    found = found / total if total > 1 else found
    return np.concatenate([[1 - found.sum()], found])
