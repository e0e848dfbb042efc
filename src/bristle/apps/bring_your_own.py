"""Things by name: one of ours, or one of yours as `module:name`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any


def is_own(name: str) -> bool:
    """Tell whether a name is of the kind `module:name`, and not a path on some drive."""
    module, colon, attribute = name.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), *attribute.split(".")))


def find(name: str, *, what: str) -> Any:
    """Import what `module:name` stands for; modules in the working folder are found as well."""
    module, _, attribute = name.partition(":")
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


def make(name: str, options: dict[str, Any], *, what: str, kind: type | tuple[type, ...]) -> Any:
    """Return what `module:name` stands for: called with the options if it can be called, and of the right kind."""
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
