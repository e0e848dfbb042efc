"""The rule `evidence`: one exchange of signed statements, and a head in closed form."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np

from bristle._core import Array, Pool, to_numpy
from bristle._core.arrays import is_array
from bristle._core.validation import check_count, check_positive
from bristle.learning.metrics import Evaluation
from bristle.rules.base import Rule, Verdict
from bristle.rules.call import Context, Task
from bristle.rules.decision import Reason
from bristle.rules.evidence.calibration import calibrated
from bristle.rules.evidence.decision import Answer, EvidenceDecision, Findings, Weighed, weighed
from bristle.rules.evidence.location import (
    FEW,
    Booleans,
    Claims,
    Integers,
    Located,
    independent,
    near_own,
    robust_means,
)
from bristle.rules.evidence.privacy import Privacy
from bristle.rules.evidence.scatter import Scatter, Vectors, pool_scatter
from bristle.rules.evidence.statement import Floats, Statement, check_samples, sample_arrays, state, unfit
from bristle.rules.evidence.vetting import LENIENT, aligned, disputes, leaning, lowering, personal_spread, vet
from bristle.rules.evidence.voices import draw_statements, merge_voices, voice_numbers
from bristle.rules.inbox import Inbox

LEAN = 20.0
"""Own samples that the pooled scatter is worth for the variance along discriminants."""

APART = 2.3
"""A squared distance from the own mean is too much from so many times the expected one on; more with few samples."""

INSIDE = 2.0
"""Distances of fresh samples are about so many times those of samples that are part of the scatter."""

DISSENT = 5.0
"""Standard errors from its location at which a claim dissents; more where the receiver has few samples."""

DIFFERING = 2.0
"""People's mean deviations vary by so many times sampling noise before their offsets are taken out."""

TRUST = 4.0
"""A cautious receiver believes of the scatter so many times what its own samples show."""

CROWD_TRUST = 6.0
"""Every receiver believes no more than that where liars may outnumber the FEW honest owners of a class."""

LOSS = 0.35
"""Who gets so much more of its own samples wrong than expected, and than alone, is outvoted even about them."""

FOLDS = 4
"""Parts of the own samples of which each is left out in turn to see what a peer gets wrong alone."""

FAR = 1.75
"""It then refuses who is so many times as far from its own means as the nearest sender."""


@dataclass(frozen=True, kw_only=True)
class Evidence(Rule):
    """W = S^-1 M, b = -diag(M S^-1 M') / 2: linear discriminant analysis on evidence that survives (Fisher 1936).

    Peers share, once, how many samples of each class they have, their mean features and a sketch of the scatter within
    classes. A receiver (1) refuses senders whose mean of a common class is further from its own than sampling noise and
    the spread between people explain, (2) counts those that are too alike once, (3) takes a robust mean of each class
    in the space where a head decides, (4) pools the scatter so that no sender counts for more than most others see,
    (5) solves for the head, and (6) does not answer for foreign classes about which too many owners disagree. It needs
    no number of attackers. A class holds while liars are fewer than its honest owners; see docs/evidence.md for what is
    lost beyond that. O((r^2 + n^2) d) for r factors and n means of all senders together.

    Call it with statements: `rule(own, received, evaluation=samples)` with `own` a `Statement`, `received` a batch
    [..., M] of them or, for one receiver, a list of strangers', and in `evaluation` all samples of the receiver.

    Parameters
    ----------
    rank : float
        A sketch has `rank * sqrt(freedom)` directions: more samples support more.
    cap : float
        Along no direction does a sender's scatter count for more than 1 + cap sqrt(n / 100) times what most others
        see, for n degrees of freedom of one.
    refuse : float
        Standard errors from the own mean, along the worst discriminant of the worst class, from which a sender is
        refused; more where the receiver has few samples, and times the spread between people where that is more than
        sampling noise.
    quorum : float
        So many independent owners that put a foreign class elsewhere together, or half of all, make it disputed.
    held_out : bool
        Whether held-out samples count as evidence too. They are never tested on what they are part of.
    cautious : bool
        Do not answer for disputed classes at all, and believe nothing about the scatter that is far from what the own
        samples show. Otherwise disputed classes are answered only where no own sample is lost to them.
    withheld : tuple of int
        Classes about which the peer states nothing, whatever it holds of them.
    coarse_counts : bool
        State of how many samples a mean is as the largest power of two that is not more.
    privacy : Privacy or mapping, optional
        Clip features and add noise to what is stated, so that statements are differentially private.

    one_voice : int, optional
        In a group with founders, count all who came in by one member of this generation of invitations as one owner of
        a class: 1, by a member whom a founder invited; 0, by a founder. By default everybody counts by itself.

    What a peer does not state it still uses itself: with one of the last three options the receiver's own statement is
    made of its samples, whatever is passed as `own`.
    """

    rank: float = 2.4
    cap: float = 1.0
    refuse: float = 8.0
    quorum: float = 4.0
    held_out: bool = True
    cautious: bool = False
    withheld: tuple[int, ...] = ()
    coarse_counts: bool = False
    privacy: Privacy | None = None
    one_voice: int | None = None

    def __post_init__(self) -> None:
        for name in ("rank", "cap", "refuse", "quorum"):
            check_positive(name, getattr(self, name))
        for number in self.withheld:
            check_count("withheld", number)
        if self.one_voice is not None:
            check_count("one_voice", self.one_voice)
        if self.privacy is not None:
            object.__setattr__(self, "privacy", Privacy.of(self.privacy))

    @property
    def shares(self) -> str:
        """What peers that use the rule exchange."""
        return "evidence"

    def share(
        self,
        samples: Evaluation,
        classes: int,
        head: Array | None = None,
        *,
        rng: np.random.Generator | None = None,
    ) -> Statement:
        """Return what a peer with these samples [S, D] shares; `rng` draws noise that is to be the same again."""
        absent = [number for number in self.withheld if number >= classes]
        if absent:
            raise ValueError(f"withheld has the class {absent[0]}, but classes are numbered 0 to {classes - 1}")
        if self.withheld:
            labels = to_numpy(samples.labels)
            samples = Evaluation(samples.features, np.where(np.isin(labels, self.withheld), -1, labels))
        stated = (
            state(samples, classes, rank=self.rank)
            if self.privacy is None
            else self.privacy.state(samples, classes, rng=rng)
        )
        return stated.coarse() if self.coarse_counts else stated

    @property
    def _states_all(self) -> bool:
        """Whether a peer states what it itself uses."""
        return not self.withheld and not self.coarse_counts and self.privacy is None

    def decide(self, inbox: Inbox, task: Task) -> Verdict:
        """Refuse heads: evidence is made of statements."""
        _refuse_heads()

    def __call__(  # type: ignore[override]
        self,
        own: Statement,
        received: Statement | Sequence[Statement],
        *,
        mask: Array | None = None,
        evaluation: Evaluation | None = None,
        claims: Array | None = None,
        context: Context | None = None,
        rng: Any = None,
        voices: Sequence[Hashable] | None = None,
    ) -> EvidenceDecision:
        """Decide what to make of the received statements.

        Parameters
        ----------
        own : Statement [..., C, D]
            What the receiver shares.
        received : Statement [..., M, C, D] or sequence of Statement
            What it received. Statements that are unfit are refused, with a reason.
        mask : boolean array [..., M], optional
            False where a statement is absent.
        evaluation : Evaluation
            The receiver's samples [..., S, D], those in its statement.
        rng : numpy.random.Generator, optional
            Draws whose scatter is pooled where there are more than SKETCHES statements; without one, always the same.
        claims, context
            Not used: counts are the claims, and nothing is remembered.
        voices : sequence [M], optional
            By whom each sender came in: senders with equal values count together as one owner of a class. The receiver
            itself always counts by itself.
        """
        if is_array(own) or isinstance(received, Pool) or is_array(received):
            _refuse_heads()
        if evaluation is None:
            raise ValueError("evidence needs the receiver's samples: pass evaluation=Evaluation(features, labels)")
        if not isinstance(own, Statement):
            raise ValueError(f"own must be a Statement, not {type(own).__name__}")
        batch = tuple(own.rows.shape[:-2])
        classes, features = (int(size) for size in own.rows.shape[-2:])
        mine = own.numpy()
        problem = unfit(mine, classes, features) if not batch else None
        if problem is not None and problem is not Reason.IMPOSSIBLE:
            raise ValueError(f"own statement {problem.words}")
        x, y = sample_arrays(evaluation)
        if y.shape[:-1] != batch or x.shape != (*y.shape, features):
            wanted = ", ".join(map(str, (*batch, "samples", features)))
            raise ValueError(
                f"evaluation must have features [{wanted}] with labels, not {list(x.shape)}, {list(y.shape)}"
            )
        check_samples(x, y, classes)
        x = x.astype(np.float64)
        generator = rng if isinstance(rng, np.random.Generator) else None
        parts = []
        for place in np.ndindex(batch):
            theirs: list[Statement | None]
            if isinstance(received, Statement):
                some = received[place] if place else received
                theirs = [some[number] for number in range(some.counts.shape[0])]
            else:
                theirs = list(received)
            if mask is not None:
                here = to_numpy(mask)[place]
                theirs = [one if bool(present) else None for one, present in zip(theirs, here, strict=True)]
            held = Evaluation(x[place], y[place])
            parts.append(self.weigh(mine[place] if place else mine, theirs, held, generator, voices))
        return EvidenceDecision(parts, batch, own.rows)

    def weigh(  # noqa: PLR0915 - the stages, one after the other
        self,
        own: Statement,
        theirs: Sequence[Statement | None],
        samples: Evaluation,
        rng: np.random.Generator | None = None,
        voices: Sequence[Hashable] | None = None,
    ) -> Weighed:
        """Decide for one receiver; `theirs` are strangers' statements, None where one is absent, of so many voices."""
        own = own.numpy()
        classes, features = own.rows.shape
        if not self._states_all:
            own = state(samples, classes, rank=self.rank)
        x, y = _present(samples)
        reasons, places, statements = _usable(own, theirs)
        about = x - np.asarray(own.rows)[y]
        voice = None if voices is None else voice_numbers(voices, places, len(theirs))
        pooled = draw_statements(statements if voice is None else merge_voices(statements, voice, rng), rng)
        owner, label = np.nonzero(np.stack([np.asarray(one.counts) for one in statements]) > 0)
        trust = self._trust(np.bincount(label, minlength=1))
        scatter = pool_scatter(pooled, about, cap=self.cap, trust=trust)
        if not len(owner):
            raise ValueError("there are no statements, so nothing can be decided: give the receiver samples")
        means = np.stack([np.asarray(statements[who].rows)[c] for who, c in zip(owner, label, strict=True)])
        count = np.array([np.asarray(statements[who].counts)[c] for who, c in zip(owner, label, strict=True)])
        stated = scatter.vectors(means)
        claims = Claims(owner, label, count, stated.products(), classes, None if voice is None else voice[owner])
        rest = scatter.vectors(about)
        freedom = len(y) - len(np.unique(y))
        # Too few samples to measure: what the pooled scatter expects, one a dimension that it leaves.
        spread = (float(rest.squares().sum()) / freedom if freedom > 0 else 0.0) or float(features)
        weights = independent(claims, spread)
        differing = personal_spread(claims, spread)
        if differing > DIFFERING:
            turn = aligned(claims, len(np.unique(y)) / (differing - 1))
            means, stated = turn @ means, stated.mixed(turn)
            claims = replace(claims, products=stated.products())
        kept = np.ones(len(label), dtype=bool)
        located, vectors, variance = self._locate(claims, weights, kept, stated, rest, freedom, spread)
        # Few own samples measure a variance badly, so that honest errors in its units are now and then large.
        lenience = 1 + LENIENT / max(freedom, 1)
        limit = self.refuse * lenience
        spreads = _spreads(rest.squares(), y, classes, spread)
        vetted = vet(claims, located, variance, spreads, refuse=limit, apart=APART * lenience)
        errors = vetted.errors
        worst = np.array([np.nanmax(errors[owner == who], initial=0) for who in range(len(statements))])
        refused = worst > limit
        if refused.any():
            kept = ~refused[owner]
            located, vectors, variance = self._locate(claims, weights, kept, stated, rest, freedom, spread)
        dissent, total, apart = disputes(
            claims.only(kept), _only(located, kept), weights[kept], variance, spread, dissent=DISSENT * lenience
        )
        known = claims.only(kept).known
        held = np.flatnonzero(np.asarray(own.counts) > 0)
        foreign = np.setdiff1d(known, held)
        disputed = foreign[(dissent[foreign] > self.quorum - 1) | (dissent[foreign] >= total[foreign] / 2)]
        # What locations are off draws fresh samples away from them. It is no part of the scatter, and so about INSIDE
        # times as large as own samples show.
        off = INSIDE * spread * (located.shares**2 @ (1 / claims.count))
        others = (lambda: pool_scatter(pooled[1:], about, cap=self.cap, trust=trust)) if len(pooled) > 1 else None
        lean = leaning(claims.only(kept), _only(located, kept), weights[kept], variance, held)
        answer = self._answer_of(
            located, means, vectors, scatter, x, y, own, known, disputed, variance, others, lean, off
        )
        wrong = _wrong(answer, x, y)
        if len(statements) > 1 and wrong > _doubt(answer, x) + LOSS and wrong > self._wrong_alone(x, y, classes) + LOSS:
            far = _far(vetted.whole, owner, len(statements))
            if far.any():
                return self._without(far, own, theirs, samples, rng, voices, (claims, errors, places))
            answer = self.weigh(own, [], samples).answer
            disputed, located = known, replace(located, shares=np.zeros_like(located.shares))
        return weighed(
            answer, claims, located, weights, reasons, places, Findings(errors, apart, kept, refused, disputed)
        )

    def _wrong_alone(self, x: Floats, y: Integers, classes: int) -> float:
        """Return the share of own samples that a peer alone gets wrong: each is left out of what it is tested on."""
        order = np.argsort(y, kind="stable")
        place = np.empty(len(y), dtype=np.int64)  # The number of each sample within its class.
        place[order] = np.arange(len(y)) - np.searchsorted(y[order], y[order])
        wrong = tested = 0.0
        for fold in range(FOLDS):
            out = place % FOLDS == fold
            out &= np.isin(y, y[~out])
            if out.any():
                rest = Evaluation(x[~out], y[~out])
                answer = self.weigh(state(rest, classes, rank=self.rank), [], rest).answer
                tested += out.sum()
                wrong += _wrong(answer, x[out], y[out]) * out.sum()
        return wrong / max(tested, 1)

    def _without(
        self,
        far: Booleans,
        own: Statement,
        theirs: Sequence[Statement | None],
        samples: Evaluation,
        rng: np.random.Generator | None,
        voices: Sequence[Hashable] | None,
        found: tuple[Claims, Floats, Integers],
    ) -> Weighed:
        """Decide again without some of the statements that were used, which are refused."""
        claims, errors, places = found
        out = set(places[np.flatnonzero(far)].tolist())
        left = [None if place in out else one for place, one in enumerate(theirs)]
        weighed = self.weigh(own, left, samples, rng, voices)
        reasons, class_reasons, deviation = weighed.reasons, weighed.class_reasons, weighed.errors
        for place in out:
            reasons[place] = int(Reason.TOO_DIFFERENT)
            class_reasons[place] = int(Reason.TOO_DIFFERENT)
        for number in np.flatnonzero(far[claims.owner] & np.isfinite(errors)):
            deviation[places[claims.owner[number]], claims.label[number]] = errors[number]
        return weighed

    def _trust(self, owners: Integers) -> float:
        """Return how many times the own samples' scatter is believed, where classes have so many owners [C]."""
        crowded = int(owners.max()) >= 2 * FEW
        return TRUST if self.cautious else CROWD_TRUST if crowded else math.inf

    def _locate(
        self,
        claims: Claims,
        weights: Floats,
        kept: Booleans,
        stated: Vectors,
        rest: Vectors,
        freedom: int,
        spread: float,
    ) -> tuple[Located, Vectors, Floats]:
        """Return the locations from some of the claims, twice, and the variance of a sample along every discriminant.

        Locations [C] as vectors are ready for products with respect to S^-1.
        """
        some = claims.only(kept)
        found = robust_means(some, weights[kept], spread)
        mixture, shares = (np.zeros((claims.classes, len(claims.label))) for _ in range(2))
        mixture[:, kept], shares[:, kept] = found.mixture, found.shares
        projected = mixture @ claims.products
        located = Located(mixture, shares, projected, projected @ mixture.T)
        variance, vectors = self._variance(located, stated, rest, some.known, freedom)
        moved = near_own(located, claims, weights * kept, variance)
        if moved is not located:
            located = moved
            variance, vectors = self._variance(located, stated, rest, some.known, freedom)
        return located, vectors, variance

    @staticmethod
    def _variance(
        located: Located, stated: Vectors, rest: Vectors, known: Integers, freedom: int
    ) -> tuple[Floats, Vectors]:
        """Return the variance [C, C] of a sample along the discriminant of each pair of classes, and locations."""
        classes = len(located.mixture)
        variance = np.zeros((classes, classes))
        vectors = stated.mixed(located.mixture)
        along = rest.products(vectors[known])
        inner = along.T @ along / max(freedom, 1)
        squares = np.diag(inner)
        variance[np.ix_(known, known)] = np.maximum(squares[:, None] + squares[None] - 2 * inner, 0)
        # Few own samples: lean on the pooled scatter, which is too small by about two along chosen directions.
        squares = np.diag(located.products)
        expected = 2 * (squares[:, None] + squares[None] - 2 * located.products)
        variance = (freedom * variance + LEAN * np.maximum(expected, 0)) / (freedom + LEAN)
        return variance, vectors

    def _answer_of(
        self,
        located: Located,
        means: Floats,
        places: Vectors,
        scatter: Scatter,
        x: Floats,
        y: Integers,
        own: Statement,
        known: Integers,
        disputed: Integers,
        variance: Floats,
        others: Callable[[], Scatter] | None,
        lean: Floats,
        off: Floats,
    ) -> Answer:
        locations = located.mixture @ means
        head = scatter.solved(places)
        start = -0.5 * (head * locations).sum(axis=1)
        bias = start - lean
        held = np.flatnonzero(np.asarray(own.counts) > 0)
        answered = np.setdiff1d(known, disputed) if self.cautious and len(held) else known
        if len(disputed) and len(held) and not self.cautious:
            # Own samples about the location of their class, as wide as before a mean was taken from them: an attacker
            # that knows the receiver's sampling error cannot lean against it.
            counts = np.asarray(own.counts)[y].astype(np.float64)
            wider = np.sqrt(counts / np.maximum(counts - 1, 1))[:, None]
            scores = (locations[y] + wider * (x - np.asarray(own.rows)[y])) @ head.T + start
            scores[:, held] -= off[y][:, None]
            lowered = lowering(scores, held, disputed, located.products, variance)
            bias[disputed] = start[disputed] - np.maximum(lowered, lean[disputed])
        moved = bias - start
        # What all classes have in common decides nothing: without it, scores are small numbers.
        head = head - head[answered].mean(axis=0)
        bias = bias - bias[answered].mean()
        size = 2 * np.sqrt(np.einsum("ij,ij->i", x, x)).max(initial=1.0)
        loudest = np.sqrt((head[answered] ** 2).sum(axis=1)).max()
        silent = np.setdiff1d(np.arange(len(bias)), answered)
        head[silent] = 0
        bias[silent] = bias[answered].min() - size * loudest - 1

        def calibrate() -> tuple[float, float]:
            return calibrated(others() if others else scatter, moved, answered, locations, located, x, y, own)

        return Answer(head, bias, answered, locations, scatter, calibrate)


def _far(whole: Floats, owner: Integers, senders: int) -> Booleans:
    """Return who is more than FAR times as far from the own means as the nearest sender."""
    worst = np.zeros(senders)
    for number in np.flatnonzero(np.isfinite(whole)):
        worst[owner[number]] = max(worst[owner[number]], whole[number])
    least = worst[worst > 0].min(initial=np.inf)
    found: Booleans = worst > FAR * least
    return found


def _wrong(answer: Answer, x: Floats, y: Integers) -> float:
    """Return the share of the own samples that a classifier gets wrong; 0 without samples."""
    return float(((x @ answer.head.T + answer.bias).argmax(axis=1) != y).mean()) if len(y) else 0.0


def _doubt(answer: Answer, x: Floats) -> float:
    """Return the share of samples that a classifier expects to get wrong, by its own probabilities."""
    scores = (x @ answer.head.T + answer.bias)[:, answer.known]
    best = np.exp(scores - scores.max(axis=1, keepdims=True)).sum(axis=1)
    return float(1 - (1 / best).mean()) if len(x) else 0.0


def _present(samples: Evaluation) -> tuple[Floats, Integers]:
    """Return features in 64 bits and labels of samples, without padding."""
    labels = to_numpy(samples.labels)
    return to_numpy(samples.features)[labels >= 0].astype(np.float64), labels[labels >= 0]


def _spreads(squares: Floats, y: Integers, classes: int, spread: float) -> Floats:
    """Return the mean squared distance of own samples from the mean of their class [C], leaning on that of all."""
    counts = np.bincount(y, minlength=classes)
    sums = np.bincount(y, weights=squares, minlength=classes)
    found: Floats = (sums + spread) / (np.maximum(counts - 1, 0) + 1)
    return found


def _usable(own: Statement, theirs: Sequence[Statement | None]) -> tuple[Integers, Integers, list[Statement]]:
    """Return a reason for each sender, where the usable statements come from (-1: the own one), and these."""
    classes, features = own.rows.shape
    reasons = np.full(len(theirs), int(Reason.KEPT), dtype=np.int64)
    places, statements = [-1], [own]
    for place, one in enumerate(theirs):
        problem = Reason.ABSENT if one is None else unfit(one, classes, features)
        if problem is None and one is not None:
            places.append(place)
            statements.append(one.numpy())
        else:
            reasons[place] = int(problem or Reason.ABSENT)
    return reasons, np.array(places), statements


def _only(located: Located, kept: Booleans) -> Located:
    return Located(located.mixture[:, kept], located.shares[:, kept], located.projected[:, kept], located.products)


def _refuse_heads() -> NoReturn:
    raise ValueError(
        "evidence exchanges statements, not heads: call it with Statements (see docs/evidence.md), "
        "and use it in simulations without steps before it"
    )
