"""Statements with noise: what they reveal about any one sample is bounded by proof, at a cost in accuracy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bristle._core.validation import check_count, check_positive
from bristle.learning.metrics import Evaluation
from bristle.rules.evidence.statement import Floats, Statement, check_samples, sample_arrays

FOR_COUNTS, FOR_TRACE, FOR_SCATTER = 0.1, 0.02, 0.35
"""Parts of a release's rho for the counts, for the trace of the scatter, or for all of it; the rest is for the sums."""

SURE = 4.0
"""Standard deviations of its noise that a count must be above 0 for the class to be stated."""

AUDIBLE = 0.5
"""A class is stated where noise on its mean has at most a norm of `clip` over this."""

RADIUS = 0.75
"""Deviations from the mean of a class are clipped to so many times `clip`."""

FLOOR = 0.02
"""The trace of the scatter is stated as at least so many times clip^2: noise may leave nothing of it."""

WORTH = 25.0
"""The whole scatter is released from so many times sqrt(D / rho) samples on: with fewer, noise hides all of it."""


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """(epsilon, delta)-differential privacy of all statements of a peer, for one sample more or less.

    Features are clipped to the norm `clip`, and Gaussian noise is added to the sums and counts of all classes and to
    the scatter. A class is stated where its noisy count is large enough for its mean to say anything, and with the
    count of samples that would make the mean as certain without noise. docs/privacy.md has the proof, and the costs.

    Parameters
    ----------
    epsilon, delta : float
        Of all releases together.
    clip : float
        The largest norm of a feature; choose it without looking at the samples, e.g. by features of a public dataset.
    releases : int
        How many statements of these samples are made at most.
    """

    epsilon: float
    clip: float
    delta: float = 1e-5
    releases: int = 1

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon, most=1e6)
        check_positive("clip", self.clip)
        if not 0 < self.delta < 1:
            raise ValueError(
                f"delta must be a number between 0 and 1, well below 1 / samples such as 1e-5, not {self.delta!r}"
            )
        check_count("releases", self.releases, least=1)

    @classmethod
    def of(cls, given: Privacy | Mapping[str, float]) -> Privacy:
        """Return settings, also from a table of a configuration."""
        if isinstance(given, Privacy):
            return given
        if not isinstance(given, Mapping):
            raise ValueError(f"privacy must be a table such as {{epsilon = 4, clip = 30}}, not {given!r}")
        try:
            return cls(**given)  # type: ignore[arg-type]
        except TypeError as error:
            raise ValueError(f"privacy takes epsilon, clip, delta and releases: {error}") from error

    @property
    def rho(self) -> float:
        """The zero-concentrated differential privacy of one release: rho + 2 sqrt(rho ln(1 / delta)) = epsilon."""
        loss = math.log(1 / self.delta)
        # The difference of two roots, without cancellation.
        root = self.epsilon / (math.sqrt(loss + self.epsilon) + math.sqrt(loss))
        return root**2 / self.releases

    def noise(self, part: float, sensitivity: float) -> float:
        """Return the standard deviation sensitivity / sqrt(2 rho) of noise that takes a part of a release's rho."""
        return sensitivity / math.sqrt(2 * part * self.rho)

    def state(self, samples: Evaluation, classes: int, *, rng: np.random.Generator | None = None) -> Statement:
        """Return the statement of one peer's samples: `features` [S, D], `labels` [S] (-1 = padding).

        Without `rng` the noise comes from the operating system's entropy: whoever can draw it again can remove it.
        """
        rng = rng or np.random.default_rng()
        features, y = sample_arrays(samples)
        check_samples(features, y, classes)
        x = clipped(features[y >= 0].astype(np.float64), self.clip)
        y = y[y >= 0]
        size = x.shape[1]
        loud = self.noise(FOR_COUNTS, 1.0)
        counts = np.bincount(y, minlength=classes) + loud * rng.standard_normal(classes)
        least = AUDIBLE * math.sqrt(size) * self.noise(1 - FOR_COUNTS - FOR_TRACE, 1.0)
        stated = counts >= max(SURE * loud, least, 1.0)
        total = float(counts[stated].sum())
        # Counts are public from here on, so that what follows may depend on them.
        whole = total >= WORTH * math.sqrt(size / (FOR_SCATTER * self.rho))
        for_scatter = FOR_SCATTER if whole else FOR_TRACE
        spread = self.noise(1 - FOR_COUNTS - for_scatter, self.clip)
        sums = np.zeros((classes, size))
        np.add.at(sums, y, x)
        sums += spread * rng.standard_normal(sums.shape)
        rows = np.where(stated[:, None], sums / np.maximum(counts, 1.0)[:, None], 0.0)
        x, y = x[stated[y]], y[stated[y]]
        factors, rest = np.zeros((0, size)), self.clip**2
        if whole:
            factors, rest = self._scatter(x - rows[y], total, spread, counts[stated], rng)
        elif stated.any():
            noisy = float((x**2).sum()) + self.noise(FOR_TRACE, self.clip**2) * rng.standard_normal()
            means = counts[stated] * (rows[stated] ** 2).sum(axis=1) - size * spread**2 / counts[stated]
            rest = (noisy - float(means.sum())) / total
        taken = float((factors**2).sum())
        rest = min(max(rest, FLOOR * self.clip**2 - taken, 0.0), self.clip**2)
        variance = (rest + taken) / size
        certain = 1 / (1 / np.maximum(counts, 1.0) + (spread / np.maximum(counts, 1.0)) ** 2 / variance)
        worth = np.where(stated, np.maximum(np.floor(certain), 1.0), 0.0)
        return Statement(rows, worth, factors, np.full(size, rest / size))

    def _scatter(
        self, about: Floats, total: float, spread: float, counts: Floats, rng: np.random.Generator
    ) -> tuple[Floats, float]:
        """Return factors [R, D] of the noisy scatter, as many as noise leaves, and the trace of the rest.

        Noise on a symmetric matrix of norm 1, counting both triangles, has half the variance beside the diagonal; its
        largest eigenvalue is about sqrt(2 D) standard deviations, and it lifts one of s to s + (that / 2)^2 / s.
        """
        size = about.shape[1]
        radius = RADIUS * self.clip
        about = clipped(about, radius)
        loud = self.noise(FOR_SCATTER, radius**2)
        drawn = loud * rng.standard_normal((size, size))
        noisy = about.T @ about + np.triu(drawn, 1) / math.sqrt(2) + np.triu(drawn, 1).T / math.sqrt(2)
        noisy += np.diag(np.diag(drawn))
        # Noise on the means is in there too, once a sample.
        noisy -= (spread**2 / counts).sum() * np.eye(size)
        values, vectors = np.linalg.eigh(noisy)
        edge = loud * math.sqrt(2 * size)
        kept = values > 1.1 * edge
        lowered = (values[kept] + np.sqrt(values[kept] ** 2 - edge**2)) / 2
        factors: Floats = np.sqrt(lowered / total)[:, None] * vectors[:, kept].T
        return factors, float((np.trace(noisy) - lowered.sum()) / total)


def clipped(features: Floats, norm: float) -> Floats:
    """Return features [S, D] of which none is longer than `norm`."""
    lengths = np.sqrt((features**2).sum(axis=1, keepdims=True))
    found: Floats = features * np.minimum(1.0, norm / np.maximum(lengths, 1e-300))
    return found
