"""The command that makes a backbone: `pretrain`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from bristle.apps.rows import write_rows
from bristle.cli.shared import interruptible


def pretrain(
    data: Annotated[str, typer.Argument(help="A .npz file, a folder of class folders with images, or mnist.")],
    out: Annotated[Path, typer.Option(help="The ONNX file to write; its card goes beside it.")],
    epochs: Annotated[int, typer.Option(help="Passes over the data; the learning rate falls to 0 over them.")] = 40,
    seed: Annotated[int, typer.Option(help="Of every random draw.")] = 0,
    size: Annotated[int | None, typer.Option(help="Side in pixels that images of a folder are brought to.")] = None,
    rgb: Annotated[bool, typer.Option("--rgb", help="Keep the colours of a folder's images.")] = False,
    transfer: Annotated[
        str | None, typer.Option(help="Another dataset, to measure what the features are worth there.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="Where torch computes, e.g. cpu or cuda.")] = None,
    restart: Annotated[bool, typer.Option("--restart", help="Begin anew, whatever checkpoint is there.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write a row per epoch and the result as JSON Lines.")] = None,
) -> None:
    """Make a backbone: train the paper's network on any dataset and write its frozen layers as ONNX.

    Every epoch ends with a checkpoint; after an interruption the same command goes on from it, to the same result.
    Needs torch: pip install 'bristle[pretrain]'.

    Example: bristle pretrain emnist_letters.npz --out letters.onnx --transfer mnist
    """
    from bristle.apps.pretrain_progress import pretraining_progress  # noqa: PLC0415
    from bristle.backbones.pretrain import About, Recipe  # noqa: PLC0415
    from bristle.backbones.pretrain import pretrain as make_backbone  # noqa: PLC0415
    from bristle.data import load  # noqa: PLC0415
    from bristle.data.images import Channels  # noqa: PLC0415

    channels: Channels = "rgb" if rgb else "gray"
    dataset = load(data, size=size, channels=channels)
    elsewhere = None if transfer is None else load(transfer, size=size, channels=channels)
    command = f"bristle pretrain {data} --out {out.name} --epochs {epochs} --seed {seed}"
    about = About(data=f"{dataset.name}.", command=command, transfer=elsewhere.name if elsewhere else "another dataset")
    with interruptible("the same command goes on from the last epoch"), pretraining_progress() as progress:
        made = make_backbone(
            dataset,
            out=out,
            recipe=Recipe(epochs=epochs),
            seed=seed,
            device=device,
            resume=not restart,
            transfer=elsewhere,
            about=about,
            progress=progress,
        )
    if json is not None:
        rows = [{"epoch": number, **asdict(epoch)} for number, epoch in enumerate(made.history, start=1)]
        rows.append({"backbone": str(made.backbone), "digest": made.digest, "accuracy": made.accuracy})
        write_rows(json, rows)
    print(f"{made.backbone}: {made.accuracy:.2%} on the test images of {dataset.name}; see {made.card}")
