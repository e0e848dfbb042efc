"""Pre-training: make a backbone of any dataset of images."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bristle._core.extras import to_install

try:
    import torch
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"pre-training needs torch: {to_install('pretrain')}", name="torch") from error

from bristle._core.files import write_atomically
from bristle.backbones.backbone import OnnxBackbone
from bristle.backbones.export import export_classifier
from bristle.backbones.features import array_digest, extract
from bristle.backbones.pretrain.card import About, Made, write_card
from bristle.backbones.pretrain.network import channels_first, to_onnx
from bristle.backbones.pretrain.training import (
    Epoch,
    EpochProgress,
    Identity,
    Recipe,
    Trainer,
    load_checkpoint,
    save_checkpoint,
)
from bristle.backbones.pretrain.transfer import Transfer, check_enough, measure_transfer
from bristle.data import Dataset

__all__ = ["About", "Epoch", "EpochProgress", "Pretrained", "Recipe", "Transfer", "pretrain"]

FEATURE_SCALE = 1.0
"""Root mean square of the features: with it, heads learn in the paper's 300 steps of Adam with 1e-3."""

_SCALE_SAMPLES = 10_000  # images that the scale is measured on


@dataclass(frozen=True)
class Pretrained:
    """What pre-training made.

    Parameters
    ----------
    backbone, classifier, card
        Files: the ONNX backbone, the whole network as an ONNX classifier, and the card.
    digest
        Of the backbone.
    accuracy
        Of the whole network on the test images.
    transfer
        How the features do on other classes, where it was measured.
    history
        Loss and validation accuracy of every epoch.
    """

    backbone: Path
    classifier: Path
    card: Path
    digest: str
    accuracy: float
    transfer: Transfer | None
    history: tuple[Epoch, ...]


def pretrain(
    data: Dataset,
    *,
    out: str | os.PathLike[str],
    recipe: Recipe | None = None,
    seed: int = 0,
    device: str | None = None,
    checkpoints: str | os.PathLike[str] | None = None,
    resume: bool = True,
    transfer: Dataset | None = None,
    about: About | None = None,
    progress: Callable[[EpochProgress], None] | None = None,
) -> Pretrained:
    """Train the paper's network on `data` until convergence and write its frozen layers as an ONNX backbone.

    Parameters
    ----------
    data
        Images, grey or in colour, at least 16 pixels a side, of two or more classes.
    out
        The ONNX file to write. Beside it go the whole network (`<stem>-classifier.onnx`) and the card
        (`<stem>.md`).
    recipe
        How to train; by default as the bundled backbone was.
    seed
        Of every draw: first weights, split, order, distortions, dropout.
    device
        Where torch computes; by default a GPU if there is one.
    checkpoints
        The folder for the checkpoint that each epoch ends with; by default `<stem>-checkpoints` beside `out`.
    resume
        Whether to go on from a checkpoint that is there, to the same result as without the stop.
    transfer
        Another dataset, to measure how the features do on classes they were not trained on.
    about
        What the card says of data and licence.
    progress
        Called after every mini-batch.
    """
    recipe, about = recipe or Recipe(), about or About()
    target = Path(out)
    if target.suffix != ".onnx":
        raise ValueError(f"the backbone is an ONNX file: name it {target.stem}.onnx, not {target.name}")
    _check(data, transfer)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    folder = target.with_name(f"{target.stem}-checkpoints") if checkpoints is None else Path(checkpoints)
    data_digest = array_digest(data.x_train)
    images = data.x_train.astype(np.float32) if data.x_train.dtype.kind == "f" else data.x_train
    try:
        trainer = Trainer(images, data.y_train, classes=len(data.classes), recipe=recipe, seed=seed, device=device)
    except ValueError as error:
        raise ValueError(f"{data.name}: {error}") from error
    identity = {
        "recipe": asdict(recipe),
        "seed": seed,
        "images": data_digest,
        "labels": array_digest(data.y_train),
        "classes": len(data.classes),
    }
    _train(trainer, folder / "checkpoint.npz", identity, resume=resume, progress=progress)

    backbone, head = _export(trainer, images, target)
    classifier = export_classifier(
        backbone, head, target.with_name(f"{target.stem}-classifier.onnx"), classes=data.classes
    )
    logits = extract(backbone, data.x_test, cache=False) @ head.T
    accuracy = float((logits.argmax(axis=1) == data.y_test).mean())
    measured = None if transfer is None else measure_transfer(backbone, transfer, device=device, cache=False)
    made = Made(
        name=target.stem,
        digest=backbone.digest,
        size=target.stat().st_size,
        kind=trainer.kind,
        classes=len(data.classes),
        training_images=len(data.x_train),
        test_images=len(data.x_test),
        data_digest=data_digest,
        accuracy=accuracy,
        feature_scale=FEATURE_SCALE,
        machine=_machine(device),
    )
    card = target.with_suffix(".md")
    text = write_card(made, about=about, recipe=recipe, seed=seed, history=trainer.history, transfer=measured)
    write_atomically(card, [text.encode()])
    history = tuple(trainer.history)
    return Pretrained(target, classifier, card, backbone.digest, accuracy, measured, history)


def _check(data: Dataset, transfer: Dataset | None) -> None:
    """Refuse at once what would only come to light after the training."""
    if len(data.x_test) == 0:
        raise ValueError(f"{data.name}: there are no test samples to measure the accuracy on: set some apart")
    if transfer is not None:
        if transfer.x_train.shape[1:] != data.x_train.shape[1:]:
            raise ValueError(
                f"{transfer.name} has images of size {list(transfer.x_train.shape[1:])}, {data.name} of "
                f"{list(data.x_train.shape[1:])}: the transfer can only be measured on images of the same size"
            )
        check_enough(transfer)


def _train(
    trainer: Trainer,
    path: Path,
    identity: Identity,
    *,
    resume: bool,
    progress: Callable[[EpochProgress], None] | None,
) -> None:
    state = load_checkpoint(path, identity) if resume else None
    if state is not None:
        trainer.restore(state)
    while len(trainer.history) < trainer.recipe.epochs:
        trainer.epoch(progress)
        save_checkpoint(path, trainer.state(), identity)


def _export(trainer: Trainer, x: npt.NDArray[np.generic], target: Path) -> tuple[OnnxBackbone, npt.NDArray[np.float32]]:
    """Write the backbone, and return it with the head that goes with its features."""
    network = trainer.converged()
    samples = np.random.default_rng([trainer.seed, 1]).permutation(len(x))[:_SCALE_SAMPLES]
    with torch.no_grad():
        pieces = torch.split(torch.from_numpy(x[samples]), 1000)
        squares = [network.features(channels_first(p.to(trainer.device))).square().mean(dim=1) for p in pieces]
    scale = FEATURE_SCALE / float(torch.cat(squares).mean().sqrt())
    write_atomically(target, [to_onnx(network, scale=scale, metadata={"name": target.stem})])
    head = (network.head.weight.detach() / scale).cpu().numpy()
    return OnnxBackbone.load(target), head


def _machine(device: str) -> str:
    where = torch.cuda.get_device_name(device) if device.startswith("cuda") else "a CPU"
    return f"{where} with torch {torch.__version__.split('+')[0]}"
