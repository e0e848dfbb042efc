"""Train the paper's network an epoch at a time, with checkpoints."""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from bristle._core.files import write_atomically
from bristle.backbones.pretrain.network import ImageKind, PaperNetwork, channels_first

State = dict[str, npt.NDArray[np.generic]]
"""Everything that training needs to continue, by name."""


@dataclass(frozen=True)
class Recipe:
    """How to train; the defaults made the bundled backbone.

    Parameters
    ----------
    width
        Channels of the first convolution.
    epochs
        Passes over the training images. The learning rate falls to zero over them along a cosine, so that the
        last ones move nothing any more: training ends converged.
    batch, learning_rate, weight_decay
        Of the optimiser, AdamW.
    dropout
        Share of the features dropped before the last layer.
    label_smoothing
        Share of the target spread over all classes.
    shift, rotation, zoom, shear
        Largest random displacement (a share of the image), turn (degrees), change of size and slant of a
        training image.
    averaging
        Decay of the running mean of the weights, which is what is evaluated and kept.
    validation
        Share of the training images held out to watch the convergence.
    """

    width: int = 64
    epochs: int = 40
    batch: int = 256
    learning_rate: float = 2e-3
    weight_decay: float = 0.05
    dropout: float = 0.5
    label_smoothing: float = 0.1
    shift: float = 0.07
    rotation: float = 10.0
    zoom: float = 0.1
    shear: float = 0.1
    averaging: float = 0.999
    validation: float = 0.05

    def __post_init__(self) -> None:
        if min(self.width, self.epochs, self.batch) < 1:
            raise ValueError(
                f"width {self.width}, epochs {self.epochs} and batch {self.batch}: each must be at least 1"
            )
        shares = {"dropout": self.dropout, "label_smoothing": self.label_smoothing, "averaging": self.averaging}
        for name, share in (shares | {"validation": self.validation}).items():
            if not 0 <= share < 1:
                raise ValueError(f"{name} is a share from 0 to below 1, not {share}")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate is positive, not {self.learning_rate}")


@dataclass(frozen=True)
class Epoch:
    """Results of an epoch: the mean training loss and the accuracy on the held-out images."""

    number: int
    loss: float
    validation: float


@dataclass(frozen=True)
class EpochProgress:
    """Where training stands: after `batch` of `batches` in `epoch` of `epochs`, both counted from 1."""

    epoch: int
    epochs: int
    batch: int
    batches: int
    finished: Epoch | None = None
    """Results of the epoch, after its last batch."""


class Trainer:
    """One training run, whose whole state `state` gives and `restore` takes.

    Every draw is keyed by the seed and the number of the epoch, so a run that was stopped between
    epochs goes on as if it had not been.

    Parameters
    ----------
    x, y
        Training images and their class numbers.
    classes
        How many classes there are.
    recipe, seed, device
        How, with which draws and where to train.
    """

    def __init__(
        self,
        x: npt.NDArray[np.generic],
        y: npt.NDArray[np.integer],
        *,
        classes: int,
        recipe: Recipe,
        seed: int,
        device: str,
    ) -> None:
        self.recipe, self.seed, self.device = recipe, seed, torch.device(device)
        order = np.random.default_rng([seed, 0]).permutation(len(x))
        held_out = max(1, round(recipe.validation * len(x)))
        self._held_out = self._put(x[order[:held_out]]), self._put(y[order[:held_out]].astype(np.int64))
        self._train = self._put(x[order[held_out:]]), self._put(y[order[held_out:]].astype(np.int64))
        self.kind = ImageKind.of(x[order[held_out:]])
        self.batches = math.ceil(len(self._train[0]) / recipe.batch)
        with self._drawing(0):
            make = PaperNetwork(self.kind, classes=classes, width=recipe.width, dropout=recipe.dropout)
        self._network = make.to(self.device)
        self._optimiser = torch.optim.AdamW(
            self._network.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay
        )
        self._average = {name: value.clone() for name, value in self._network.state_dict().items()}
        self.history: list[Epoch] = []

    def epoch(self, watch: Callable[[EpochProgress], None] | None = None) -> Epoch:
        """Train one more epoch."""
        number = len(self.history) + 1
        self._network.train()
        losses = torch.zeros((), device=self.device)
        # on a GPU, the fastest convolutions add up in an order that changes from run to run
        repeatable = torch.backends.cudnn.flags(enabled=True, deterministic=True)
        with repeatable, self._drawing(number) as generator:
            order = torch.randperm(len(self._train[0]), generator=generator, device=self.device)
            for batch, chosen in enumerate(torch.split(order, self.recipe.batch), start=1):
                losses += self._step(chosen, generator, (number - 1) * self.batches + batch)
                if watch is not None and batch < self.batches:
                    watch(EpochProgress(number, self.recipe.epochs, batch, self.batches))
        loss = float(losses) / len(order)
        if not math.isfinite(loss):
            raise ValueError(
                f"training diverged in epoch {number} (loss {loss}): lower the learning rate "
                f"({self.recipe.learning_rate})"
            )
        report = Epoch(number, loss, accuracy(self.converged(), *self._held_out))
        self.history.append(report)
        if watch is not None:
            watch(EpochProgress(number, self.recipe.epochs, self.batches, self.batches, report))
        return report

    def converged(self) -> PaperNetwork:
        """Return a network with the running mean of the weights, ready for evaluation."""
        classes = self._network.head.out_features
        network = PaperNetwork(self.kind, classes=classes, width=self.recipe.width, dropout=self.recipe.dropout)
        network.load_state_dict(self._average)
        return network.to(self.device).eval()

    def state(self) -> State:
        """Return everything needed to continue, as plain arrays."""
        state: State = {"history": np.array([(e.number, e.loss, e.validation) for e in self.history])}
        for group, tensors in self._tensors().items():
            state |= {f"{group}/{name}": value.detach().cpu().numpy() for name, value in tensors.items()}
        return state

    def restore(self, state: State) -> None:
        """Continue from what `state` returned, in a trainer made with the same arguments."""
        if not self._optimiser.state:  # its moments come into being at the first step; make room for them
            for parameter in self._network.parameters():
                parameter.grad = torch.zeros_like(parameter)
            self._optimiser.step()
        with torch.no_grad():
            for group, tensors in self._tensors().items():
                for name, value in tensors.items():
                    value.copy_(torch.from_numpy(state[f"{group}/{name}"]))
        self.history = [Epoch(int(n), float(loss), float(acc)) for n, loss, acc in state["history"].tolist()]

    def _tensors(self) -> dict[str, dict[str, Tensor]]:
        moments = {
            f"{index}.{name}": value
            for index, parameter in enumerate(self._network.parameters())
            for name, value in self._optimiser.state[parameter].items()
        }
        return {"network": self._network.state_dict(), "average": self._average, "optimiser": moments}

    def _step(self, chosen: Tensor, generator: torch.Generator, step: int) -> Tensor:
        recipe = self.recipe
        fraction = (step - 1) / (recipe.epochs * self.batches)
        for group in self._optimiser.param_groups:
            group["lr"] = recipe.learning_rate * (1 + math.cos(math.pi * fraction)) / 2
        x, y = self._train
        logits = self._network(distorted(channels_first(x[chosen]), recipe, generator))
        loss = nn.functional.cross_entropy(logits, y[chosen], label_smoothing=recipe.label_smoothing)
        self._optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        self._optimiser.step()
        decay = min(recipe.averaging, (1 + step) / (10 + step))  # the first weights are random: forget them fast
        with torch.no_grad():
            for name, value in self._network.state_dict().items():
                mean = self._average[name]
                _ = mean.lerp_(value, 1 - decay) if mean.is_floating_point() else mean.copy_(value)
        return loss.detach() * len(chosen)

    def _put(self, values: npt.NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self.device)

    @contextmanager
    def _drawing(self, epoch: int) -> Iterator[torch.Generator]:
        """Yield a generator for this epoch; torch's own (dropout, first weights) uses the same seed."""
        key = int(np.random.SeedSequence([self.seed, epoch]).generate_state(1, np.uint64)[0] >> np.uint64(1))
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(key)
            yield torch.Generator(self.device).manual_seed(key)


def distorted(pixels: Tensor, recipe: Recipe, generator: torch.Generator) -> Tensor:
    """Shift, turn, resize and slant each image `[n, channels, height, width]` a little, at random."""
    n, _, height, width = pixels.shape
    draws = torch.rand((6, n), generator=generator, device=pixels.device) * 2 - 1
    angle = draws[0] * math.radians(recipe.rotation)
    across, down = 1 + draws[1] * recipe.zoom, 1 + draws[2] * recipe.zoom
    slant = draws[3] * recipe.shear
    # grid coordinates run from -1 to 1 along each side: a turn in them must undo the aspect ratio
    aspect = height / width
    cos, sin = torch.cos(angle), torch.sin(angle)
    rows = [
        torch.stack([cos * across, (slant * cos - sin) * down * aspect, 2 * recipe.shift * draws[4]], dim=1),
        torch.stack([sin * across / aspect, (slant * sin + cos) * down, 2 * recipe.shift * draws[5]], dim=1),
    ]
    grid = nn.functional.affine_grid(torch.stack(rows, dim=1), list(pixels.shape), align_corners=False)
    return nn.functional.grid_sample(pixels, grid, padding_mode="border", align_corners=False)


def accuracy(network: PaperNetwork, x: Tensor, y: Tensor, *, batch: int = 1024) -> float:
    """Return the accuracy of `network` on images `x` of classes `y`."""
    with torch.no_grad():
        pieces = zip(torch.split(x, batch), torch.split(y, batch), strict=True)
        right = [(network(channels_first(images)).argmax(1) == labels).sum() for images, labels in pieces]
    return float(torch.stack(right).sum()) / len(x)


Identity = Mapping[str, object]
"""What a run is: a checkpoint of another run cannot be continued. JSON values."""

_IDENTITY = "identity"


def save_checkpoint(path: Path, state: State, identity: Identity) -> None:
    """Replace the checkpoint at `path`."""
    buffer = BytesIO()
    words = np.frombuffer(json.dumps(identity, sort_keys=True).encode(), np.uint8)
    np.savez(buffer, allow_pickle=False, **{_IDENTITY: words}, **state)
    write_atomically(path, [buffer.getbuffer()])


def load_checkpoint(path: Path, identity: Identity) -> State | None:
    """Read the checkpoint at `path`; None if there is none."""
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as archive:
            state = {name: archive[name] for name in archive.files}
        found = json.loads(state.pop(_IDENTITY).tobytes())
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(f"checkpoint {path} is damaged ({error}): delete it, or start without resuming") from error
    wanted = json.loads(json.dumps(identity))
    different = sorted(key for key in wanted.keys() | found.keys() if wanted.get(key) != found.get(key))
    if different:
        raise ValueError(
            f"checkpoint {path} belongs to another run (different: {', '.join(different)}): name another "
            "folder, or start without resuming"
        )
    return state
