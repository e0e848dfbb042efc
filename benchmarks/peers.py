"""ByzFL and ByzPy, brought to the same call as our rules, to compare results and speed.

`make peers` installs them beside the project, without their dependencies. ByzFL's own `__init__` imports its whole
benchmark suite (torchvision, seaborn, ...), so only its aggregators are loaded.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from math import comb
from pathlib import Path
from typing import Any

import numpy as np

from bristle import rules
from bristle.rules import Rule, Step
from bristle.rules.subsets import MOST_SUBSETS

Vectors = np.ndarray[Any, Any]
Aggregator = Callable[[Any], Any]
FOLDER = Path(__file__).resolve().parent.parent / ".peers"


def available() -> bool:
    """Tell whether `make peers` has been run."""
    return (FOLDER / "byzfl").is_dir() and (FOLDER / "byzpy").is_dir()


@dataclass(frozen=True)
class Comparison:
    """One rule in three libraries.

    `shift` says from which point of the vectors [n, d] the others start where ours starts elsewhere: they are given
    vectors - shift, and the shift is added to their answer.
    `differs` names what they do otherwise than published, where the results cannot be equal.
    """

    name: str
    ours: Rule | Step
    byzfl: Aggregator | None = None
    byzpy: Aggregator | None = None
    shift: Callable[[Vectors], Any] = lambda vectors: np.zeros_like(vectors[0])
    differs: str = ""

    def differs_from(self, library: str) -> bool:
        """Tell whether the difference is one to `ByzFL` or `ByzPy`: it is one to both unless it names the other."""
        return bool(self.differs) and not self.differs.startswith({"ByzFL": "ByzPy", "ByzPy": "ByzFL"}[library])


def comparisons(count: int, f: int, tau: float, *, size: int = 0) -> list[Comparison]:
    """Return every rule that ByzFL 0.0.11 or ByzPy 0.1.4 has as well, set up for `count` vectors of `size` numbers."""
    fl, py = load()
    # ByzFL copies n - f neighbours for each of n vectors before it averages them.
    copies = 4e-9 * count * (count - f) * size

    def central_half(vectors: Vectors) -> Any:
        """Where our geometric median starts; ByzFL's starts at zero."""
        distances = np.sqrt(np.maximum(0, _squared_distances(vectors.astype(np.float64))))
        medoid = int(np.argmin(distances.sum(axis=1)))
        return vectors[np.argsort(distances[medoid])[: -(-len(vectors) // 2)]].mean(axis=0)

    few = comb(count, f) <= MOST_SUBSETS  # Theirs try all subsets.
    neighbours = "sums n-f-1 neighbours, the publication n-f-2"
    return [
        Comparison("fedavg", rules.FedAvg(), fl.Average()),
        Comparison(
            "median", rules.Median(), fl.Median(), py.median.CoordinateWiseMedian().aggregate,
            differs="" if count % 2 else "ByzPy takes the lower of the middle two",
        ),
        Comparison(
            "trimmed-mean", rules.TrimmedMean(f=f), fl.TrMean(f=f),
            py.trimmed_mean.CoordinateWiseTrimmedMean(f=f).aggregate,
        ),
        Comparison(
            "mean-around-median", rules.MeanAroundMedian(f=f), fl.Meamed(f=f),
            py.mean_of_medians.MeanOfMedians(f=f).aggregate,
            differs="" if count % 2 else "ByzPy measures from the lower of the middle two",
        ),
        Comparison(
            "krum", rules.Krum(f=f), fl.Krum(f=f), py.krum.Krum(f=f).aggregate, differs=neighbours
        ),
        Comparison(
            "krum, as many neighbours as theirs",
            rules.Krum(f=f - 1), fl.Krum(f=f), py.krum.Krum(f=f).aggregate,
        ),
        Comparison(
            "multi-krum", rules.MultiKrum(f=f), fl.MultiKrum(f=f),
            py.krum.MultiKrum(f=f, q=count - f).aggregate, differs=neighbours,
        ),
        Comparison(
            "multi-krum, as many neighbours as theirs", rules.MultiKrum(f=f - 1, m=count - f), fl.MultiKrum(f=f),
            py.krum.MultiKrum(f=f, q=count - f).aggregate,
        ),
        Comparison(
            "geometric-median", rules.GeometricMedian(nu=0.1, iterations=3), fl.GeometricMedian(nu=0.1, T=3),
            py.geometric_median.GeometricMedian(tol=1e-30, max_iter=3, eps=0.1, init="mean").aggregate,
            shift=central_half, differs="ByzPy starts elsewhere",
        ),
        Comparison(
            "centered-clipping", rules.CenteredClipping(tau=tau, iterations=10),
            # A new one each time: it would start from where it ended.
            _about_own(lambda vectors: fl.CenteredClipping(L=10, tau=tau)(vectors)),  # noqa: PLW0108
            _about_own(py.center_clipping.CenteredClipping(c_tau=tau, M=10, init="zero").aggregate),
        ),
        Comparison(
            "nearest-neighbour-averaging", rules.NearestNeighbourAveraging(f=f), fl.MoNNA(f=f, idx=0),
            py.monna.MoNNA(f=f, reference_index=0).aggregate,
        ),
        Comparison(
            "nearest-neighbour-mixing", rules.NearestNeighbourMixing(f=f), fl.NNM(f=f) if copies < 8 else None,
            py.nnm.NearestNeighborMixing(f=f).pre_aggregate,
            differs="" if copies < 8 else f"ByzFL would need {copies:.0f} GB",
        ),
        Comparison(
            "clipping (static)", rules.Clipping(tau=tau), _about_own(fl.Clipping(c=tau)),
            _about_own(py.clipping.Clipping(threshold=tau).pre_aggregate),
        ),
        Comparison(
            "clipping (ARC)", rules.Clipping(f=f), _about_own(fl.ARC(f=f)),
            _about_own(py.arc.ARC(f=f).pre_aggregate),
        ),
        Comparison("cge", rules.CGE(f=f), None, py.cge.ComparativeGradientElimination(f=f).aggregate),
        Comparison(
            "caf", rules.CAF(f=f), fl.CAF(f=f), py.caf.CAF(f=f).aggregate,
            differs="theirs takes one or three steps of the power method from a random vector",
        ),
        *([
            Comparison(
                "mda", rules.MDA(f=f), fl.MDA(f=f),
                py.mda.MinimumDiameterAveraging(f=f).aggregate,
            ),
            Comparison(
                "smea", rules.SMEA(f=f), fl.SMEA(f=f), py.smea.SMEA(f=f).aggregate,
                differs="ByzFL takes one step of the power method from a random vector",
            ),
        ] if few else []),
    ]  # fmt: skip


def run_ours(rule: Rule | Step, vectors: Vectors, classes: int) -> Vectors:
    """Apply a rule of ours to vectors [n, d]: the first is the own head."""
    heads = vectors.reshape(len(vectors), classes, -1)
    answer = rule(heads[0], heads[1:])
    return np.asarray(answer if isinstance(rule, Step) else answer.head)


def _squared_distances(vectors: Vectors) -> Any:
    norms = (vectors**2).sum(axis=1)
    return norms[:, None] + norms[None, :] - 2 * vectors @ vectors.T


def _about_own(aggregate: Aggregator) -> Aggregator:
    """Clip about the own head, the first one, as ours does: theirs clip about zero, what they are given in place."""

    def about_own(vectors: Any) -> Any:
        own = vectors[0]
        if not isinstance(vectors, list):
            return aggregate(vectors - own) + own
        answer = aggregate([vector - own for vector in vectors])
        return [vector + own for vector in answer] if isinstance(answer, list) else answer + own

    return about_own


def load() -> tuple[Any, Any]:
    """Import the aggregators: ByzFL's module, and ByzPy's as attributes."""
    if not available():
        raise FileNotFoundError(f"{FOLDER.name}/ is missing; run `make peers` first")
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
    if "byzfl" not in sys.modules:
        package = types.ModuleType("byzfl")
        package.__path__ = [str(FOLDER / "byzfl")]
        sys.modules["byzfl"] = package
    modules = {
        name: import_module(f"byzpy.{folder}.{name}")
        for folder, name in (
            ("aggregators.coordinate_wise", "median"),
            ("aggregators.coordinate_wise", "trimmed_mean"),
            ("aggregators.coordinate_wise", "mean_of_medians"),
            ("aggregators.geometric_wise", "krum"),
            ("aggregators.geometric_wise", "geometric_median"),
            ("aggregators.geometric_wise", "monna"),
            ("aggregators.norm_wise", "center_clipping"),
            ("aggregators.norm_wise", "caf"),
            ("pre_aggregators", "nnm"),
            ("pre_aggregators", "clipping"),
            ("pre_aggregators", "arc"),
        )
    }
    modules |= {
        short: import_module(f"byzpy.aggregators.{name}")
        for short, name in (
            ("cge", "norm_wise.comparative_gradient_elimination"),
            ("mda", "geometric_wise.minimum_diameter_average"),
            ("smea", "geometric_wise.smea"),
        )
    }
    return import_module("byzfl.aggregators"), types.SimpleNamespace(**modules)
