"""The card of a backbone: what it is, what it was made of and how, how good it is, how to make it again."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from bristle.backbones.pretrain.network import ImageKind
from bristle.backbones.pretrain.training import Epoch, Recipe
from bristle.backbones.pretrain.transfer import L2, LEARNING_RATE, MINI_BATCH, PEERS, SAMPLES, STEPS, Transfer


@dataclass(frozen=True)
class About:
    """Description of the data, for the card.

    Parameters
    ----------
    data
        What the images are and where they come from.
    licence
        Of the data and of the backbone.
    command
        What makes the backbone again.
    transfer
        The name of the data that the transfer was measured on.
    """

    data: str = "Not described."
    licence: str = "Not stated. The backbone is derived from the data: their licence decides what may be done with it."
    command: str = "bristle pretrain"
    transfer: str = "another dataset"


@dataclass(frozen=True)
class Made:
    """Figures of a pre-training run.

    Parameters
    ----------
    name, digest, size
        Of the ONNX file: its stem, SHA-256 and bytes.
    kind
        What goes in.
    classes, training_images, test_images
        How many.
    data_digest
        SHA-256 of the training images.
    accuracy
        Share of the test images that the whole network, run from the exported file, gets right.
    feature_scale
        Root mean square of the features of the training images.
    machine
        What it was trained on.
    """

    name: str
    digest: str
    size: int
    kind: ImageKind
    classes: int
    training_images: int
    test_images: int
    data_digest: str
    accuracy: float
    feature_scale: float
    machine: str


def write_card(
    made: Made, *, about: About, recipe: Recipe, seed: int, history: list[Epoch], transfer: Transfer | None
) -> str:
    """Return the card, in Markdown."""
    sections = [
        f"# Backbone `{made.name}`",
        _what(made, recipe),
        "## Data",
        f"{about.data}\n\n{made.training_images:,} training images of {made.classes} classes (SHA-256 of "
        f"their array: `{made.data_digest}`); {made.test_images:,} test images, not used in training.",
        "## Training",
        _training(made, recipe, seed, history),
        "## Accuracy",
        _accuracy(made, about, transfer),
        "## Licence",
        about.licence,
        "## How to make it again",
        f"```\n{about.command}\n```\n\nThe same seed on the same kind of machine with the same library "
        "versions gives the same file. Elsewhere sums are rounded in another order: other bytes, and the same "
        "accuracy within a few tenths of a per cent.",
    ]
    return "\n\n".join(sections) + "\n"


def _what(made: Made, recipe: Recipe) -> str:
    shape = " x ".join(str(side) for side in made.kind.shape)
    normal = "; ".join(f"{m:.4f}, {d:.4f}" for m, d in zip(made.kind.mean, made.kind.deviation, strict=True))
    return (
        f"Images ({made.kind.dtype}, {shape}) in, {made.kind.features} features (float32) out: convolution "
        f"5x5 ({recipe.width} channels), LeakyReLU 0.01, max-pooling 2, convolution 5x5 (50 channels), "
        "LeakyReLU 0.01, max-pooling 2. The normalisation of the pixels (mean and standard deviation of each "
        f"channel: {normal}) is inside, and so is a factor that makes the root mean square of the features "
        f"of the training images {made.feature_scale:g}.\n\n"
        f"- file: `{made.name}.onnx`, {made.size:,} bytes\n- digest (SHA-256): `{made.digest}`"
    )


def _training(made: Made, recipe: Recipe, seed: int, history: list[Epoch]) -> str:
    rows = "\n".join(f"| {name.replace('_', ' ')} | {value} |" for name, value in asdict(recipe).items())
    recent = history[-5:]
    spread = max(e.validation for e in recent) - min(e.validation for e in recent)
    return (
        "Softmax and negative log-likelihood on a linear layer without bias; AdamW with a learning rate that "
        "falls to zero along a cosine; batch normalisation, folded into the convolutions afterwards; "
        "randomly shifted, turned, resized and slanted images; a running mean of the weights is kept. "
        f"Seed {seed}, on {made.machine}.\n\n| option | value |\n|---|---|\n{rows}\n\n"
        f"Over the last epochs ({len(recent)}) the accuracy on held-out training images stayed within "
        f"{100 * spread:.2f} points, and ended at {history[-1].validation:.2%} "
        f"(training loss {history[-1].loss:.4f})."
    )


def _accuracy(made: Made, about: About, transfer: Transfer | None) -> str:
    lines = [
        "Measured with the exported file.",
        "",
        "| what | test accuracy |",
        "|---|---|",
        f"| whole network on its own classes ({made.test_images:,} test images) | {made.accuracy:.2%} |",
    ]
    if transfer is not None:
        adam = f"Adam {LEARNING_RATE:g}, L2 {L2:g}, mean of {transfer.seeds} seeds"
        lines += [
            f"| {about.transfer}: head on the features of all training images | {transfer.whole:.2%} |",
            f"| {about.transfer}: {PEERS} peers x {SAMPLES} samples a class, pooled, {STEPS} full-batch "
            f"steps ({adam}) | {transfer.pooled:.2%} |",
            f"| {about.transfer}: the same samples, {STEPS} mini-batches of {MINI_BATCH} ({adam}) "
            f"| {transfer.mini_batches:.2%} |",
            f"| {about.transfer}: one peer alone, {SAMPLES} samples a class, {STEPS} mini-batches of "
            f"{MINI_BATCH} ({adam}) | {transfer.alone:.2%} |",
        ]
    return "\n".join(lines)
