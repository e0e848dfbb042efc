"""Options and data of `bristle peer`, parsed and checked."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bristle import rules
from bristle.backbones.backbone import Backbone, find_backbone
from bristle.backbones.features import extract
from bristle.commands.progress import patient_bar
from bristle.data import Dataset, load
from bristle.data.images import Channels
from bristle.data.loading import DATASETS
from bristle.peer.conditions import Always, Condition, Hours, OnPower, all_of
from bristle.peer.learner import exchanging_heads
from bristle.peer.pace import Pace
from bristle.rules import Rule
from bristle.wire.sizes import Encoding


@dataclass(frozen=True, eq=False)
class PeerData:
    """Features and labels of this peer, the classes of its group, and a test set."""

    classes: tuple[str, ...]
    features: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    test_features: npt.NDArray[np.float32]
    test_labels: npt.NDArray[np.int64]


def prepare(
    source: str,
    backbone: Backbone,
    *,
    chosen: Sequence[str] | None = None,
    group_classes: Sequence[str] | None = None,
    samples: int | None = None,
    seed: int = 0,
) -> PeerData:
    """Load data and extract the features of those samples that the peer uses.

    Parameters
    ----------
    source
        An .npz file, a folder of class folders, ``mnist``, an installed package's dataset, or ``module:name``.
    backbone
        What makes the features; a folder's images are brought to the size that it wants.
    chosen
        Names of the classes that this peer holds; None for all in the data.
    group_classes
        All classes of the group, in its order; None where the data have them all.
    samples
        At most so many of each class.
    seed
        Of the choice of those.
    """
    dataset = _loaded(source, backbone)
    classes = tuple(group_classes or dataset.classes)
    missing = [name for name in dataset.classes if name not in classes]
    if missing:
        raise ValueError(f"{source} has the class {missing[0]!r}, which is not among {', '.join(classes)}")
    unknown = [name for name in chosen or () if name not in dataset.classes]
    if unknown:
        raise ValueError(f"{source} has no class {unknown[0]!r}: choose from {', '.join(dataset.classes)}")
    number = np.array([classes.index(name) for name in dataset.classes], dtype=np.int64)
    mine = _chosen(dataset, set(chosen or dataset.classes), samples, seed)
    with patient_bar("features") as progress:
        features = extract(backbone, dataset.x_train[mine], progress=progress)
        test = extract(backbone, dataset.x_test, progress=progress) if len(dataset.x_test) else features[:0]
    return PeerData(classes, features, number[dataset.y_train[mine]], test, number[dataset.y_test])


def _loaded(source: str, backbone: Backbone) -> Dataset:
    """Load the data, images of a folder in the size and colours that the backbone wants."""
    if source in DATASETS or DATASETS.is_foreign(source) or not Path(source).is_dir():
        return load(source)
    sizes = [size for size in backbone.input_shape if size is not None]
    channels: Channels = "rgb" if 3 in sizes[:1] + sizes[-1:] else "gray"
    sides = [size for size in sizes if size not in (1, 3)]
    return load(source, size=(sides[0], sides[-1]) if len(sides) == 2 else None, channels=channels)


def _chosen(dataset: Dataset, names: set[str], samples: int | None, seed: int) -> npt.NDArray[Any]:
    if samples is not None and samples < 1:
        raise ValueError(f"samples={samples}: give at least 1 of each class")
    rng = np.random.default_rng(seed)
    parts = [
        rng.permutation(np.flatnonzero(dataset.y_train == number))[:samples]
        for number, name in enumerate(dataset.classes)
        if name in names
    ]
    return np.sort(np.concatenate(parts))


Address = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class PeerOptions:
    """What the command line says about a peer; texts as they were given."""

    application: str
    folder: Path
    data: str | None = None
    classes: str | None = None
    group_classes: str | None = None
    samples: int | None = None
    backbone: str = "bundled"
    listen: str = "127.0.0.1:0"
    known: Sequence[str] = ()
    beacon: int | None = None
    secret_file: Path | None = None
    members_file: Path | None = None
    rule: str | None = None
    encoding: Encoding = "float32"
    share_clip: float | None = None
    share_noise: float = 0.0
    interval: float = 1.0
    only_on_power: bool = False
    hours: str | None = None
    max_bytes_per_hour: int | None = None
    max_bytes_per_day: int | None = None
    cpu_share: float | None = None
    http: str | None = None
    iterations: int | None = None
    test_every: int = 10
    seed: int | None = None
    json: Path | None = None
    page: Address | None = None

    def make_backbone(self) -> Backbone:
        """Return the backbone: the bundled one, an ONNX file, an installed package's, or your own as module:name."""
        return find_backbone(self.backbone)

    def make_rule(self) -> Rule | None:
        """Return the rule by name, or your own as module:name; None for the default."""
        return None if self.rule is None else exchanging_heads(rules.create(self.rule))

    def make_data(self, backbone: Backbone) -> PeerData | None:
        """Return this peer's data; None where all of them are to come over HTTP."""
        group_classes = names(self.group_classes, "--group-classes")
        if self.data is None:
            if group_classes is None:
                raise ValueError("give --data, or --group-classes where all data come over HTTP")
            return None
        return prepare(
            self.data,
            backbone,
            chosen=names(self.classes, "--classes"),
            group_classes=group_classes,
            samples=self.samples,
            seed=self.seed or 0,
        )

    def make_pace(self) -> Pace:
        """Return when to work. Power and hours hold for training and for sending alike."""
        wanted: list[Condition] = [OnPower()] if self.only_on_power else []
        wanted += [Hours.parse(self.hours)] if self.hours else []
        when: Condition = wanted[0] if len(wanted) == 1 else all_of(*wanted) if wanted else Always()
        return Pace(
            interval=self.interval,
            train_when=when,
            send_when=when,
            bytes_per_hour=self.max_bytes_per_hour,
            bytes_per_day=self.max_bytes_per_day,
            cpu_share=self.cpu_share,
        )


def names(text: str | None, option: str) -> tuple[str, ...] | None:
    """Read names between commas."""
    if text is None:
        return None
    found = tuple(name.strip() for name in text.split(",") if name.strip())
    if not found or len(set(found)) < len(found):
        raise ValueError(f"{option} {text!r}: give different names, with commas between them")
    return found


def address(text: str, option: str) -> Address:
    """Read HOST:PORT; an IPv6 address stands in brackets."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"{option} {text!r}: write HOST:PORT, e.g. 192.0.2.7:7700 or [2001:db8::7]:7700")
    return host.removeprefix("[").removesuffix("]"), int(port)


def http_address(text: str) -> Address:
    """Read PORT, which is on this machine alone, or HOST:PORT."""
    return address(text if ":" in text else f"127.0.0.1:{text}", "--http")


def read_secret(path: Path | None) -> bytes | None:
    """Read the secret of a closed group from a file that others cannot read."""
    if path is None:
        return None
    if not path.is_file():
        raise FileNotFoundError(f"--secret-file {path}: there is no such file")
    mode = stat.S_IMODE(path.stat().st_mode)
    if os.name == "posix" and mode & 0o077:
        raise ValueError(f"others can read the secret in {path} (mode {mode:o}): run chmod 600 {path}")
    return path.read_bytes().strip()


def read_members(path: Path | None) -> frozenset[bytes] | None:
    """Read key ids in hexadecimal, one a line; what follows a # is a comment."""
    if path is None:
        return None
    if not path.is_file():
        raise FileNotFoundError(f"--members-file {path}: there is no such file")
    members = set()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        try:
            members.add(bytes.fromhex(text))
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {text!r} is no key id in hexadecimal") from error
    return frozenset(members)
