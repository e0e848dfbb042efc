"""Runs of one rule that differ in something which rows have no column for, told apart by their settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bristle.report.words import one_line

Row = Mapping[str, Any]

LONGEST = 40
"""Characters of a name or a value that a label shows."""


def told_apart(rows: Iterable[Row], *, alike: Iterable[str]) -> list[Row]:
    """Return rows whose `rule` says what differs, where runs of a rule in the same panel have other `settings`.

    Parameters
    ----------
    rows
        Rows; `settings` holds what a run was told beyond the defaults, as text by key: `{"rule.alpha": "0.2"}`. Rows
        without any are of runs that were told nothing.
    alike
        The columns that are the same within a panel. Seeds are not among them: they share a line.

    """
    told, columns = list(rows), ("figure", "rule", *alike)
    variants: dict[tuple[Any, ...], list[dict[str, str]]] = {}
    for row in told:
        known = variants.setdefault(_panel(row, columns), [])
        if _settings(row) not in known:
            known.append(_settings(row))
    return [_labelled(row, variants[_panel(row, columns)]) for row in told]


def rule_in(label: str) -> str:
    """Return the rule's name in a label, without what differs."""
    return label.partition(" (")[0]


def check_settings(row: Row) -> None:
    """Raise ValueError unless the settings of a row, if there are any, are texts by name."""
    found = row.get("settings")
    if found is not None and not (
        isinstance(found, dict) and all(isinstance(word, str) for pair in found.items() for word in pair)
    ):
        raise ValueError(f"settings must be an object of texts, and is {str(found)[:LONGEST]}")


def _labelled(row: Row, variants: list[dict[str, str]]) -> Row:
    keys = [key for key in dict.fromkeys(key for each in variants for key in each) if _varies(key, variants)]
    own = _settings(row)
    differs = ", ".join(f"{_name(key)} {one_line(own[key], longest=LONGEST)}" for key in keys if key in own)
    return {**row, "rule": f"{row['rule']} ({differs})"} if differs else row


def _varies(key: str, variants: list[dict[str, str]]) -> bool:
    return len({each.get(key) for each in variants}) > 1


def _name(key: str) -> str:
    """Return a key as a label has it: the rule's options bare, `topology ring` for a name."""
    return one_line(key.removesuffix(".name").removeprefix("rule.").replace(".", " "), longest=LONGEST)


def _panel(row: Row, columns: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(row.get(column) for column in columns)


def _settings(row: Row) -> dict[str, str]:
    return row.get("settings") or {}
