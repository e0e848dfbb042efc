"""Adam with L2 regularisation for a batch of models: each has its own moments and its own count of steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import array_api_compat
import numpy as np

from bristle._core import Array, namespace


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Hyperparameters of training.

    Parameters
    ----------
    learning_rate : float
        Adam's step size.
    l2 : float
        Weight of the L2 regularisation; l2 * w is added to the gradient.
    beta1, beta2 : float
        Decay of the first and of the second moment.
    epsilon : float
        Added to the denominator.
    batch : int
        Samples in a mini-batch.
    """

    learning_rate: float = 1e-3
    l2: float = 5e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    batch: int = 5

    def __post_init__(self) -> None:
        for name, value in (("learning_rate", self.learning_rate), ("epsilon", self.epsilon)):
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name}={value}: give a positive number")
        if not (math.isfinite(self.l2) and self.l2 >= 0):
            raise ValueError(f"l2={self.l2}: give 0 or a positive number")
        for name, value in (("beta1", self.beta1), ("beta2", self.beta2)):
            if not 0 <= value < 1:
                raise ValueError(f"{name}={value}: give a number from 0 to below 1")
        if self.batch < 1:
            raise ValueError(f"batch={self.batch}: give at least 1 sample")


@dataclass(frozen=True, eq=False)
class HeadState:
    """Heads in training, one or any batch. A step takes a state and returns the next.

    Between two steps the head may be replaced, e.g. by an integrated one, while the moments persist:
    `dataclasses.replace(state, head=decision.head)`.

    Parameters
    ----------
    head : array [..., C, D]
        The parameters.
    first, second : array [..., C, D]
        Running means of the gradient and of its square.
    steps : integer array [...]
        Steps taken so far, of each model.
    """

    head: Array
    first: Array
    second: Array
    steps: Array

    @property
    def arrays(self) -> tuple[Array, Array, Array, Array]:
        """Head, moments and steps, as `HeadState` takes them."""
        return self.head, self.first, self.second, self.steps

    @classmethod
    def zeros(cls, shape: tuple[int, ...], *, like: Array) -> HeadState:
        """Return untrained heads of `shape` [..., C, D], in the library, dtype and device of `like`."""
        return cls.start(namespace(like).zeros(shape, dtype=like.dtype, device=array_api_compat.device(like)))

    @classmethod
    def start(cls, head: Array) -> HeadState:
        """Return `head` [..., C, D] before its first step."""
        if head.ndim < 2:
            raise ValueError(f"heads have the shape [..., classes, features], not {list(head.shape)}")
        xp = namespace(head)
        steps = xp.zeros(head.shape[:-2], dtype=xp.int64, device=array_api_compat.device(head))
        return cls(head, xp.zeros_like(head), xp.zeros_like(head), steps)


def paces(xp: Any, steps: Array, dtype: Any, settings: TrainingSettings) -> tuple[Array, Array]:
    """Return step sizes and epsilons [B] with the bias corrections of step `steps` [B] (from 1) worked in.

    m^ / (sqrt(v^) + epsilon) with m^ = m / (1 - beta1^t) and v^ = v / (1 - beta2^t) is
    sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + epsilon sqrt(1 - beta2^t)): the corrections are numbers
    per model, not passes over its parameters.
    """
    t = xp.astype(steps, dtype)
    # expm1 keeps the digits of 1 - 0.999^t in single precision. A decay of 0 needs no correction.
    first = -xp.expm1(t * math.log(settings.beta1)) if settings.beta1 else xp.ones_like(t)
    second = -xp.expm1(t * math.log(settings.beta2)) if settings.beta2 else xp.ones_like(t)
    root = xp.sqrt(second)
    return settings.learning_rate * root / first, settings.epsilon * root


def adam_update(state: HeadState, gradient: Array, settings: TrainingSettings, *, rows: Array) -> HeadState:
    """One step of Adam along `gradient` [B, C, D], in any library; state of one batch axis.

    g = gradient + l2 w;  m' = beta1 m + (1 - beta1) g;  v' = beta2 v + (1 - beta2) g^2;
    w' = w - learning_rate m^ / (sqrt(v^) + epsilon). Kingma and Ba, "Adam: A Method for Stochastic
    Optimization", ICLR 2015.

    `rows` [B, C] says which rows are trained: others keep parameters and moments, and a model without any
    does not count the step.
    """
    xp, head = namespace(state.head, gradient), state.head
    g = gradient + settings.l2 * head
    first = settings.beta1 * state.first + (1 - settings.beta1) * g
    second = settings.beta2 * state.second + (1 - settings.beta2) * (g * g)
    steps = state.steps + xp.astype(xp.any(rows, axis=-1), state.steps.dtype)
    # A model that never trained is at step 0, where the correction would divide by 0.
    counted = xp.where(steps > 0, steps, xp.ones_like(steps))
    rate, epsilon = paces(xp, counted, head.dtype, settings)
    moved = head - rate[:, None, None] * first / (xp.sqrt(second) + epsilon[:, None, None])
    if not bool(xp.all(rows)):
        chosen = rows[:, :, None]
        moved = xp.where(chosen, moved, head)
        first, second = xp.where(chosen, first, state.first), xp.where(chosen, second, state.second)
    return HeadState(moved, first, second, steps)


Arrays = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]


def adam_pass(
    source: Arrays,
    target: Arrays,
    work: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]],
    pace: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]],
    settings: TrainingSettings,
) -> None:
    """`adam_update` in NumPy, in as few passes over a cached block as possible.

    Head and moments are read from `source` and written to `target`, which may be the same. `work` holds
    (1 - beta1) times the gradient and room for as much; both are overwritten. `pace` holds step sizes and epsilons.
    """
    (head, first, second), (new_head, new_first, new_second) = source, target
    (gradient, spare), (rate, epsilon) = work, pace
    share = 1 - settings.beta1
    np.multiply(head, settings.l2 * share, out=spare)
    np.add(gradient, spare, out=gradient)
    np.multiply(first, settings.beta1, out=new_first)
    np.add(new_first, gradient, out=new_first)
    np.multiply(gradient, gradient, out=gradient)
    np.multiply(gradient, (1 - settings.beta2) / share**2, out=gradient)
    np.multiply(second, settings.beta2, out=new_second)
    np.add(new_second, gradient, out=new_second)
    np.sqrt(new_second, out=spare)
    np.add(spare, epsilon, out=spare)
    np.divide(new_first, spare, out=spare)
    np.multiply(spare, rate, out=spare)
    np.subtract(head, spare, out=new_head)
