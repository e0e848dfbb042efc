"""How well the features of a backbone carry over to classes that it was not trained on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bristle.backbones.base import Backbone
from bristle.backbones.features import Cache, Watch, extract
from bristle.data import Dataset
from bristle.learning import HeadState, TrainingSettings, full_step

PEERS, SAMPLES, STEPS, MINI_BATCH = 10, 2, 300, 5  # the paper's setting
LEARNING_RATE, L2 = 1e-3, 5e-3


@dataclass(frozen=True)
class Transfer:
    """Test accuracies of heads without bias, trained from zero on the features of another dataset.

    Parameters
    ----------
    whole
        One head trained on all training images.
    pooled
        300 full-batch Adam steps on 10 peers x 2 samples x all classes: mean over the seeds.
    mini_batches
        The same samples, 300 mini-batches of 5.
    alone
        One peer's samples, 2 of each class, 300 mini-batches of 5.
    seeds
        How many draws of the samples the last three are means over.
    """

    whole: float
    pooled: float
    mini_batches: float
    alone: float
    seeds: int


def measure_transfer(
    backbone: Backbone,
    data: Dataset,
    *,
    seeds: int = 5,
    epochs: int = 10,
    device: str = "cpu",
    cache: Cache = None,
    progress: Watch | None = None,
) -> Transfer:
    """Train heads on the features of `data` by `backbone`, and test them on its whole test set."""
    check_enough(data)
    x = torch.from_numpy(extract(backbone, data.x_train, cache=cache, progress=progress)).to(device)
    test = torch.from_numpy(extract(backbone, data.x_test, cache=cache, progress=progress)).to(device)
    y = torch.from_numpy(data.y_train.astype(np.int64)).to(device)
    truth = torch.from_numpy(data.y_test.astype(np.int64)).to(device)
    classes = len(data.classes)
    pooled = _draw(data.y_train, classes, PEERS * SAMPLES, seeds)
    alone = _draw(data.y_train, classes, SAMPLES, seeds)
    heads = {
        "pooled": train_heads(x[pooled], y[pooled], classes=classes),
        "mini_batches": train_heads(x[pooled], y[pooled], classes=classes, batch=MINI_BATCH),
        "alone": train_heads(x[alone], y[alone], classes=classes, batch=MINI_BATCH),
        "whole": _train_on_all(x, y, classes=classes, epochs=epochs)[None],
    }
    figures = {name: _accuracy(rows, test, truth) for name, rows in heads.items()}
    return Transfer(**figures, seeds=seeds)


def check_enough(data: Dataset) -> None:
    """Raise ValueError if `data` is too small to measure the transfer to."""
    smallest = int(np.bincount(data.y_train, minlength=len(data.classes)).min())
    if smallest < PEERS * SAMPLES or len(data.x_test) == 0:
        raise ValueError(
            f"{data.name}: a class has {smallest} training samples, and there are {len(data.x_test)} test samples: "
            f"measuring the transfer takes {PEERS * SAMPLES} a class, and a test set"
        )


def train_heads(x: Tensor, y: Tensor, *, classes: int, batch: int | None = None, steps: int = STEPS) -> Tensor:
    """Return heads `[runs, classes, features]` after `steps` of Adam from zero on `x` `[runs, n, features]`.

    The gradient is that of the mean negative log-likelihood plus `L2` times the head. Mini-batches are
    drawn without replacement; without `batch` every step sees all samples.
    """
    runs, n, features = x.shape
    generator = torch.Generator().manual_seed(0)
    settings = TrainingSettings(learning_rate=LEARNING_RATE, l2=L2)
    state = HeadState.zeros((runs, classes, features), like=x)
    size = batch or n
    order = torch.arange(n).expand(runs, n)
    everyone = torch.arange(runs)[:, None]
    for step in range(steps):
        turn = step % (n // size)
        if batch is not None and turn == 0:
            order = torch.rand((runs, n), generator=generator).argsort(dim=1)
        chosen = order[:, turn * size : (turn + 1) * size]
        state = full_step(state, x[everyone, chosen], y[everyone, chosen], settings=settings)
    head: Tensor = state.head
    return head


def _train_on_all(x: Tensor, y: Tensor, *, classes: int, epochs: int, batch: int = 256) -> Tensor:
    """Return a head `[classes, features]` after `epochs` of Adam whose learning rate falls to zero."""
    generator = torch.Generator().manual_seed(0)
    head = torch.zeros((classes, x.shape[1]), device=x.device, requires_grad=True)
    optimiser = torch.optim.Adam([head], lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs * -(-len(x) // batch))
    for _ in range(epochs):
        for chosen in torch.split(torch.randperm(len(x), generator=generator).to(x.device), batch):
            optimiser.zero_grad()
            torch.autograd.backward(torch.nn.functional.cross_entropy(x[chosen] @ head.T, y[chosen]))
            optimiser.step()
            schedule.step()
    return head.detach()


def _draw(y: npt.NDArray[np.integer], classes: int, count: int, seeds: int) -> npt.NDArray[np.int64]:
    """Return the numbers of `count` random samples of each class, a row `[classes * count]` per seed."""
    members = [np.flatnonzero(y == c) for c in range(classes)]
    draws = [np.random.default_rng(seed) for seed in range(seeds)]
    return np.array([np.concatenate([r.choice(m, count, replace=False) for m in members]) for r in draws])


def _accuracy(heads: Tensor, x: Tensor, y: Tensor) -> float:
    right = [(x @ head.T).argmax(dim=1) == y for head in heads]
    return float(torch.stack(right).to(torch.float64).mean())
