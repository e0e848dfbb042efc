"""Regular learning: peers that train whole networks from scratch, for comparison with transfer learning. Needs torch.

A model is one vector. As `[..., 1, P]` it is a head with a single row, so that every rule that tests no rows
aggregates whole networks as it does heads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from bristle._core.extras import to_install

try:
    import torch
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"regular learning needs torch: {to_install('torch')}", name="torch") from error
from torch import Tensor

from bristle._core import Array, block_bytes
from bristle._core.rng import Stream, draw
from bristle.backbones.pretrain.network import CHANNELS, KERNEL, activated, sides_after
from bristle.data import mnist
from bristle.learning import HeadState, TrainingSettings, accuracy, log_likelihood_loss
from bristle.learning.optimiser import adam_update
from bristle.learning.training import DEFAULTS, mini_batches
from bristle.paper.work import benign_row
from bristle.rules import Context
from bristle.simulation import FeatureData, Scenario
from bristle.simulation.population import populate
from bristle.wire.sizes import head_bytes

Row = dict[str, Any]
WIDTHS = (10, CHANNELS)
TEST_SAMPLES = 2000
"""Number of test images for whole networks, whose evaluation on all would take longer than their training."""


@dataclass(frozen=True)
class ConvolutionalNetwork:
    """Convolution 5x5 (10) - LeakyReLU - maxpool 2 - convolution 5x5 (50) - LeakyReLU - maxpool 2 - linear.

    The network of Verbraeken, de Vos and Pouwelse, "Bristle: Decentralized Federated Learning in Byzantine,
    Non-i.i.d. Environments", 2021, without biases: 20,750 parameters for images of 28 x 28 and 10 classes.

    Parameters
    ----------
    classes : int
        Number of classes C.
    image : tuple of int
        Sizes of an image: (height, width), or (height, width, colours).
    mean, deviation : float
        Of the pixels, where black is 0 and white is 1; the network sees (pixel - mean) / deviation. MNIST's, unless
        given.
    """

    classes: int = 10
    image: tuple[int, ...] = (28, 28)
    mean: float = 0.1307
    deviation: float = 0.3081

    def __post_init__(self) -> None:
        if self.classes < 2:
            raise ValueError(f"classes={self.classes}: give at least 2")
        if len(self.image) not in (2, 3):
            raise ValueError(f"image={self.image}: give (height, width) or (height, width, colours)")
        if min(sides_after(self.image, 2)) < 1:
            raise ValueError(f"image={self.image}: give at least 16 pixels a side; two poolings leave nothing of less")
        if not self.deviation > 0:
            raise ValueError(f"deviation={self.deviation}: give a positive number")

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the three layers' parameters, in the order they have in a vector."""
        colours = self.image[2] if len(self.image) == 3 else 1
        first, second = WIDTHS
        return (
            (first, colours, KERNEL, KERNEL),
            (second, first, KERNEL, KERNEL),
            (self.classes, second * prod(sides_after(self.image, 2))),
        )

    @property
    def parameters(self) -> int:
        """Number of parameters P."""
        return sum(map(prod, self.shapes))

    def initial(self, seeds: Sequence[int]) -> Tensor:
        """Return random models [peers, 1, P], one a seed: uniform within ± 1/sqrt(inputs of a neuron)."""
        bounds = np.concatenate([np.full(prod(shape), prod(shape[1:]) ** -0.5) for shape in self.shapes])
        models = np.empty((len(seeds), 1, self.parameters), dtype=np.float32)
        for model, seed in zip(models, seeds, strict=True):
            model[0] = np.random.default_rng(seed).uniform(-bounds, bounds)
        made: Tensor = torch.from_numpy(models)
        return made

    def outputs(self, models: Tensor, images: Tensor) -> Tensor:
        """Return the outputs [B, n, C] of models [B, 1, P] for images [B, n, ...], or for the same ones [n, ...]."""
        shared = images.ndim == len(self.image) + 1
        run = torch.func.vmap(self._run, in_dims=(0, None if shared else 0))
        result: Tensor = run(models[:, 0, :], self._prepared(images))
        return result

    def gradient(self, models: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        """Return d loss / d model [B, 1, P]; images [B, n, ...], labels [B, n], -1 = padding."""

        def loss(model: Tensor, some: Tensor, classes: Tensor) -> Array:
            return log_likelihood_loss(self._run(model, some), classes)

        slope: Tensor = torch.func.vmap(torch.func.grad(loss))(models[:, 0, :], self._prepared(images), labels)
        return slope[:, None, :]

    def accuracy_on(self, models: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        """Return the accuracy [B] of models [B, 1, P] on one test set: images [T, ...], labels [T]."""
        size = max(1, block_bytes(models) // self._bytes_per_sample())
        hits: Tensor = torch.zeros(len(models), dtype=models.dtype, device=models.device)
        for start in range(0, len(labels), size):
            some = labels[start : start + size]
            real = int((some >= 0).sum())
            # One model after the other, with colours last: twice as fast as all of them in one call.
            seen = self._prepared(images[start : start + size]).contiguous(memory_format=torch.channels_last)
            found = [accuracy(self._run(model, seen), some) for model in models[:, 0, :]]
            hits = hits + real * torch.stack(found) if found else hits
        return hits / max(1, int((labels >= 0).sum()))

    def check(self, images: Array) -> None:
        """Refuse what is not a tensor of images."""
        if not isinstance(images, torch.Tensor):
            raise ValueError(
                f"regular learning takes images as torch tensors, not {type(images).__name__}: "
                "convert them once, with torch.tensor(images)"
            )
        if tuple(images.shape[-len(self.image) :]) != self.image:
            raise ValueError(
                f"images of shape {list(images.shape)} do not end in {list(self.image)}, the network's own"
            )

    def _bytes_per_sample(self) -> int:
        """Estimate the memory that a sample takes on its way: before and after each activation, and once more."""
        sizes = [4 * width * prod(sides_after(self.image, layer)) for layer, width in enumerate(WIDTHS, start=1)]
        return 4 * 3 * (sum(sizes) + prod(self.image))

    def _prepared(self, images: Tensor) -> Tensor:
        """Return images [..., colours, height, width] as the first layer wants them."""
        self.check(images)
        bright = images.float() / 255 if images.dtype == torch.uint8 else images
        bright = (bright - self.mean) / self.deviation
        return bright[..., None, :, :] if len(self.image) == 2 else bright.movedim(-1, -3)

    def _run(self, model: Tensor, images: Tensor) -> Tensor:
        """Return the outputs [n, C] of one model [P] for prepared images [n, colours, height, width]."""
        parts = torch.split(model, [prod(shape) for shape in self.shapes])
        first, second, last = (part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True))
        seen: Tensor = images
        for weights in (first, second):
            seen = activated(torch.nn.functional.conv2d(seen, weights))
        outputs: Tensor = seen.flatten(1) @ last.T
        return outputs


def regular_step(
    network: ConvolutionalNetwork,
    state: HeadState,
    images: Array,
    labels: Array,
    draws: Array,
    *,
    index: Array | None = None,
    settings: TrainingSettings = DEFAULTS,
) -> HeadState:
    """`train_step` for whole networks: one mini-batch of each peer's own images, all peers in one batched call.

    Parameters
    ----------
    network : ConvolutionalNetwork
        What the parameters mean.
    state : HeadState [B, 1, P]
        The models before; `HeadState.start(network.initial(seeds))` at first.
    images : tensor [B, S, ...], or [N, ...] with `index`
        The peers' images, as bytes or as floats from 0 to 1; or one table for all of them.
    labels, draws, index, settings
        As in `train_step`, in torch (draws may be NumPy's).

    Returns
    -------
    HeadState [B, 1, P]
        The models after.
    """
    if state.head.ndim != 3 or tuple(state.head.shape[1:]) != (1, network.parameters):
        raise ValueError(
            f"models of shape {list(state.head.shape)}: the network needs [peers, 1, {network.parameters}]"
        )
    network.check(images)
    peers = state.head.shape[0]
    batch = mini_batches(images, labels, draws, network.classes, index=index, batch=(peers,), size=settings.batch)
    if batch is None:
        return state
    size = max(1, block_bytes(state.head) // (network._bytes_per_sample() * batch.labels.shape[1]))
    gradients = []
    for start in range(0, peers, size):
        part = slice(start, start + size)
        assert batch.rows is not None
        gradients.append(network.gradient(state.head[part], batch.features[batch.rows[part]], batch.labels[part]))
    active = (batch.labels >= 0).any(dim=1, keepdim=True)
    return adam_update(state, torch.cat(gradients), settings, rows=active)


@lru_cache(maxsize=1)
def _images() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    digits = mnist()
    arrays = (digits.x_train, digits.y_train.astype(np.int64), digits.x_test, digits.y_test.astype(np.int64))
    train, train_labels, test, test_labels = (torch.tensor(array) for array in arrays)
    return train, train_labels, test, test_labels


def regular(scenario: Scenario, *, every: int, test_samples: int | None, tick: Callable[[int], None]) -> list[Row]:
    """Run honest peers in a full mesh, with the samples and mini-batches of the world of heads.

    All begin with the same network: means of networks that began apart are of no use.
    """
    torch.set_num_threads(1)
    train, train_labels, test, test_labels = _images()
    if test_samples is None or test_samples > TEST_SAMPLES:
        test_samples = TEST_SAMPLES
    network, peers = ConvolutionalNetwork(), scenario.peers
    held = populate(scenario, FeatureData.labels_only(train_labels.numpy(), tuple(map(str, range(10))))).held
    assert held.index is not None
    index, labels = torch.tensor(np.asarray(held.index)), torch.tensor(np.asarray(held.labels))
    state = HeadState.start(network.initial([scenario.seed] * peers))
    others = torch.tensor([[sender for sender in range(peers) if sender != peer] for peer in range(peers)])
    previous, sent, rows = state.head, 0, []
    for iteration in range(1, scenario.iterations + 1):
        context = Context(iteration=iteration, total=scenario.iterations, previous=previous, senders=others, state=None)
        previous = scenario.rule(state.head, state.head[others], context=context).head
        draws = draw(scenario.seed, Stream.BATCHES, np.arange(peers), iteration, labels.shape[1]).astype(np.float32)
        mixed = HeadState(previous, state.first, state.second, state.steps)
        state = regular_step(network, mixed, train, labels, draws, index=index, settings=scenario.training)
        sent += (peers - 1) * head_bytes(1, network.parameters)
        if iteration % every == 0 or iteration == scenario.iterations:
            reached = network.accuracy_on(state.head, test[:test_samples], test_labels[:test_samples])
            values = reached.numpy().astype(np.float64)
            rows.append(benign_row(scenario, iteration, float(values.mean()), float(values.min()), sent=sent))
            tick(iteration)
    return rows
