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
    """The mean of some heads [C, D], its prediction for each sample [N], and the margin of that [N]."""

    head: Outputs
    guess: Classes
    lead: Outputs


class PredictionCache:
    """The predictions argmax_c w_c · x of many heads for one test set.

    If a head w prefers class a for x by more than max_c ‖δ_a - δ_c‖ ‖x‖, the head w + δ predicts a as well
    (Cauchy-Schwarz). Heads of peers that learn together differ little, and change little between calls: most samples
    are settled by the mean of all heads, of this or an earlier call, and only the rest are multiplied. Margins within
    32-bit rounding are decided in 64 bits, and ties there go to the first class, so that results do not depend on the
    cache.

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
        """Yield the numbers [p] of some of the heads [P, C, D], and the classes [p, N] that these predict."""
        reach = self._centre(heads) if len(heads) else None
        for peers in _parts(len(heads), reach):
            yield peers, self._predictions(heads[peers], None if reach is None else reach[peers])

    def _centre(self, heads: Outputs) -> Wide | None:
        """Keep or renew the center; return the distance of heads from it [P, C], None if it saves nothing."""
        reach = None if self._center is None else _reach(heads - self._center.head)
        work = self._work(self._center, reach, len(heads))
        if work > RENEWAL:
            mean = heads.mean(axis=0)
            renewed = _reach(heads - mean)
            if self._work(self._centered(mean, slice(TRIAL)), renewed, len(heads)) + RENEWAL < work:
                self._center, reach = self._centered(mean, slice(None)), renewed
        return reach

    def _work(self, center: _Center | None, reach: Wide | None, heads: int) -> float:
        """Return the number of products of TOGETHER heads with all samples that are needed."""
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
        """Return the samples [N] for which some head within reach [p, C] might predict another class."""
        found: Booleans = center.lead <= reach.max(axis=0)[center.guess] * self._norms[: len(center.lead)]
        return found


def _parts(heads: int, reach: Wide | None) -> list[Integers]:
    """Split heads into parts with about the same distance from the center."""
    order = np.arange(heads) if reach is None else np.argsort(reach.max(axis=1), kind="stable")
    return [order[start : start + TOGETHER] for start in range(0, heads, TOGETHER)]


def _numbering(classes: int) -> np.dtype[np.unsignedinteger[Any]]:
    """Return the smallest integer type for class numbers."""
    return np.min_scalar_type(classes)


def _reach(change: Outputs) -> Wide:
    """Return how much another output can gain on that of each class [P, C], for ‖x‖ = 1."""
    wide = change.astype(np.float64)
    products = wide @ wide.swapaxes(1, 2)
    squares = np.diagonal(products, axis1=1, axis2=2)
    apart = squares[:, :, None] + squares[:, None, :] - 2 * products
    # A little more than it is, for the rounding of this very sum.
    furthest: Wide = np.sqrt(np.maximum(apart, 0).max(axis=2) + 1e-9 * squares.max())
    return furthest


def _predict(heads: Outputs, test: Outputs, norms: Wide) -> tuple[Classes, Outputs]:
    """Return the predictions [P, n] and lower bounds of their margins [P, n].

    Of equal rows of a head, only the first takes part.
    """
    kept = _different(heads)
    if kept is not None:
        guess, lead = _predict_different(np.take_along_axis(heads, kept[:, :, None], axis=1), test, norms)
        return np.take_along_axis(kept.astype(guess.dtype), guess, axis=1), lead
    return _predict_different(heads, test, norms)


def _different(heads: Outputs) -> Integers | None:
    """Return the different rows of each head: the positions [P, K], in order, of the first of all equal ones.

    Heads with fewer than K different rows repeat the last position. Return None unless K < C. Heads of peers that learn
    alone have many equal rows: the rows of classes that a peer does not hold start at zero and are trained alike.
    """
    classes, first = heads.shape[1], np.sort(heads[:, :, 0], axis=1)
    if not (first[:, 1:] == first[:, :-1]).any(axis=1).all():
        return None
    rows: list[list[int]] = []
    for head in heads:
        place: dict[bytes, int] = {}
        for label, row in enumerate(head):
            place.setdefault(row.tobytes(), label)
        rows.append(list(place.values()))
    most = max(len(some) for some in rows)
    if most == classes:
        return None
    # Among equal outputs the first is predicted, so that a repeated row changes nothing.
    return np.array([[*some, *some[-1:] * (most - len(some))] for some in rows], dtype=np.intp)


def _predict_different(heads: Outputs, test: Outputs, norms: Wide) -> tuple[Classes, Outputs]:
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
        # Class numbers rise, so that the maximum is the newer one: much faster than masked writes.
        np.maximum(guess, np.multiply(other > first, place, dtype=guess.dtype), out=guess)
        np.maximum(second, np.minimum(first, other), out=second)
        np.maximum(first, other, out=first)
    return guess, first - second


def _settle(heads: Outputs, test: Outputs, guess: Classes, lead: Outputs) -> None:
    """Decide predictions within 32-bit rounding in 64 bits."""
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
    """Performance of the benign peers of a world on the whole test set.

    Parameters
    ----------
    accuracy : array [peers]
        Accuracy of each peer.
    class_accuracy : array [peers, C]
        The same for the samples of each class; NaN for a class without any.
    f1 : array [peers, C]
        F1 of each class, one against the rest, with 0/0 = 0.
    weight_benign, weight_malicious : float
        Mean weight of other benign peers and of attackers in a row of a head in the latest iteration, over the peers
        that acted and the classes. The rest is the own head's.
    bytes_sent : integer array [peers]
        Bytes sent by each peer since the beginning.
    """

    accuracy: Floats
    class_accuracy: Floats
    f1: Floats
    weight_benign: float
    weight_malicious: float
    bytes_sent: np.ndarray[Any, np.dtype[np.int64]]


def prediction_cache(world: World) -> PredictionCache | None:
    """Return a cache that speeds up the measurements of a world; None unless its data are 32-bit NumPy arrays."""
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


# With more benign peers than ALL_UP_TO, SAMPLED of them are evaluated by default.
ALL_UP_TO, SAMPLED = 4096, 1000


def evaluated_peers(scenario: Scenario, wanted: int | None) -> Integers:
    """Draw the benign peers of a large world to evaluate: `wanted`, or a sample if there are very many."""
    if wanted is None:
        wanted = scenario.peers if scenario.peers <= ALL_UP_TO else SAMPLED
    check_count("evaluate_peers", wanted, least=1)
    if wanted >= scenario.peers:
        return np.arange(scenario.peers)
    chosen: Integers = pick_distinct(draw(scenario.seed, Stream.EVALUATED, np.zeros(1), 0, wanted), scenario.peers)[0]
    return chosen


def measure_large(world: LargeWorld, given: tuple[float, float], *, peers: Integers) -> Measurement:
    """Measure some benign `peers` of a large world, on all of its workers.

    `given` is the result of `world.advance(weigh=True)`.
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
    """Return the counts of `_counts`, from cached predictions."""
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
    """Count hits and predictions of some heads (`rows`; None: all) for each class [P, C], on the device of the data."""
    xp, (peers, classes, depth) = namespace(heads), heads.shape
    peers = peers if rows is None else int(rows.shape[0])
    # In blocks of heads and samples, to limit memory for outputs.
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
            # Misses are counted in an additional column, which is dropped.
            right = xp.where(guess == real, guess, xp.full_like(guess, classes))
            for into, found in zip(counts, (right, guess), strict=True):
                binned = xp.bincount(xp.reshape(found + cells, (-1,)), minlength=count * (classes + 1))
                into[part, :] += xp.reshape(binned, (count, classes + 1))[:, :classes]
    return counts[0], counts[1]
