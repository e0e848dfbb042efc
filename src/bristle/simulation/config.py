"""The TOML configuration of a simulation: keys, defaults, checks, and writing it back."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from datetime import date, time
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from bristle._core.registry import did_you_mean
from bristle.learning import TrainingSettings
from bristle.peer.step import Sharing
from bristle.rules import RULES
from bristle.simulation.mailbox import Asynchrony
from bristle.simulation.scenario import EVALUATE_EVERY, Moments, Precision, Scenario, Shared

_LONGEST = 200
"""Largest number of characters shown of an invalid value."""


class ConfigSection(BaseModel):
    """A table of the file; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Named(BaseModel):
    """A table with a registry name or `module:name`, and the options of what it names."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    name: str
    of_one_name: ClassVar[frozenset[str]] = frozenset()
    """Fields of the section that are options of one name only."""

    @property
    def options(self) -> dict[str, Any]:
        """The keys besides the name."""
        return dict(self.model_extra or {})

    @classmethod
    def is_option(cls, key: str) -> bool:
        """Return whether a key is an option of the named thing, meaningless with another name."""
        return key not in cls.model_fields or key in cls.of_one_name


class WorldSection(ConfigSection):
    """Peers, attackers, length and precision of the run."""

    figure: str = ""
    peers: int = Field(default=Scenario.peers, ge=1)
    attackers: int = Field(default=Scenario.attackers, ge=0)
    claiming: float = Field(default=Scenario.claiming, ge=0, le=1)
    branches: list[int] = Field(default_factory=list)
    share_clip: float | None = Field(default=Sharing.clip, gt=0)
    share_noise: float = Field(default=Sharing.noise, ge=0)
    iterations: int = Field(default=Scenario.iterations, ge=1)
    evaluate_every: int = Field(default=EVALUATE_EVERY, ge=1)
    seed: int = Field(default=Scenario.seed, ge=0)
    receivers_at_once: int | None = Field(default=Scenario.receivers_at_once, ge=1)
    moments: Moments = Precision.moments
    shared: Shared = Precision.shared
    device: str | None = None
    head: str | None = None
    evaluate_peers: int | None = Field(default=None, ge=1)


class DataSection(ConfigSection):
    """Dataset and backbone."""

    dataset: str = "mnist"
    backbone: str = "bundled"
    train_samples: int | None = Field(default=None, ge=1)
    test_samples: int | None = Field(default=None, ge=1)
    user_shift: float = Field(default=Scenario.user_shift, ge=0)


class PartitionSection(Named):
    """Assignment of samples to peers. `consecutive` is the paper's."""

    of_one_name: ClassVar[frozenset[str]] = frozenset({"classes_per_peer"})
    name: str = "consecutive"
    classes_per_peer: int = Field(default=Scenario.classes_per_peer, ge=1)
    samples: int = Field(default=Scenario.samples_per_class, ge=1)
    held_out: int = Field(default=Scenario.held_out, ge=0)
    reuse: bool = Scenario.reuse


class RuleSection(Named):
    """Aggregation rule of benign peers; `before` lists steps, by name or as tables with options."""

    name: str = "bristle"
    before: list[str | Named] = Field(default_factory=list)

    @field_validator("name")
    @classmethod
    def _usual(cls, name: str) -> str:
        return RULES.usual(name)


class AttackSection(Named):
    """The attack."""

    name: str = "none"


class TopologySection(Named):
    """Connections between peers."""

    name: str = "all"
    attackers: Literal["heard-by-all", "in-graph"] = "heard-by-all"


class AsynchronySection(ConfigSection):
    """Slow, late and absent peers; lost and delayed messages."""

    slow: float = Asynchrony.slow
    period: int = Asynchrony.period
    late: float = Asynchrony.late
    join_by: int = Asynchrony.join_by
    leaving: float = Asynchrony.leaving
    away: int | None = Asynchrony.away
    absences: list[list[int]] = Field(default_factory=list)
    loss: float = Asynchrony.loss
    delay: list[int] = Field(default_factory=lambda: list(Asynchrony.delay))


class TrainingSection(ConfigSection):
    """Training of heads."""

    learning_rate: float = TrainingSettings.learning_rate
    l2: float = TrainingSettings.l2
    beta1: float = TrainingSettings.beta1
    beta2: float = TrainingSettings.beta2
    epsilon: float = TrainingSettings.epsilon
    batch: int = TrainingSettings.batch


class SimulationConfig(ConfigSection):
    """The whole file. All keys have defaults: an empty file is the paper's world without attackers."""

    world: WorldSection = Field(default_factory=WorldSection)
    data: DataSection = Field(default_factory=DataSection)
    partition: PartitionSection = Field(default_factory=PartitionSection)
    rule: RuleSection = Field(default_factory=RuleSection)
    attack: AttackSection = Field(default_factory=AttackSection)
    topology: TopologySection = Field(default_factory=TopologySection)
    asynchrony: AsynchronySection = Field(default_factory=AsynchronySection)
    training: TrainingSection = Field(default_factory=TrainingSection)

    @model_validator(mode="after")
    def _attackers_need_an_attack(self) -> Self:
        if self.world.attackers and self.attack.name == "none" and "attack" not in self.model_fields_set:
            raise ValueError("there are attackers, but no [attack]; name one, e.g. name = 'label-flip'")
        return self


def read(source: str | Path | Mapping[str, Any] | SimulationConfig, overrides: Iterable[str] = ()) -> SimulationConfig:
    """Return a checked configuration from a TOML file or a mapping, with `key=value` overrides applied.

    Overriding the name of a rule, attack, topology or partition removes the options of the old one, with a message on
    stderr; options that are overrides themselves stay.
    """
    where = "configuration"
    if isinstance(source, SimulationConfig):
        content: dict[str, Any] = source.model_dump(exclude_unset=True)
    elif isinstance(source, Mapping):
        content = {key: dict(value) if isinstance(value, Mapping) else value for key, value in source.items()}
    else:
        where = str(source)
        try:
            content = tomllib.loads(Path(source).read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{source}: no such file; give a TOML file that describes a world") from error
        except (ValueError, OSError) as error:  # Not TOML, not UTF-8, a number of thousands of digits, a folder.
            raise ValueError(f"{source} is not TOML: {error}") from error
        except RecursionError as error:
            raise ValueError(f"{source} is not TOML: brackets are nested hundreds deep") from error
    wanted = [_parsed(override) for override in overrides]
    renamed = {path[0]: value for _, path, value in wanted if len(path) == 2 and path[1] == "name"}
    for table, name in renamed.items():
        _take_out_options(content, table, name)
    for override, path, value in wanted:
        _put(content, override, path, value)
    try:
        return SimulationConfig.model_validate(content)
    except ValidationError as error:
        raise ValueError(f"{where}: {_explained(error)}") from error


def _parsed(override: str) -> tuple[str, list[str], Any]:
    """Return an override, the path of its key, and its value."""
    key, equals, text = override.partition("=")
    path = key.strip().split(".")
    if not equals or not all(path):
        raise ValueError(f"--set {override}: give key=value, e.g. world.peers=20 or rule.name=krum")
    try:
        return override, path, tomllib.loads(f"value = {text.strip()}")["value"]
    except (ValueError, RecursionError):
        return override, path, text.strip()  # A bare word is a string: rule.name=krum needs no quotes within quotes.


def _put(content: dict[str, Any], override: str, path: list[str], value: Any) -> None:
    table = content
    for part in path[:-1]:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise ValueError(f"--set {override}: {part!r} is a value, not a table")
    table[path[-1]] = value


def _take_out_options(content: dict[str, Any], table: str, name: Any) -> None:
    """Remove the options of the present name from a table whose name is overridden."""
    present, field = content.get(table), SimulationConfig.model_fields.get(table)
    section: Any = None if field is None else field.annotation
    if not isinstance(present, dict) or section is None or not issubclass(section, Named):
        return
    before = present.get("name", section.model_fields["name"].default)
    options = [key for key in present if section.is_option(key)]
    if name == before or not options:
        return
    content[table] = {key: value for key, value in present.items() if key not in options}
    removed = ", ".join(f"{key} = {_shown(present[key])}" for key in options)
    print(f"bristle: {table}.name={_shown(name)}: left out {removed} of {_shown(before)}", file=sys.stderr)


def _explained(error: ValidationError) -> str:
    """Return one line with the first error, and the number of further ones."""
    mistakes = error.errors()
    first = mistakes[0]
    path = [str(part) for part in first["loc"]]
    more = f" (and {len(mistakes) - 1} more)" if len(mistakes) > 1 else ""
    if first["type"] == "extra_forbidden":
        section: Any = SimulationConfig if len(path) == 1 else SimulationConfig.model_fields[path[0]].annotation
        return f"there is no key {'.'.join(path)!r}; {did_you_mean(path[-1], section.model_fields)}{more}"
    message = first["msg"].removeprefix("Value error, ")
    named = f"{'.'.join(path)}: " if path else ""
    given = "" if isinstance(first["input"], dict) else f", not {_shown(first['input'])}"
    return f"{named}{message[0].lower()}{message[1:]}{given}{more}"


def _shown(value: object) -> str:
    """Return a value as text, shortened to fit into a line."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no number of thousands of digits.
        return "a number of thousands of digits"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def toml_of(config: SimulationConfig, *, about: str = "") -> str:
    """Return the non-default settings as TOML, with `about` as a comment at the top."""
    lines = [f"# {line}".rstrip() for line in about.splitlines()]
    for section, content in config.model_dump(exclude_unset=True).items():
        lines += ["", f"[{section}]"]
        lines += [f"{_key(key)} = {value_of(value)}" for key, value in content.items() if value is not None]
    return "\n".join(lines).lstrip("\n") + "\n"


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml_text(key)


def value_of(value: Any) -> str:
    """Return a value in TOML syntax."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _toml_text(value)
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_key(key)} = {value_of(entry)}" for key, entry in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(value_of(entry) for entry in value)}]"
    return value.isoformat() if isinstance(value, date | time) else repr(value)


def _toml_text(text: str) -> str:
    # JSON's strings are TOML's, but for the one control character that JSON leaves as it is.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


HAVE_COLUMNS = frozenset({"world.figure", "world.seed", "world.peers", "world.attackers"})
HAVE_NO_EFFECT = frozenset({"world.iterations", "world.evaluate_every", "world.receivers_at_once"})
LONGEST = 40


def settings_of(config: SimulationConfig) -> dict[str, str]:
    """Return the non-default settings, as text by key: `{"rule.alpha": "0.2"}`."""
    said = {
        f"{table}.{key}": value
        for table, content in config.model_dump(exclude_defaults=True).items()
        for key, value in content.items()
    }
    return {key: _text(value) for key, value in said.items() if key not in HAVE_COLUMNS | HAVE_NO_EFFECT}


def _text(value: Any) -> str:
    """Return a value as text; a long one, such as the edges of a graph, as its beginning and a digest."""
    text = value if isinstance(value, str) else value_of(value)
    digest = hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:8]
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 12]}... {digest}"
