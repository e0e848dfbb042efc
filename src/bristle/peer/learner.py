"""A peer that exchanges heads, without a network: samples, head and rule, one iteration at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bristle._core.rng import Stream, draw
from bristle.learning.optimiser import HeadState, TrainingSettings
from bristle.learning.samples import Samples, SampleStore
from bristle.p2p.inbox import ReceivedHead
from bristle.peer.step import StepState, step
from bristle.rules import Decision, Rule, stack
from bristle.rules.evidence import Evidence

Floats = npt.NDArray[np.float32]
Booleans = npt.NDArray[np.bool]

USUAL_LENGTH = 300
"""Length of the paper's runs: what rules that relax over a run assume for a peer without a last iteration."""


def default_rule() -> Rule:
    """Return the usual rule of a peer."""
    return Evidence()


def live_rule(rule: Rule) -> Rule:
    """Return the rule, or refuse one whose peers exchange what a network does not carry."""
    if not isinstance(rule, Rule):
        raise ValueError(f"rule must be a Rule, not {rule!r}: make one with rules.create(name)")
    if rule.shares != "heads" and not isinstance(rule, Evidence):
        raise ValueError(
            f"peers on a network exchange heads or evidence, and {type(rule).__name__} needs {rule.shares}: "
            "choose another rule, e.g. evidence, or simulate it (bristle simulate)"
        )
    return rule


@dataclass(frozen=True)
class Draws:
    """Uniforms that depend on the seed, the peer's number and the iteration alone, as in a simulated world."""

    seed: int
    number: int = 0

    def __call__(self, stream: Stream, iteration: int, size: int) -> Floats:
        """Draw `size` uniforms in [0, 1)."""
        uniforms: Floats = draw(self.seed, stream, [self.number], iteration, size)[0].astype(np.float32)
        return uniforms


class Learner:
    """The samples, rule and state of one peer. `iterate` is one iteration; nothing else changes the head.

    Parameters
    ----------
    samples : SampleStore
        Its samples; may grow between iterations.
    rule : Rule
        The aggregation rule.
    draws : Draws
        Randomness.
    training : TrainingSettings
        Optimiser and mini-batch.
    state : StepState, optional
        State to continue from.
    iteration : int
        Number of iterations done.
    """

    def __init__(
        self,
        *,
        samples: SampleStore,
        rule: Rule,
        draws: Draws,
        training: TrainingSettings,
        state: StepState | None = None,
        iteration: int = 0,
    ) -> None:
        self.samples = samples
        self.rule = rule
        self.draws = draws
        self.training = training
        self.iteration = iteration
        shape = (samples.classes, samples.features)
        begun = StepState.start(HeadState.zeros(shape, like=np.zeros((), dtype=np.float32)), rule)
        self.state = begun if state is None else _with_memory_of(state, begun)

    @property
    def head(self) -> Floats:
        """The head that is used and shared [C, D]."""
        head: Floats = self.state.head
        return head

    @property
    def bias(self) -> Floats:
        """What is added to the scores of each class [C]: nothing."""
        return np.zeros(self.samples.classes, dtype=np.float32)

    def scores(self, features: Floats) -> Floats:
        """Return W x [n, C]."""
        found: Floats = features @ self.head.T
        return found

    @property
    def claims(self) -> Booleans:
        """The classes that the peer trains and can test itself [C]."""
        claimed: Booleans = self.samples.trained & self.samples.familiar
        return claimed

    def iterate(self, messages: Sequence[ReceivedHead], *, total: int | None = None) -> Decision:
        """Integrate what was received, train one mini-batch, and return what was decided about every message.

        A rule that tests received heads keeps the own one until there is a class to test; training goes on meanwhile.
        `total` is how many iterations there will be, where that is known.
        """
        iteration = self.iteration + 1
        received, mask, refusals = stack(self.head, [message.head for message in messages])
        training = self.samples.training
        self.state, decision = step(
            self.state,
            received,
            rule=self.rule,
            samples=Samples(training.features, training.labels),
            batch_draws=self.draws(Stream.BATCHES, iteration, len(training.labels)),
            model_draws=self.draws(Stream.MODELS, iteration, len(messages)) if self.rule.stochastic else None,
            mask=mask,
            evaluation=self.samples.evaluation,
            claims=self._claims_of(messages),
            senders=np.array([_number(message.sender) for message in messages], dtype=np.int64),
            iteration=iteration,
            total=max(iteration, total or USUAL_LENGTH),
            settings=self.training,
        )
        self.iteration = iteration
        return decision.with_refusals(refusals)

    def go_back(self, state: StepState, iteration: int) -> None:
        """Undo an iteration that could not be kept."""
        self.state, self.iteration = state, iteration

    def keep_only(self, samples: SampleStore) -> None:
        """Go on with fewer samples. What the head has learned from the others stays in it."""
        self.samples = samples

    def _claims_of(self, messages: Sequence[ReceivedHead]) -> Booleans:
        nothing = np.zeros(self.samples.classes, dtype=np.bool)
        claims = [nothing if message.claims is None else message.claims for message in messages]
        return np.stack(claims) if claims else np.zeros((0, self.samples.classes), dtype=np.bool)


def _with_memory_of(state: StepState, begun: StepState) -> StepState:
    """Return a saved state, with initial memory if another kind of rule kept it."""
    forms = [
        None if memory is None else {name: (values.shape, values.dtype) for name, values in memory.items()}
        for memory in (state.memory, begun.memory)
    ]
    return state if forms[0] == forms[1] else StepState(state.trained, state.previous, begun.memory)


def _number(sender: bytes) -> int:
    """Return the number that identifies a sender in every call, below 2^63."""
    return int.from_bytes(sender[:8], "big") >> 1
