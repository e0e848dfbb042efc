"""Snapshot of the public names: exports, registries, commands, keys of world files, columns of rows.

The snapshot is public_names.txt, one name per line with its default where it has one. A name that moves, changes or
disappears by mistake fails the test. After an intended change, write the snapshot anew and review its diff:

    python tests/test_public_names.py
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from enum import Enum
from importlib import import_module
from pathlib import Path, PurePath
from typing import Any, get_args, get_type_hints

import typer
from pydantic import BaseModel

import bristle
from bristle import attacks, rules
from bristle.cli import app
from bristle.data import partitions

LIST = Path(__file__).with_suffix("").with_name("public_names.txt")
WITH_MEMBERS = {
    *bristle.__all__, "Attack", "Dataset", "Inbox", "LargeWorld", "Partition", "Partitioner", "Reason", "Results",
    "Rule", "Step", "Task", "Topology", "Verdict", "View", "World",
}  # fmt: skip
"""Classes whose members users call or override."""

PACKAGES = (
    "bristle", "bristle.rules", "bristle.attacks", "bristle.data", "bristle.data.partitions", "bristle.simulation",
    "bristle.learning", "bristle.backbones", "bristle.testing", "bristle.report",
)  # fmt: skip


def public_names() -> list[str]:
    """Return one line for each name, in order within its kind."""
    return [
        *(line for package in PACKAGES for line in _package(package)),
        *_by_name("rule", {name: type(rules.create(name)) for name in rules.names()}),
        *_by_name("step", {name: _step(name) for name in rules.steps()}),
        *_by_name("attack", {name: type(attacks.create(name)) for name in attacks.names()}),
        *(f"partition {name}" for name in partitions.names()),
        *_by_name("topology", bristle.TOPOLOGIES),
        *_commands(),
        *_world_file(),
        *_columns(),
    ]


def _package(name: str) -> Iterator[str]:
    """Yield the names that a package exports, with members and parameters."""
    package = import_module(name)
    for exported in sorted(getattr(package, "__all__", ())):
        yield f"{name} {exported}"
        value = getattr(package, exported)
        shown_before = name != "bristle" and exported in bristle.__all__
        if inspect.isclass(value) and exported in WITH_MEMBERS and not shown_before:
            yield from (f"{name} {exported}.{member}" for member in sorted(_members(value)))
        if callable(value) and not (inspect.isclass(value) and issubclass(value, Enum)) and not shown_before:
            yield from (f"{name} {exported}({parameter})" for parameter in _parameters(value))


def _parameters(value: Any) -> list[str]:
    try:
        return list(inspect.signature(value).parameters)
    except ValueError:  # A class without a signature of its own.
        return []


def _members(kind: type) -> set[str]:
    """Return the public methods, properties and attributes of a class, those of its bases in Bristle included."""
    ours = [base for base in kind.__mro__ if base.__module__.startswith("bristle")]
    return {name for base in ours for name in (*vars(base), *inspect.get_annotations(base)) if not name.startswith("_")}


def _by_name(what: str, kinds: Mapping[str, Any]) -> Iterator[str]:
    """Yield the entries of a registry, with their options and defaults."""
    for name, kind in kinds.items():
        yield f"{what} {name}"
        for option in fields(kind):
            default = option.default_factory() if option.default_factory is not MISSING else option.default
            yield f"{what} {name}: {option.name}{'' if default is MISSING else f' = {_text(default)}'}"


def _step(name: str) -> type:
    return type(rules.create_step(name, f=2) if name == "clipping" else rules.create_step(name))


def _commands() -> Iterator[str]:
    group: Any = typer.main.get_command(app)
    for name, command in group.commands.items():
        yield f"command {name}"
        for option in command.params:
            needed = "required" if option.required else f"= {_text(option.default)}"
            yield f"command {name}: {' '.join([*option.opts, *option.secondary_opts])} {needed}"


def _world_file() -> Iterator[str]:
    """Yield the keys of a world file with their defaults, from the model that `simulate` accepts."""
    kinds = get_args(get_type_hints(bristle.simulate)["config"])
    config = next(kind for kind in kinds if inspect.isclass(kind) and issubclass(kind, BaseModel))
    for table, section in dict(config()).items():
        for key, value in dict(section).items():
            yield f"world file: {table}.{key} = {_text(value)}"


def _columns() -> Iterator[str]:
    config = {
        "world": {"peers": 2, "iterations": 1},
        "data": {"train_samples": 400, "test_samples": 10},
        "partition": {"reuse": True},
    }
    return (f"column {name}" for name in bristle.simulate(config).last())


def _text(value: object) -> str:
    if isinstance(value, Enum):
        return repr(value.value)
    return repr(value.as_posix() if isinstance(value, PurePath) else value)


def test_public_names() -> None:
    kept = LIST.read_text(encoding="utf-8").splitlines()
    found = public_names()
    gone, come = [name for name in kept if name not in found], [name for name in found if name not in kept]
    assert (gone, come) == ([], []), "if intended: python tests/test_public_names.py"
    assert kept == found, "the order has changed"


if __name__ == "__main__":
    LIST.write_text("".join(f"{line}\n" for line in public_names()), encoding="utf-8")
