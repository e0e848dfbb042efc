"""Find rules, attacks, datasets and others by name: built in, from an installed package, or as `module:name`."""

from __future__ import annotations

import difflib
import hashlib
import importlib
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


class Registry(Mapping[str, Callable[..., T]], Generic[T]):
    """All things of one kind by name. As a mapping: Bristle's own names and their classes or functions.

    Parameters
    ----------
    what : str
        The kind in messages, such as "rule".
    kind : type
        Type of the created objects.
    own : mapping
        Bristle's own names, which packages cannot override.
    group : str, optional
        Entry-point group of installed packages.
    also_called : mapping
        Aliases, such as the name in a publication, mapped to the names here.
    """

    def __init__(
        self,
        what: str,
        kind: type | tuple[type, ...],
        own: Mapping[str, Callable[..., T]],
        group: str | None = None,
        *,
        also_called: Mapping[str, str] | None = None,
    ) -> None:
        self.what, self.kind, self.own, self.group = what, kind, dict(own), group
        self.also_called = dict(also_called or {})

    def __getitem__(self, name: str) -> Callable[..., T]:
        return self.own[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.own)

    def __len__(self) -> int:
        return len(self.own)

    def names(self) -> tuple[str, ...]:
        """Return all names: Bristle's own in order of declaration, then those of installed packages, sorted."""
        return *self.own, *sorted(self.installed())

    def usual(self, name: str) -> str:
        """Return the canonical name of an alias; other names are returned unchanged."""
        return self.also_called.get(name, name)

    def installed(self) -> dict[str, EntryPoint]:
        """Return the entry points of installed packages by name; of two with the same name, the first one found."""
        found: dict[str, EntryPoint] = {}
        for entry in entry_points(group=self.group) if self.group else ():
            if entry.name not in self.own and entry.name not in self.also_called:
                found.setdefault(entry.name, entry)
        return found

    def is_foreign(self, name: str) -> bool:
        """Return whether a name is `module:name` or an installed package's."""
        return is_import_path(name) or name in self.installed()

    def create(self, name: str, options: Mapping[str, Any] | None = None, *, keys: Iterable[str] = ()) -> T:
        """Create an object by name; errors are a ValueError of one line with a remedy.

        `keys` are further suggestions for a misspelt option, such as the other keys of a TOML table.
        """
        options, name = dict(options or {}), self.usual(name)
        if name in self.own:
            self._check_options(name, options, keys)
            try:
                return self.own[name](**options)
            except TypeError as error:  # E.g. a text instead of a number.
                raise ValueError(f"{self.what} {name!r} does not take these options: {error}") from error
        return self._create_foreign(name, options)

    def accepts(self, name: str, option: str) -> bool:
        """Return whether a name is that of a dataclass with such a field."""
        found = self.find(name)
        return isinstance(found, type) and is_dataclass(found) and option in {field.name for field in fields(found)}

    def find(self, name: str) -> Any:
        """Return the class, function or value of a name; modules in the working folder are found too."""
        name = self.usual(name)
        if name in self.own:
            return self.own[name]
        path = self._import_path(name)
        module, _, attribute = path.partition(":")
        here = str(Path.cwd())
        sys.path.insert(0, here)
        try:
            found: Any = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
                raise  # It exists, but imports a missing module.
            raise ValueError(
                f"{self.what} {name!r}: there is no module {module!r}; run in its folder, or install it"
            ) from error
        except Exception as error:  # A user's module may raise anything.
            raise ValueError(
                f"{self.what} {name!r}: {module} cannot be imported: {_one_line(error)}; fix it there"
            ) from error
        finally:
            sys.path.remove(here)
        for part in attribute.split("."):
            if part not in vars(found):
                known = ", ".join(key for key in vars(found) if not key.startswith("_"))
                raise ValueError(f"{self.what} {name!r}: {module} has no {part!r}; it has {known or 'nothing'}")
            found = vars(found)[part]
        return found

    def source_digest(self, name: str) -> str:
        """Return a digest of the source file of a foreign name; empty if there is no file."""
        self.find(name)
        file = sys.modules[self._import_path(name).partition(":")[0]].__file__
        return "" if file is None else hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]

    def _import_path(self, name: str) -> str:
        if is_import_path(name):
            return name
        installed = self.installed()
        if name not in installed:
            known = [*self.own, *self.also_called, *installed]
            raise ValueError(f"there is no {self.what} {name!r}; {did_you_mean(name, known)}")
        return installed[name].value

    def _check_options(self, name: str, options: Mapping[str, Any], keys: Iterable[str]) -> None:
        kind = self.own[name]
        if not is_dataclass(kind):
            return
        accepted = [field.name for field in fields(kind)]
        for option in options:
            if option not in accepted:
                close = difflib.get_close_matches(option, [*accepted, *keys], n=1)
                takes = f"it takes {', '.join(accepted)}" if accepted else "it takes none"
                hint = f"did you mean {close[0]!r}?" if close else takes
                raise ValueError(f"{self.what} {name!r} has no option {option!r}; {hint}")
        for field in fields(kind):
            if field.name not in options and field.default is MISSING and field.default_factory is MISSING:
                raise ValueError(f"{self.what} {name!r} needs the option {field.name!r}")

    def _create_foreign(self, name: str, options: dict[str, Any]) -> T:
        found: Any = self.find(name)
        if not isinstance(found, self.kind):
            if not callable(found):
                raise ValueError(
                    f"{self.what} {name!r} is {type(found).__name__}, which is no {self.what} and cannot make one"
                )
            found = self._call(found, name, options)
        elif options:
            raise ValueError(
                f"{self.what} {name!r} is already an object and takes no options, such as {next(iter(options))!r}"
            )
        if not isinstance(found, self.kind):
            raise ValueError(f"{self.what} {name!r} returned {type(found).__name__}, which is no {self.what}")
        return cast(T, found)

    def _call(self, maker: Any, name: str, options: dict[str, Any]) -> Any:
        """Call foreign code; an error in it becomes one line with its file and line."""
        try:
            return maker(**options)
        except Exception as error:  # A user's constructor may raise anything.
            inside = error.__traceback__ is not None and error.__traceback__.tb_next is not None
            if isinstance(error, TypeError) and not inside:
                raise ValueError(f"{self.what} {name!r} does not take these options: {error}") from error
            given = ", ".join(f"{key} = {value!r}" for key, value in options.items())
            remedy = "give other options, or fix it there" if options else "fix it there"
            raise ValueError(
                f"{self.what} {name!r} cannot be created{given and f' with {given}'}: {_one_line(error)}; {remedy}"
            ) from error


def is_import_path(name: str) -> bool:
    """Return whether a name has the form `module:name`, and is not a path on some drive."""
    module, colon, attribute = name.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), *attribute.split(".")))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the nearest known word as a question, or all of them."""
    words = list(known)
    close = difflib.get_close_matches(word, words, n=1)
    return f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(words)}"


def _one_line(error: Exception) -> str:
    """Return an error's type, message, and last line of foreign code."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
    if isinstance(error, SyntaxError):
        return text  # It names the line itself.
    ours = (__file__, importlib.__file__)
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if frame.filename not in ours and not frame.filename.startswith("<")]
    last = next((frame for frame in reversed(theirs) if frame.filename == theirs[0].filename), None)
    return text if last is None else f"{text} (line {last.lineno} of {Path(last.filename).name})"
