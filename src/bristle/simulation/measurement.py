"""Measure a world: accuracy on test samples, weights, and cached predictions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bristle._core import Array, block_bytes, namespace, to_numpy
from bristle._core.rng import Stream, draw, pick_distinct
from bristle._core.validation import check_count
from bristle.simulation.large.world import LargeWorld
from bristle.simulation.scenario import Scenario
from bristle.simulation.topology import Booleans, Integers
from bristle.simulation.world import Round, World

Outputs = np.ndarray[Any, np.dtype[np.float32]]
Wide = np.ndarray[Any, np.dtype[np.float64]]
Classes = np.ndarray[Any, np.dtype[np.unsignedinteger[Any]]]

TOGETHER = 10
"""Heads multiplied at once: enough for a fast product whose results stay in the cache."""
TRIAL = 500
"""Samples on which a new center is tried, and predictions decided at once."""
RENEWAL = 0.3
"""Cost of a new center, relative to the product of TOGETHER heads with all samples."""
WORTHWHILE = 0.5
"""Share of undecided samples from which a whole product is faster."""


@dataclass(frozen=True, eq=False)
class _Center:
    """What some heads have in common [C, D], the class it predicts for each sample [N], and its lead [N]."""

    head: Outputs
    guess: Classes
    lead: Outputs


class PredictionCache:
    """The predictions argmax_c w_c · x of many heads for one test set.

    Where a head w prefers class a for x by more than max_c ‖δ_a - δ_c‖ ‖x‖, the head w + δ predicts a as well (Cauchy
    and Schwarz). Peers that learn together have heads that differ little, and that move little from one call to the
    next: so most samples are settled by the mean of all heads, of now or of an earlier call, and only the rest are
    multiplied. What lies within the rounding of 32 bits is decided in 64, and equals there go to the first class: the
    answer does not depend on how it was found.

    Parameters
    ----------
    test : array [N, D]
        The test samples.
    """

    def __init__(self, test: Outputs) -> None:
        self._test = test
        self._norms = np.sqrt(np.einsum("nd,nd->n", test, test, dtype=np.float64))
        self._center: _Center | None = None

    def of(self, heads: Outputs) -> Classes:
        """Return the classes [P, N] that heads [P, C, D] predict."""
        found = np.empty((len(heads), len(self._test)), dtype=_numbering(heads.shape[1]))
        for peers, guess in self.blocks(heads):
            found[peers] = guess
        return found

    def blocks(self, heads: Outputs) -> Iterator[tuple[Integers, Classes]]:
        """Yield the classes [p, N] that some of the heads [P, C, D] predict, after the numbers of these heads [p]."""
        reach = self._centre(heads) if len(heads) else None
        for peers in _parts(len(heads), reach):
            yield peers, self._predictions(heads[peers], None if reach is None else reach[peers])

    def _centre(self, heads: Outputs) -> Wide | None:
        """Keep or renew the center; return how far heads are from it [P, C], None if it spares them nothing."""
        reach = None if self._center is None else _reach(heads - self._center.head)
        work = self._work(self._center, reach, len(heads))
        if work > RENEWAL:
            mean = heads.mean(axis=0)
            anew = _reach(heads - mean)
            if self._work(self._centered(mean, slice(TRIAL)), anew, len(heads)) + RENEWAL < work:
                self._center, reach = self._centered(mean, slice(None)), anew
        return reach

    def _work(self, center: _Center | None, reach: Wide | None, heads: int) -> float:
        """Return how many products of some heads with all samples there are to do."""
        if center is None or reach is None:
            return len(_parts(heads, None))
        shares = [self._doubtful(center, reach[peers]).mean() for peers in _parts(heads, reach)]
        return float(sum(share if share <= WORTHWHILE else 1 for share in shares))

    def _predictions(self, heads: Outputs, reach: Wide | None) -> Classes:
        if self._center is not None and reach is not None:
            doubtful = self._doubtful(self._center, reach)
            if doubtful.mean() <= WORTHWHILE:
                guess = np.repeat(self._center.guess[None], len(heads), axis=0)
                rows = np.flatnonzero(doubtful)
                guess[:, rows] = _predict(heads, self._test[rows], self._norms[rows])[0]
                return guess
        return _predict(heads, self._test, self._norms)[0]

    def _centered(self, head: Outputs, part: slice) -> _Center:
        (guess,), (lead,) = _predict(head[None], self._test[part], self._norms[part])
        return _Center(head, guess, lead)

    def _doubtful(self, center: _Center, reach: Wide) -> Booleans:
        """Return for which samples [N] any of some heads within reach [p, C] might predict another class."""
        found: Booleans = center.lead <= reach.max(axis=0)[center.guess] * self._norms[: len(center.lead)]
        return found


def _parts(heads: int, reach: Wide | None) -> list[Integers]:
    """Split heads up; those that are about as far from the center come together."""
    order = np.arange(heads) if reach is None else np.argsort(reach.max(axis=1), kind="stable")
    return [order[start : start + TOGETHER] for start in range(0, heads, TOGETHER)]


def _numbering(classes: int) -> np.dtype[np.unsignedinteger[Any]]:
    """Return the smallest numbers that can tell classes apart."""
    return np.min_scalar_type(classes)


def _reach(change: Outputs) -> Wide:
    """Return how much any other output can gain on that of a class [P, C], for ‖x‖ = 1."""
    wide = change.astype(np.float64)
    products = wide @ wide.swapaxes(1, 2)
    squares = np.diagonal(products, axis1=1, axis2=2)
    apart = squares[:, :, None] + squares[:, None, :] - 2 * products
    # A little more than it is, for the rounding of this very sum.
    furthest: Wide = np.sqrt(np.maximum(apart, 0).max(axis=2) + 1e-9 * squares.max())
    return furthest


def _predict(heads: Outputs, test: Outputs, norms: Wide) -> tuple[Classes, Outputs]:
    """Return the predictions [P, n] and by how much each is at least ahead of other classes [P, n]."""
    peers, classes, depth = heads.shape
    outputs = (heads.reshape(-1, depth) @ test.T).reshape(peers, classes, len(test))
    guess, lead = _best(outputs)
    # A sum of D products is off by at most D eps / 2 times the norms; two of them are compared.
    loudest = np.sqrt(np.einsum("pcd,pcd->pc", heads, heads, dtype=np.float64).max(axis=1, keepdims=True))
    lead -= (depth * np.finfo(np.float32).eps * loudest * norms).astype(np.float32)
    _settle(heads, test, guess, lead)
    return guess, lead


def _best(outputs: Outputs) -> tuple[Classes, Outputs]:
    """Return the class [P, n] with the largest of outputs [P, C, n], and its lead over the second."""
    first = outputs[:, 0, :].copy()
    second = np.full_like(first, -np.inf)
    guess = np.zeros(first.shape, dtype=_numbering(outputs.shape[1]))
    for place in range(1, outputs.shape[1]):
        other = outputs[:, place, :]
        # Numbers rise, so that the larger one is the newer one: much quicker than writing where it is wanted.
        np.maximum(guess, np.multiply(other > first, place, dtype=guess.dtype), out=guess)
        np.maximum(second, np.minimum(first, other), out=second)
        np.maximum(first, other, out=first)
    return guess, first - second


def _settle(heads: Outputs, test: Outputs, guess: Classes, lead: Outputs) -> None:
    """Decide in 64 bits what 32 leave open."""
    unsure = lead <= 0
    for peer in np.flatnonzero(unsure.any(axis=1)):
        head, samples = heads[peer].astype(np.float64), np.flatnonzero(unsure[peer])
        for start in range(0, len(samples), TRIAL):
            some = samples[start : start + TRIAL]
            outputs = test[some].astype(np.float64) @ head.T
            same = 1e-12 * np.abs(outputs).max(axis=1, keepdims=True)
            guess[peer, some] = (outputs >= outputs.max(axis=1, keepdims=True) - same).argmax(axis=1)


Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, eq=False)
class Measurement:
    """How the benign peers of a world do, on the whole test set.

    Parameters
    ----------
    accuracy : array [peers]
        Share of all test samples whose class is predicted.
    class_accuracy : array [peers, C]
        The same for the samples of each class; NaN for a class without any.
    f1 : array [peers, C]
        F1 of each class, one against the rest, with 0/0 = 0.
    weight_benign, weight_malicious : float
        Share of a row of a head that came from other benign peers and from attackers in the latest iteration, on
        average over the peers that acted and the classes. The rest is the own head's.
    bytes_sent : integer array [peers]
        What each peer sent from the beginning.
    """

    accuracy: Floats
    class_accuracy: Floats
    f1: Floats
    weight_benign: float
    weight_malicious: float
    bytes_sent: np.ndarray[Any, np.dtype[np.int64]]


def prediction_cache(world: World) -> PredictionCache | None:
    """Return a cache that speeds up the measurements of a world; None where its data are of another kind."""
    test = world.data.test if world.exchange is None else world.test_with_ones
    return PredictionCache(test) if isinstance(test, np.ndarray) and test.dtype == np.float32 else None


def measure(world: World, latest: Round, *, cache: PredictionCache | None = None) -> Measurement:
    """Measure all benign peers of a world after an iteration."""
    if cache is None:
        hits, predicted = (to_numpy(counts) for counts in _counts(*world.scoring, world.data.test_labels))
    else:
        hits, predicted = _cached_counts(world, cache)
    weights = to_numpy(latest.decision.weights)
    receivers, _, classes = weights.shape
    benign = malicious = 0.0
    if receivers:
        shares = weights.sum(axis=2, dtype=np.float64)
        given, total = float(shares[latest.senders >= world.scenario.peers].sum()), receivers * classes
        benign, malicious = (float(shares.sum()) - given) / total, given / total
    return _measurement(world, hits, predicted, benign, malicious)


# Of more benign peers than the first number, only so many are evaluated unless it is said how many.
ALL_UP_TO, SAMPLED = 4096, 1000


def evaluated_peers(scenario: Scenario, wanted: int | None) -> Integers:
    """Draw which benign peers of a large world are evaluated: `wanted`, or a sample where there are very many."""
    if wanted is None:
        wanted = scenario.peers if scenario.peers <= ALL_UP_TO else SAMPLED
    check_count("evaluate_peers", wanted, least=1)
    if wanted >= scenario.peers:
        return np.arange(scenario.peers)
    chosen: Integers = pick_distinct(draw(scenario.seed, Stream.EVALUATED, np.zeros(1), 0, wanted), scenario.peers)[0]
    return chosen


def measure_large(world: LargeWorld, given: tuple[float, float], *, peers: Integers) -> Measurement:
    """Measure some benign `peers` of a large world, together with all workers that hold it.

    `given` is what `world.advance(weigh=True)` returned.
    """
    import torch  # noqa: PLC0415

    held, device = world.territory.own_peers, world.heads.device
    mine = np.flatnonzero((peers >= held.start) & (peers < held.stop))
    counts = torch.zeros((2, len(peers), world.head_shape[0]), dtype=torch.int64, device=device)
    own = torch.as_tensor(peers[mine] - held.start, device=device)
    counts[:, torch.as_tensor(mine, device=device)] = torch.stack(
        _counts(world.heads, world.data.test, world.data.test_labels, own)
    )
    hits, predicted = world.workers.add(counts).cpu().numpy()
    total = world.workers.add(torch.tensor([share * len(held) for share in given], dtype=torch.float64))
    benign, malicious = (total / world.scenario.peers).tolist()
    return _measurement(world, hits, predicted, benign, malicious)


def _measurement(
    world: World | LargeWorld, hits: Integers, predicted: Integers, benign: float, malicious: float
) -> Measurement:
    real = np.bincount(to_numpy(world.data.test_labels), minlength=world.head_shape[0])
    return Measurement(
        accuracy=hits.sum(axis=1) / max(1, int(real.sum())),
        class_accuracy=np.where(real > 0, hits / np.maximum(real, 1), np.nan),
        f1=2 * hits / np.maximum(predicted + real, 1),
        weight_benign=benign,
        weight_malicious=malicious,
        bytes_sent=world.bytes_sent,
    )


def _cached_counts(world: World, cache: PredictionCache) -> tuple[Integers, Integers]:
    """Return what `_counts` does, from predictions."""
    heads, labels = to_numpy(world.scoring[0]), to_numpy(world.data.test_labels)
    count, classes, _ = heads.shape
    hits, predicted = (np.zeros((count, classes), dtype=np.int64) for _ in range(2))
    for peers, guess in cache.blocks(heads):
        alike = labels.astype(guess.dtype)
        for peer, guessed in zip(peers, guess, strict=True):
            predicted[peer] = np.bincount(guessed, minlength=classes)
            hits[peer] = np.bincount(guessed[guessed == alike], minlength=classes)
    return hits, predicted


def _counts(heads: Array, test: Array, labels: Array, rows: Array | None = None) -> tuple[Array, Array]:
    """Count hits and predictions of some heads (`rows`; None: all) and each class [P, C], where the data lie."""
    xp, (peers, classes, depth) = namespace(heads), heads.shape
    peers = peers if rows is None else int(rows.shape[0])
    # In blocks of heads and samples, so that the outputs for all of them never lie in memory at once.
    room = max(1, block_bytes(heads) // (24 * classes))
    samples = max(1, min(int(labels.shape[0]), room))
    size = max(1, room // samples)
    counts = [xp.zeros((peers, classes), dtype=xp.int64, device=heads.device) for _ in range(2)]
    for start in range(0, peers, size):
        part = slice(start, min(start + size, peers))
        some = heads[part, ...] if rows is None else xp.take(heads, rows[part], axis=0)
        count = part.stop - start
        cells = xp.arange(count, device=heads.device) * (classes + 1)
        for first in range(0, int(labels.shape[0]), samples):
            real = labels[first : first + samples, None]
            outputs = test[first : first + samples, :] @ xp.matrix_transpose(xp.reshape(some, (-1, depth)))
            guess = xp.argmax(xp.reshape(outputs, (-1, count, classes)), axis=2)
            # What is no hit is counted in a column of its own, which is left out.
            right = xp.where(guess == real, guess, xp.full_like(guess, classes))
            for into, found in zip(counts, (right, guess), strict=True):
                binned = xp.bincount(xp.reshape(found + cells, (-1,)), minlength=count * (classes + 1))
                into[part, :] += xp.reshape(binned, (count, classes + 1))[:, :classes]
    return counts[0], counts[1]
