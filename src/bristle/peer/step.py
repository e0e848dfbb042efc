"""One iteration of a peer, and what it shares of its head, as pure functions: for live and simulated peers alike."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bristle._core import Array, Pool, namespace
from bristle.learning.metrics import Evaluation
from bristle.learning.optimiser import HeadState, TrainingSettings
from bristle.learning.samples import Samples
from bristle.learning.training import mean_shift, train_step
from bristle.rules import Context, Decision, Rule, State


@dataclass(frozen=True)
class StepState:
    """State of one peer between iterations or, with a batch axis, of many.

    Parameters
    ----------
    trained : HeadState [..., C, D]
        The head that is used and shared, and the optimiser's moments.
    previous : array [..., C, D]
        The head before its latest training.
    memory : mapping of arrays [..., *], optional
        What the rule remembers.
    """

    trained: HeadState
    previous: Array
    memory: State | None = None

    @property
    def head(self) -> Array:
        """The head that is used and shared [..., C, D]."""
        return self.trained.head

    @classmethod
    def start(cls, trained: HeadState, rule: Rule | None = None) -> StepState:
        """Return the state before the first iteration; without a rule there is nothing to remember."""
        return cls(trained, trained.head, None if rule is None else rule.initial_state(trained.head))


DEFAULTS = TrainingSettings()


def step(
    state: StepState,
    received: Array | Pool,
    *,
    rule: Rule,
    samples: Samples,
    batch_draws: Array,
    model_draws: Array | None = None,
    mask: Array | None = None,
    evaluation: Evaluation | None = None,
    claims: Array | None = None,
    senders: Array | None = None,
    iteration: int = 1,
    total: int = 1,
    settings: TrainingSettings = DEFAULTS,
) -> tuple[StepState, Decision]:
    """Integrate what was received, then train one mini-batch; the new head is what is shared.

    Where the rule consolidates, rows are brought to one level after integration, and training changes only rows of
    classes that the peer has samples of.

    Parameters
    ----------
    state : StepState
        Before the iteration.
    received, mask, evaluation, claims
        As a rule takes them.
    rule : Rule
        The aggregation rule.
    samples : Samples
        What to train on.
    batch_draws : array [..., S]
        Uniforms that choose the mini-batch.
    model_draws : array [..., M], optional
        Uniforms for a rule that samples.
    senders : integer array [..., M], optional
        Who sent what, for rules with memory.
    iteration, total : int
        Where in the run this is, from 1.
    settings : TrainingSettings
        Optimiser and mini-batch.
    """
    context = Context(iteration=iteration, total=total, previous=state.previous, senders=senders, state=state.memory)
    decision = rule(
        state.head,
        received,
        mask=mask,
        evaluation=evaluation,
        claims=claims,
        context=context,
        rng=model_draws,
    )
    integrated = mean_shift(decision.head) if rule.consolidates else decision.head
    before = HeadState(integrated, state.trained.first, state.trained.second, state.trained.steps)
    after = train_step(
        before,
        samples.features,
        samples.labels,
        batch_draws,
        index=samples.index,
        consolidate=rule.consolidates,
        settings=settings,
    )
    return StepState(after, integrated, decision.state), decision


@dataclass(frozen=True, kw_only=True)
class Sharing:
    r"""w_c min(1, clip / ‖w_c‖) + noise (L / √D) N(0, 1): rows clipped to a norm, and noise on every number.

    L is the norm of the row itself or, if rows are clipped, `clip`. The head that the peer itself uses and trains is
    not changed. Noise makes it harder to infer from a head which samples it was trained on, at a cost in accuracy;
    docs/privacy.md measures both, and explains why this gives no useful differential privacy.

    Parameters
    ----------
    clip : float, optional
        Largest Euclidean norm of a row; longer rows are scaled down to it. None: no clipping.
    noise : float
        Norm of the Gaussian noise that is added to a row, relative to L: 1 is as large as the row itself or, if rows
        are clipped, as `clip`. It is drawn anew for every shared head.
    """

    clip: float | None = None
    noise: float = 0.0

    def __post_init__(self) -> None:
        if self.clip is not None and not 0 < self.clip < float("inf"):
            raise ValueError(f"share_clip={self.clip}: give a norm above 0, or None for no clipping")
        if not 0 <= self.noise < float("inf"):
            raise ValueError(f"share_noise={self.noise}: give 0 for none, or its size relative to the head")

    @property
    def plain(self) -> bool:
        """Whether heads are shared as they are."""
        return self.clip is None and not self.noise

    def __call__(self, heads: Array, normals: Array | None) -> Array:
        """Return what is shared of heads [..., C, D]; `normals` of the same shape are drawn where there is noise."""
        xp = namespace(heads)
        lengths = xp.sqrt(xp.sum(heads * heads, axis=-1, keepdims=True))
        if self.clip is not None:
            heads = heads * (self.clip / xp.maximum(lengths, xp.full_like(lengths, self.clip)))
            lengths = xp.full_like(lengths, self.clip)
        if self.noise:
            assert normals is not None
            heads = heads + (self.noise / math.sqrt(heads.shape[-1])) * lengths * normals
        return heads

    def of_live_head(self, head: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> Array:
        """Return the shared form of a live peer's head [C, D], with noise from a secret source."""
        if self.plain:
            return head
        # The peer's seed is no secret: it may come from its key id.
        secret = np.random.default_rng().standard_normal(head.shape, dtype=np.float32) if self.noise else None
        return self(head, secret)
