"""One iteration of a peer, as a pure function: the same for a live peer and for a world of them."""

from __future__ import annotations

from dataclasses import dataclass

from bristle._core import Array, Pool
from bristle.learning.metrics import Evaluation
from bristle.learning.optimiser import HeadState, TrainingSettings
from bristle.learning.samples import Samples
from bristle.learning.training import mean_shift, train_step
from bristle.rules import Context, Decision, Rule, State


@dataclass(frozen=True)
class StepState:
    """What a peer carries from one iteration to the next; with a batch axis, what many do.

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
        What to make of received heads.
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
