"""Finished runs: the last state of simulations and of single peers, from their rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bristle.report.from_rows import SETTING, RunSetting, grouped
from bristle.report.snapshot import Judgement, Member, MemberKind, RunState, Snapshot, read_snapshot, room_for
from bristle.report.style import REFERENCES
from bristle.rules.decision import Reason

Row = Mapping[str, Any]

WITHOUT = "Mean of the benign peers on the test set; the band goes down to the worst of them."


def recorded_runs(rows: Iterable[Row]) -> list[Snapshot]:
    """Return a snapshot for every run in the rows: those with decisions first, then in the order of the rows.

    A row may hold a `snapshot`, as `simulate --decisions` and `demo` write it in the last; of other runs there is the
    accuracy alone. Local-only and the oracle are no runs of their own where there are others: they are drawn beside.
    """
    runs = grouped(rows, purpose="show")
    beside = {key: found for key, found in runs.items() if key[2] in REFERENCES}
    own = {key: found for key, found in runs.items() if key not in beside} or runs
    made = [_run(key, found, beside) for key, found in own.items()]
    return sorted(made, key=lambda run: not run.judgements)


def _run(
    key: tuple[str, RunSetting, str, int], rows: list[Row], beside: Mapping[tuple[str, RunSetting, str, int], list[Row]]
) -> Snapshot:
    figure, setting, rule, seed = key
    rows = sorted(rows, key=lambda row: row["iteration"])
    kept = [row["snapshot"] for row in rows if row.get("snapshot") is not None]
    if kept:
        whole = read_snapshot(kept[-1])
        # The rows know what the run itself does not: how it differs from others of its rule.
        return replace(whole, rule=rule, subtitle=whole.subtitle.replace(f"rule: {whole.rule}", f"rule: {rule}"))
    last = rows[-1]["iteration"]
    known = Snapshot(
        title=figure,
        subtitle=", ".join(filter(None, [f"rule: {rule}", setting.words(SETTING), f"seed {seed}"])),
        rule=rule,
        state=RunState.ENDED,
        iteration=last,
        total=last,
        classes=(),
        members=(),
        history=[(row["iteration"], row["accuracy_mean"], row.get("accuracy_min"), None) for row in rows],
        band=WITHOUT if any(row.get("accuracy_min") is not None for row in rows) else "",
    )
    for (other_figure, other_setting, other, other_seed), found in beside.items():
        if (other_figure, other_setting, other_seed) != (figure, setting, seed) or other == rule:
            continue
        points = [(row["iteration"], row["accuracy_mean"]) for row in sorted(found, key=lambda row: row["iteration"])]
        if other == "oracle":
            known = replace(known, oracle=points[-1][1])
        else:
            known = replace(known, references={**known.references, other: points})
    return known


SHOWN = 8
THIS_PEER = "this peer"
WHOLE = "whole head"
CODES = {reason.name.lower().replace("_", "-"): int(reason) for reason in Reason}


def is_peer_record(row: Mapping[str, Any]) -> bool:
    """Return whether a row is an iteration of a live peer, not a measurement of a world."""
    return "rule" not in row and "heard" in row and "iteration" in row


def check_peer_record(row: Mapping[str, Any]) -> None:
    """Raise ValueError unless a row is a valid iteration of a peer."""
    try:
        accuracy = row["accuracy"]
        sound = isinstance(row["iteration"], int) and (accuracy is None or math.isfinite(accuracy))
        for one in row["heard"]:
            sound = sound and one["reason"] in CODES and isinstance(one["sender"], str) and 0 <= one["share"] <= 1
    except (KeyError, TypeError) as error:
        raise ValueError(f"a row of a peer cannot be read: {type(error).__name__} {error}") from error
    if not sound:
        raise ValueError("a row of a peer holds an invalid number or reason")


def rows_of_peer(records: Sequence[Mapping[str, Any]], *, name: str) -> list[dict[str, Any]]:
    """Return the measurements among a peer's iterations as rows of results."""
    return [
        {"figure": name, "rule": THIS_PEER, "iteration": one["iteration"], "accuracy_mean": one["accuracy"]}
        for one in _latest(records)
        if one["accuracy"] is not None
    ]


def run_of_peer(records: Sequence[Mapping[str, Any]], *, name: str) -> Snapshot:
    """Return the last snapshot of a peer. Its file has the share of each sender in the whole head, not per class."""
    records = _latest(records)
    heard = next((one for one in reversed(records) if one["heard"]), None)
    shown = [] if heard is None else list(heard["heard"])[: room_for(1) - 1]
    others = tuple(
        Member(name=one["sender"][:SHOWN], kind=MemberKind.UNKNOWN, iteration=one["iteration"]) for one in shown
    )
    last = records[-1]["iteration"]
    stated = heard is not None and shown[0].get("number") is not None
    measured = [
        (one["iteration"], float(one["accuracy"]), None, None) for one in records if one["accuracy"] is not None
    ]
    judgement = () if heard is None else (
        Judgement(
            receiver=0,
            iteration=heard["iteration"],
            senders=range(1, len(shown) + 1),
            reasons=[CODES[one["reason"]] for one in shown],
            weights=np.array([[one["share"]] for one in shown]),
            unseen=len(heard["heard"]) - len(shown),
        ),
    )  # fmt: skip
    return Snapshot(
        title=name,
        subtitle=f"{len(records)} {'decisions' if stated else 'iterations'} of one peer",
        unit="decisions" if stated else "iteration",
        rule=THIS_PEER,
        state=RunState.ENDED,
        iteration=last,
        total=last,
        classes=(WHOLE,),
        members=(
            Member(
                name="this peer",
                kind=MemberKind.OWN,
                iteration=last,
                accuracy=measured[-1][1] if measured else None,
                hears=tuple(range(1, len(others) + 1)),
            ),
            *others,
        ),
        judgements=judgement,
        history=measured,
        band="On the test samples that came with the data of this peer." if measured else "",
    )


def _latest(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return one record per iteration: after a crash an iteration may be repeated."""
    return sorted({one["iteration"]: one for one in records}.values(), key=lambda one: one["iteration"])
