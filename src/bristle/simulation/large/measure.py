"""What is measured of a large world: a sample of its peers, on the device."""

from __future__ import annotations

from typing import Any

import numpy as np

from bristle._core import Array, block_bytes
from bristle._core.rng import Stream, draw, pick_distinct
from bristle._core.validation import check_count
from bristle.simulation.large.world import LargeWorld
from bristle.simulation.measure import Measurement
from bristle.simulation.scenario import Scenario
from bristle.simulation.topology import Integers

# Of more benign peers than the first number, only so many are evaluated unless it is said how many.
ALL_UP_TO, SAMPLED = 4096, 1000


def evaluated_peers(scenario: Scenario, wanted: int | None) -> Integers:
    """Draw which benign peers are evaluated: `wanted` of them, or a sample where there are very many."""
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
    hits, predicted = _counts(world, peers)
    real = np.bincount(world.data.test_labels.cpu().numpy(), minlength=world.head_shape[0])
    benign, malicious = _weights(world, given)
    return Measurement(
        accuracy=hits.sum(axis=1) / max(1, int(real.sum())),
        class_accuracy=np.where(real > 0, hits / np.maximum(real, 1), np.nan),
        f1=2 * hits / np.maximum(predicted + real, 1),
        weight_benign=benign,
        weight_malicious=malicious,
        bytes_sent=world.bytes_sent,
    )


def _weights(world: LargeWorld, given: tuple[float, float]) -> tuple[float, float]:
    import torch  # noqa: PLC0415

    own = len(world.territory.own_peers)
    total = world.workers.add(torch.tensor([given[0] * own, given[1] * own], dtype=torch.float64))
    benign, malicious = (total / world.scenario.peers).tolist()
    return benign, malicious


def _counts(world: LargeWorld, peers: Integers) -> tuple[Any, Any]:
    """Count hits and predictions of each of some peers and each class [peers, C]."""
    import torch  # noqa: PLC0415

    held = world.territory.own_peers
    mine = np.flatnonzero((peers >= held.start) & (peers < held.stop))
    device, (classes, depth) = world.heads.device, world.head_shape
    counts = torch.zeros((2, len(peers), classes), dtype=torch.int64, device=device)
    test, labels = world.data.test, world.data.test_labels
    size = max(1, block_bytes(world.heads) // (24 * classes * max(1, len(labels))))
    for start in range(0, len(mine), size):
        chosen = torch.as_tensor(mine[start : start + size], device=device)
        heads = world.heads[torch.as_tensor(peers[mine[start : start + size]] - held.start, device=device)]
        outputs = (test @ heads.reshape(-1, depth).T).view(len(labels), -1, classes)
        guess = outputs.argmax(dim=2)
        counts[0, chosen] = _per_class(torch, torch.where(guess == labels[:, None], guess, classes), classes)
        counts[1, chosen] = _per_class(torch, guess, classes)
    hits, predicted = world.workers.add(counts).cpu().numpy()
    return hits, predicted


def _per_class(torch: Any, guess: Array, classes: int) -> Array:
    """Count the guesses [T, P] of each peer and class [P, C]; those beyond the classes count nowhere."""
    count = guess.shape[1]
    cells = guess + torch.arange(count, device=guess.device) * (classes + 1)
    return torch.bincount(cells.view(-1), minlength=count * (classes + 1)).view(count, classes + 1)[:, :classes]
