from io import StringIO

from rich.console import Console

from bristle.backbones.pretrain.training import Epoch, EpochProgress
from bristle.commands.progress import patient_bar, pretraining_progress


def screen(*, terminal: bool) -> tuple[Console, StringIO]:
    shown = StringIO()
    return Console(file=shown, force_terminal=terminal, width=100), shown


def test_what_is_done_soon_shows_nothing() -> None:
    console, shown = screen(terminal=True)
    with patient_bar("Extracting features", console=console, patience=60) as watch:
        watch(1, 2)
        watch(2, 2)
    assert shown.getvalue() == ""


def test_what_takes_long_gets_a_bar() -> None:
    console, shown = screen(terminal=True)
    with patient_bar("Extracting features", console=console, patience=-1) as watch:
        watch(256, 1000)
    assert "Extracting features" in shown.getvalue()
    assert "256/1000" in shown.getvalue()


def test_where_there_is_no_terminal_there_is_no_bar() -> None:
    console, shown = screen(terminal=False)
    with patient_bar("Extracting features", console=console, patience=-1) as watch:
        watch(256, 1000)
    assert shown.getvalue() == ""


def test_pre_training_prints_a_line_per_epoch() -> None:
    console, shown = screen(terminal=False)
    with pretraining_progress(console=console) as watch:
        watch(EpochProgress(1, 2, 1, 2))
        watch(EpochProgress(1, 2, 2, 2, Epoch(1, 0.5, 0.875)))
    assert shown.getvalue() == "epoch 1/2: loss 0.5000, validation accuracy 87.50%\n"
