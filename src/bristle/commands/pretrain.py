"""What a person sees of pre-training: a line per epoch and, on a terminal, a bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from bristle.backbones.pretrain.training import EpochProgress
from bristle.commands.progress import patient_bar, terminal


@contextmanager
def pretraining_progress(*, console: Console | None = None) -> Iterator[Callable[[EpochProgress], None]]:
    """Yield what `pretrain` takes as `progress`."""
    screen = console or terminal(stderr=True)
    with patient_bar("Pre-training", console=screen, patience=0.0) as bar:

        def watch(at: EpochProgress) -> None:
            bar((at.epoch - 1) * at.batches + at.batch, at.epochs * at.batches)
            if at.finished is not None:
                screen.print(
                    f"epoch {at.epoch}/{at.epochs}: loss {at.finished.loss:.4f}, "
                    f"validation accuracy {at.finished.validation:.2%}",
                )

        yield watch
