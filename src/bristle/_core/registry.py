"""Things by name: one of ours, one that an installed package brings, or one of yours as `module:name`."""

from __future__ import annotations

import hashlib
import importlib
import sys
import traceback
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
    except Exception as error:  # Whatever a stranger's module may raise.
        raise ValueError(f"{what} {name!r}: {module} cannot be imported: {_told(error)}; mend it there") from error
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
        found = _called(found, name, options, what=what)
    elif options:
        raise ValueError(f"{what} {name!r} is made already and takes no options, such as {next(iter(options))!r}")
    if not isinstance(found, kind):
        raise ValueError(f"{what} {name!r} made {type(found).__name__}, which is no {what}")
    return found


def _called(maker: Any, name: str, options: dict[str, Any], *, what: What) -> Any:
    """Call what is not ours; of any error that comes out of it there is one line, with the place in its file."""
    try:
        return maker(**options)
    except Exception as error:  # Whatever a stranger's constructor may raise.
        inside = error.__traceback__ is not None and error.__traceback__.tb_next is not None
        if isinstance(error, TypeError) and not inside:
            raise ValueError(f"{what} {name!r} does not take these options: {error}") from error
        given = ", ".join(f"{key} = {value!r}" for key, value in options.items())
        remedy = "give other options, or mend it there" if options else "mend it there"
        raise ValueError(
            f"{what} {name!r} cannot be made{given and f' with {given}'}: {_told(error)}; {remedy}"
        ) from error


def _told(error: Exception) -> str:
    """Return an error in words: its kind, what it says, and the last line of theirs that it came through."""
    said = f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
    if isinstance(error, SyntaxError):
        return said  # Says itself where it is.
    ours = (__file__, importlib.__file__)
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if frame.filename not in ours and not frame.filename.startswith("<")]
    last = next((frame for frame in reversed(theirs) if frame.filename == theirs[0].filename), None)
    return said if last is None else f"{said} (line {last.lineno} of {Path(last.filename).name})"
