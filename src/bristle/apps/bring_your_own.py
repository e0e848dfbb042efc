"""Things by name: one of ours, one that an installed package brings, or one of yours as `module:name`."""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Container
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Literal

What = Literal["rule", "step", "attack", "dataset", "backbone", "partition", "topology"]

GROUPS = {
    "rule": "bristle.rules",
    "step": "bristle.rules",
    "attack": "bristle.attacks",
    "dataset": "bristle.datasets",
    "backbone": "bristle.backbones",
    "partition": "bristle.partitions",
}
"""Where packages announce what they bring: the group of entry points for each kind of thing."""


def is_own(name: str) -> bool:
    """Tell whether a name is of the kind `module:name`, and not a path on some drive."""
    module, colon, attribute = name.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), *attribute.split(".")))


def installed(what: What) -> dict[str, EntryPoint]:
    """Return what installed packages bring of a kind, by name; of two with the same name the first one found."""
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=GROUPS[what]) if what in GROUPS else ():
        found.setdefault(entry.name, entry)
    return found


def is_foreign(name: str, *, what: What, ours: Container[str] = ()) -> bool:
    """Tell whether a name is `module:name` or an installed package's; no package can take one of `ours`."""
    return is_own(name) or (name not in ours and name in installed(what))


def find(name: str, *, what: What) -> Any:
    """Import what a name stands for; modules in the working folder are found as well."""
    path = name if is_own(name) else installed(what)[name].value
    module, _, attribute = path.partition(":")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
            raise  # It is there, but something that it needs is not.
        raise ValueError(f"{what} {name!r}: there is no module {module!r}; run where it lies, or install it") from error
    finally:
        sys.path.remove(here)
    for part in attribute.split("."):
        if part not in vars(found):
            known = ", ".join(key for key in vars(found) if not key.startswith("_"))
            raise ValueError(f"{what} {name!r}: {module} has no {part!r}; it has {known or 'nothing'}")
        found = vars(found)[part]
    return found


def source_digest(name: str, *, what: What) -> str:
    """Digest of the file that holds what a name stands for; empty if it has none."""
    find(name, what=what)
    path = name if is_own(name) else installed(what)[name].value
    file = sys.modules[path.partition(":")[0]].__file__
    return "" if file is None else hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]


def make(name: str, options: dict[str, Any], *, what: What, kind: type | tuple[type, ...]) -> Any:
    """Return what a name stands for: called with the options if it can be called, and of the right kind."""
    found = find(name, what=what)
    if not isinstance(found, kind):
        if not callable(found):
            raise ValueError(f"{what} {name!r} is {type(found).__name__}, which is no {what} and cannot make one")
        try:
            found = found(**options)
        except TypeError as error:
            raise ValueError(f"{what} {name!r} does not take these options: {error}") from error
    elif options:
        raise ValueError(f"{what} {name!r} is made already and takes no options, such as {next(iter(options))!r}")
    if not isinstance(found, kind):
        raise ValueError(f"{what} {name!r} made {type(found).__name__}, which is no {what}")
    return found
