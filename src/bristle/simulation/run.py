"""Run a world from beginning to end, or from a checkpoint on."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import array_api_compat
import numpy as np

from bristle._core import to_numpy
from bristle._core.files import write_atomically
from bristle._core.validation import check_count
from bristle.backbones.features import array_digest
from bristle.rules import Decision, learns_alone
from bristle.simulation.large.memory import suits_scenario
from bristle.simulation.large.world import LargeWorld
from bristle.simulation.measurement import Measurement, evaluated_peers, measure, measure_large, prediction_cache
from bristle.simulation.notes import scenario_notes
from bristle.simulation.population import FeatureData
from bristle.simulation.results import Results, Row, row_of
from bristle.simulation.scenario import EVALUATE_EVERY, Scenario
from bristle.simulation.world import Round, World

FORMAT = 2
LOG = logging.getLogger("bristle.simulation")


def fingerprint(world: World, *, every: int, figure: str) -> str:
    """Return the identity of a run: SHA-256 of its scenario, data, figure name and evaluation interval."""
    data = world.data
    more = (values for values in (data.user, data.test_user, world.scenario.head) if values is not None)
    digests = [array_digest(to_numpy(values)) for values in (*data.arrays, *more)]
    parts: tuple[object, ...] = (FORMAT, world.scenario, data.classes, digests, every, figure)
    if world.scenario.branches:  # It is not in the scenario's `repr`.
        parts = (*parts, world.scenario.branches)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def save_checkpoint(path: Path, world: World, rows: list[Row], *, identity: str) -> None:
    """Write a checkpoint: all arrays of the world, and as JSON the rows so far and the run's fingerprint."""
    about = json.dumps({"format": FORMAT, "fingerprint": identity, "rows": rows}, allow_nan=False)
    content = io.BytesIO()
    arrays: dict[str, Any] = dict(world.arrays())
    np.savez(content, about=np.frombuffer(about.encode(), dtype=np.uint8), **arrays)
    write_atomically(path, [content.getbuffer()])


def load_checkpoint(path: Path, world: World, *, identity: str) -> list[Row]:
    """Restore a world from a checkpoint; return the rows so far."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such checkpoint; leave out resume to start over")
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            about = json.loads(bytes(file["about"]).decode())
            arrays = {name: file[name] for name in file.files if name != "about"}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not a checkpoint, or is damaged: remove it and start over") from error
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        found = about.get("format") if isinstance(about, dict) else None
        raise ValueError(
            f"{path} was written by another version of Bristle (checkpoint format {found}, this one reads {FORMAT}): "
            "resume with that version, or start over under another name"
        )
    if about.get("fingerprint") != identity:
        raise ValueError(
            f"{path} is a checkpoint of another configuration, other data or another version: "
            "resume with those, or start over under another name"
        )
    world.restore(arrays)
    rows: list[Row] = about["rows"]
    return rows


SAVE_AFTER = 30.0  # seconds between checkpoints


@dataclass(frozen=True, kw_only=True)
class Watch:
    """Callbacks for run events; each may be left out.

    Parameters
    ----------
    row : callable
        Called with every row, those of a checkpoint included.
    iteration : callable
        Called with the number of each finished iteration.
    decisions : callable
        Called with every `Round`: the decisions of all peers.
    weigh : callable
        Called before every iteration; returns whether the weights of its decisions are needed. By default they always
        are. Those of an evaluation are computed in any case.
    measurement : callable
        Called with the iteration and the measurement behind a row.
    stop : callable
        Called before every iteration; True ends the run as Ctrl-C does, with a checkpoint if one is kept.
    note : callable
        Called before the first iteration with notes for the user, such as that peers learn alone. By default they are
        logged as warnings of `bristle.simulation`.
    """

    row: Callable[[Row], None] | None = None
    iteration: Callable[[int], None] | None = None
    decisions: Callable[[Round], None] | None = None
    weigh: Callable[[], bool] | None = None
    measurement: Callable[[int, Measurement], None] | None = None
    stop: Callable[[], bool] | None = None
    note: Callable[[str], None] = LOG.warning


NOBODY = Watch()
T = TypeVar("T")


def run(
    scenario: Scenario,
    data: FeatureData,
    *,
    figure: str = "",
    every: int = EVALUATE_EVERY,
    checkpoint: Path | None = None,
    resume: bool = False,
    evaluate_peers: int | None = None,
    watch: Watch = NOBODY,
) -> Results:
    """Run a world and return its rows.

    Data in torch tensors make a `LargeWorld` unless `why_ordinary` gives a reason; it gives the same results within
    rounding, in less memory.

    Parameters
    ----------
    scenario, data
        The world.
    figure : str
        Value of the column of this name.
    every : int
        Iterations between evaluations; the last iteration is always evaluated.
    checkpoint : Path, optional
        Path of a checkpoint, from which `resume` continues to the same bits. Written every half minute, at a stop and
        at the end.
    resume : bool
        Continue from the checkpoint.
    evaluate_peers : int, optional
        Number of benign peers of a large world to evaluate, drawn by the seed; by default a sample if there are many.
    watch : Watch
        Callbacks for run events.
    """
    check_count("every", every, least=1)
    if resume and checkpoint is None:
        raise ValueError("resume needs the checkpoint to continue from: give checkpoint=")
    tensors = array_api_compat.is_torch_array(data.train)
    reason = why_ordinary(
        scenario, tensors=tensors, checkpoint=checkpoint is not None, decisions=watch.decisions is not None
    )
    if reason is not None and evaluate_peers is not None:
        raise ValueError(f"evaluate_peers is for large worlds, and this is an ordinary one: {reason}")
    world = LargeWorld(scenario, data) if reason is None else World(scenario, data)
    if reason is not None and tensors:
        watch.note(f"this world runs the ordinary way, which takes more memory than a large world: {reason}")
    advance = _advances(world, evaluate_peers, watch)
    for note in scenario_notes(scenario):
        watch.note(note)
    alone = learns_alone(scenario.rule, world.population.held_out_counts(len(data.classes)))
    if alone is not None:
        watch.note(alone)
    rows: list[Row] = []
    identity = ""
    if checkpoint is not None and isinstance(world, World):
        identity = fingerprint(world, every=every, figure=figure)
        rows += load_checkpoint(checkpoint, world, identity=identity) if resume else []

    def save() -> None:
        if checkpoint is not None and isinstance(world, World):
            save_checkpoint(checkpoint, world, rows, identity=identity)

    for row in rows:
        _call(watch.row, row)
    saved = time.monotonic()
    while world.iteration < scenario.iterations:
        if watch.stop is not None and watch.stop():
            save()
            raise KeyboardInterrupt
        measured = advance((world.iteration + 1) % every == 0 or world.iteration + 1 == scenario.iterations)
        if measured is not None:
            if watch.measurement is not None:
                watch.measurement(world.iteration, measured)
            rows.append(row_of(world, measured, figure=figure))
            _call(watch.row, rows[-1])
        _call(watch.iteration, world.iteration)
        if time.monotonic() - saved > SAVE_AFTER:
            save()
            saved = time.monotonic()
    save()
    return Results(rows)


def _advances(
    world: World | LargeWorld, evaluate_peers: int | None, watch: Watch
) -> Callable[[bool], Measurement | None]:
    """Return a function that advances a world by one iteration, and measures it if its argument is True."""
    if isinstance(world, LargeWorld):
        large, peers = world, evaluated_peers(world.scenario, evaluate_peers)

        def advance_large(evaluates: bool) -> Measurement | None:
            given = large.advance(weigh=evaluates)
            return None if given is None else measure_large(large, given, peers=peers)

        return advance_large
    cache = prediction_cache(world)
    known: tuple[Decision, Measurement] | None = None

    def advance(evaluates: bool) -> Measurement | None:
        nonlocal known
        watched = watch.decisions is not None and (watch.weigh is None or watch.weigh())
        latest = world.advance(weigh=evaluates or watched)
        _call(watch.decisions, latest)
        if not evaluates:
            return None
        # If no peer heard anything new, the decision and its measurement are the same.
        same = known is not None and known[0] is latest.decision
        measured = known[1] if known is not None and same else measure(world, latest, cache=cache)
        known = None if world.exchange is None else (latest.decision, measured)
        return measured

    return advance


def why_ordinary(scenario: Scenario, *, tensors: bool, checkpoint: bool, decisions: bool) -> str | None:
    """Return why `run` makes an ordinary `World` of a scenario; None if it makes a `LargeWorld`.

    Parameters
    ----------
    tensors
        Whether its data are torch tensors.
    checkpoint, decisions
        Whether a checkpoint is kept, and whether decisions are used.
    """
    if not tensors:
        return "its data must be torch tensors: give it a device"
    if (reason := suits_scenario(scenario)) is not None:
        return reason
    if checkpoint:
        return "it keeps a checkpoint"
    return "its decisions are kept or shown" if decisions else None


def _call(callback: Callable[[T], None] | None, value: T) -> None:
    if callback is not None:
        callback(value)
