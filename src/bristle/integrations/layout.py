"""How the arrays of another library's model become one head, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from bristle.learning.metrics import Evaluation
from bristle.rules import Rule
from bristle.rules.steps import Chain
from bristle.rules.tested import FLTrust

Arrays = Mapping[str, Any]


@dataclass(frozen=True)
class Layout:
    """Names, shapes and types of a model's arrays, and which of them are the head that a rule tests.

    Without a head, all numbers are one row: rules that look at distances or coordinates ask for no more. With one, the
    weights [C, D], and the bias [C] as one more column, are the rows of the head.
    """

    shapes: Mapping[str, tuple[int, ...]]
    types: Mapping[str, np.dtype[Any]]
    head: tuple[str, ...] = ()

    @classmethod
    def of(cls, arrays: Arrays, head: Sequence[str] = ()) -> Layout:
        """Take the layout of a model; raise if the head is not in it."""
        shapes = {name: tuple(array.shape) for name, array in arrays.items()}
        types = {name: np.dtype(array.dtype) for name, array in arrays.items()}
        odd = next((name for name, kind in types.items() if kind.kind not in "fiub"), None)
        if odd is not None:
            raise ValueError(f"array {odd!r} is of type {types[odd]}; a model to aggregate has real numbers")
        if not sum(map(prod, shapes.values())):
            raise ValueError("the model has no numbers to aggregate; pass its initial arrays")
        if head:
            _check_head(shapes, tuple(head))
        return cls(shapes, types, tuple(head))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type that rules compute with."""
        wide = any(kind == np.float64 for kind in self.types.values())
        return np.dtype(np.float64 if wide else np.float32)

    @property
    def classes(self) -> int:
        """Rows of the head."""
        return self.shapes[self.head[0]][0] if self.head else 1

    def fits(self, arrays: Arrays) -> bool:
        """Return whether a model has this layout."""
        return (
            set(arrays) == set(self.shapes)
            and all(tuple(arrays[name].shape) == shape for name, shape in self.shapes.items())
            and all(np.dtype(arrays[name].dtype) == kind for name, kind in self.types.items())
        )

    def to_head(self, arrays: Arrays) -> Any:
        """Return a model as a head [C, D]."""
        names = self.head or tuple(self.shapes)
        rows = [np.asarray(arrays[name]).astype(self.dtype).reshape(self.classes, -1) for name in names]
        return np.concatenate(rows, axis=1)

    def from_head(self, head: Any) -> dict[str, Any]:
        """Return a head [C, D] as a model's arrays, of their types; whole numbers are rounded."""
        found, start = {}, 0
        for name in self.head or tuple(self.shapes):
            shape, kind = self.shapes[name], self.types[name]
            width = prod(shape) // self.classes
            values = head[:, start : start + width].reshape(shape)
            found[name] = (np.rint(values) if kind.kind in "iub" else values).astype(kind)
            start += width
        return {name: found[name] for name in self.shapes}

    def evaluation(self, given: Evaluation) -> Evaluation:
        """Return samples as the head sees them: with a column of ones for the bias."""
        features = np.asarray(given.features, dtype=self.dtype)
        if len(self.head) == 2:
            features = np.concatenate([features, np.ones((*features.shape[:-1], 1), self.dtype)], axis=-1)
        width = self.shapes[self.head[0]][1] + len(self.head) - 1
        if features.shape[-1] != width:
            raise ValueError(
                f"evaluation has features of {np.shape(given.features)[-1]} numbers, but {self.head[0]!r} has shape "
                f"{self.shapes[self.head[0]]}; pass features as the head gets them"
            )
        return Evaluation(features, np.asarray(given.labels))


def _check_head(shapes: Mapping[str, tuple[int, ...]], head: tuple[str, ...]) -> None:
    missing = [name for name in head if name not in shapes]
    if missing:
        raise ValueError(f"the model has no array {missing[0]!r} for head=; it has {', '.join(shapes)}")
    if set(head) != set(shapes):
        others = ", ".join(name for name in shapes if name not in head)
        raise ValueError(
            f"the model has more arrays than its head ({others}): features that clients train too cannot be tested; "
            "freeze them and send the head alone, or take a rule that does not test"
        )
    weights = shapes[head[0]]
    if len(weights) != 2 or (len(head) == 2 and shapes[head[1]] != weights[:1]) or len(head) > 2:
        shown = ", ".join(f"{name} {shapes[name]}" for name in head)
        raise ValueError(f"head= takes weights [classes, features] and a bias [classes], not {shown}")


def check_rule_fits(rule: Rule, *, head: Sequence[str], evaluation: Evaluation | None, own_update: bool) -> None:
    """Raise if a rule lacks what it needs where models of another library are aggregated."""
    if not isinstance(rule, Rule):
        raise ValueError(f"rule must be a Rule, made with rules.create(name), not {rule!r}")
    if rule.shares != "heads":
        raise ValueError("evidence exchanges statements about data, not models; take another rule, such as bristle")
    if rule.test_samples and (evaluation is None or not head):
        raise ValueError(
            f"{type(rule).__name__} tests models on samples: pass evaluation=Evaluation(features, labels) and "
            "head=, the names of the weights and bias that it tests"
        )
    last = rule.rule if isinstance(rule, Chain) else rule
    if isinstance(last, FLTrust) and not own_update:
        raise ValueError("FLTrust compares updates with the own one: pass train=, which trains on own samples")
