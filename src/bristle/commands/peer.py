"""`bristle peer`: one long-running peer, from options and data to a graceful stop."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import stat
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bristle import rules
from bristle.backbones.backbone import find_backbone, load_for
from bristle.backbones.base import Backbone
from bristle.backbones.features import extract
from bristle.backbones.head import Head, load_head
from bristle.commands.dashboard import dashboard
from bristle.commands.dashboard.peer import PeerBoard
from bristle.commands.jsonl import RowsFile
from bristle.commands.progress import patient_bar
from bristle.data import Dataset, load
from bristle.p2p.limits import Limits
from bristle.peer.conditions import Always, Condition, Hours, OnPower, all_of
from bristle.peer.learner import default_rule, live_rule
from bristle.peer.pace import Pace
from bristle.peer.peer import Peer
from bristle.peer.record import LOG, Turn
from bristle.rules import Rule
from bristle.rules.evidence import Evidence
from bristle.wire.messages import Address


@dataclass(frozen=True, eq=False)
class PeerData:
    """Features and labels of a peer, the classes of its group, and a test set."""

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
    """Load data and extract the features of the samples that the peer uses.

    Parameters
    ----------
    source
        An .npz file, a folder of class folders, ``mnist``, an installed package's dataset, or ``module:name``.
    backbone
        Extracts the features; images of a folder are resized to its input.
    chosen
        Names of the classes to use; None for all in the data.
    group_classes
        All classes of the group, in its order; None if the data have them all.
    samples
        Largest number of samples per class.
    seed
        Seed of their choice.
    """
    dataset = load_for(source, backbone)
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


@dataclass(frozen=True, kw_only=True)
class PeerOptions:
    """Options of `bristle peer`, as given on the command line."""

    application: str
    folder: Path
    data: str | None = None
    classes: str | None = None
    group_classes: str | None = None
    samples: int | None = None
    backbone: str = "bundled"
    head: Path | None = None
    listen: str = "127.0.0.1:0"
    known: Sequence[str] = ()
    beacon: int | None = None
    forward: bool = True
    secret_file: Path | None = None
    members_file: Path | None = None
    found: bool = False
    founders_file: Path | None = None
    invitation_file: Path | None = None
    one_voice: int | None = None
    epsilon: float | None = None
    clip: float | None = None
    releases: int = 1
    rule: str | None = None
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
        """Return the backbone: bundled, an ONNX file, an installed package's, your own, or none for ready features."""
        like = load(self.data).x_train if self.backbone == "none" and self.data is not None else None
        return find_backbone(self.backbone, like=like)

    def make_head(self) -> Head | None:
        """Return the head to start from; None for zeros."""
        return None if self.head is None else load_head(self.head)

    def make_rule(self) -> Rule | None:
        """Return the rule by name, or your own as module:name; None for the default."""
        rule = None if self.rule is None else live_rule(rules.create(self.rule))
        wanted: dict[str, Any] = {} if self.one_voice is None else {"one_voice": self.one_voice}
        if (self.epsilon is None) != (self.clip is None):
            raise ValueError("--epsilon and --clip: noise on statements needs both")
        if self.epsilon is not None:
            wanted["privacy"] = {"epsilon": self.epsilon, "clip": self.clip, "releases": self.releases}
        if not wanted:
            return rule
        rule = rule or default_rule()
        if not isinstance(rule, Evidence):
            raise ValueError("--one-voice and --epsilon are options of the rule evidence: leave them out, or --rule")
        return replace(rule, **wanted)

    def make_data(self, backbone: Backbone) -> PeerData | None:
        """Return the data of this peer; None if all data come over HTTP."""
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
        """Return the pace. Power and hours apply to training and sending alike."""
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
    """Parse names separated by commas."""
    if text is None:
        return None
    found = tuple(name.strip() for name in text.split(",") if name.strip())
    if not found or len(set(found)) < len(found):
        raise ValueError(f"{option} {text!r}: give different names, with commas between them")
    return found


def address(text: str, option: str) -> Address:
    """Parse HOST:PORT; an IPv6 address stands in brackets."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"{option} {text!r}: write HOST:PORT, e.g. 192.0.2.7:7700 or [2001:db8::7]:7700")
    return host.removeprefix("[").removesuffix("]"), int(port)


def http_address(text: str) -> Address:
    """Parse PORT, on loopback, or HOST:PORT."""
    return address(text if ":" in text else f"127.0.0.1:{text}", "--http")


def read_secret(path: Path | None) -> bytes | None:
    """Read the secret of a closed group; refuse a file that others can read."""
    if path is None:
        return None
    if not path.is_file():
        raise FileNotFoundError(f"--secret-file {path}: there is no such file")
    mode = stat.S_IMODE(path.stat().st_mode)
    if os.name == "posix" and mode & 0o077:
        raise ValueError(f"others can read the secret in {path} (mode {mode:o}): run chmod 600 {path}")
    return path.read_bytes().strip()


def read_key_ids(path: Path | None, option: str) -> frozenset[bytes] | None:
    """Read key ids in hexadecimal, one per line; # starts a comment."""
    if path is None:
        return None
    if not path.is_file():
        raise FileNotFoundError(f"{option} {path}: there is no such file")
    members = set()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        try:
            members.add(bytes.fromhex(text))
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {text!r} is not a key id in hexadecimal") from error
    return frozenset(members)


def read_invitation(path: Path | None) -> str | None:
    """Read what `bristle invite` wrote."""
    if path is None:
        return None
    if not path.is_file():
        raise FileNotFoundError(f"--invitation-file {path}: there is no such file")
    return path.read_text(encoding="utf-8").strip()


class JsonLines(logging.Formatter):
    """Formats log records as JSON Lines: time, level, event and details."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **_details(record),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class Words(logging.Formatter):
    """Formats log records for people: time, event and details."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        event, details = record.getMessage(), dict(_details(record))
        if event in details:
            event = f"{event} {details.pop(event)}"
        shown = "  ".join(f"{name} {_short(value)}" for name, value in details.items())
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        line = f"{datetime.fromtimestamp(record.created):%H:%M:%S}  {level}{event}  {shown}".rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def log_to_stderr(*, as_json: bool) -> None:
    """Send the logs of peers and their network to stderr, for people or as JSON Lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else Words())
    logger = logging.getLogger("bristle")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False


def _details(record: logging.LogRecord) -> dict[str, Any]:
    details: dict[str, Any] = record.__dict__.get("details", {})
    return details


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    return f"{text[:16]}" if len(text) == 40 and text.isalnum() else text  # a key id


def run_peer(options: PeerOptions) -> bool:
    """Run a peer until it is stopped or has done its iterations; return whether it has done them.

    SIGTERM and SIGINT end it after the iteration in progress, with everything kept.
    """
    if options.iterations is not None and options.iterations < 1:
        raise ValueError(f"--iterations {options.iterations}: give at least 1, or leave it out")
    http = None if options.http is None else http_address(options.http)
    backbone = options.make_backbone()
    with ExitStack() as exits:
        watchers: list[Callable[[Turn], None]] = []
        if options.json is not None:
            watchers.append(exits.enter_context(RowsFile(options.json)).write)
        peer, data = _make_peer(options, backbone, lambda turn: [watch(turn) for watch in watchers])
        feed = exits.enter_context(dashboard(options.page))
        board = None if feed is None else PeerBoard(peer, feed, total=options.iterations)
        if board is not None:
            watchers.append(board.took)
        return asyncio.run(_serve(peer, data, options.iterations, http, board))


def _make_peer(
    options: PeerOptions, backbone: Backbone, watch: Callable[[Turn], object]
) -> tuple[Peer, PeerData | None]:
    listen = address(options.listen, "--listen")
    known = [address(text, "--known") for text in options.known]
    secret = read_secret(options.secret_file)
    members = read_key_ids(options.members_file, "--members-file")
    founders = read_key_ids(options.founders_file, "--founders-file")
    invitation = read_invitation(options.invitation_file)
    rule, pace, head = options.make_rule(), options.make_pace(), options.make_head()
    data = options.make_data(backbone)  # Last: it may take a while, and mistakes should show before.
    classes = data.classes if data else names(options.group_classes, "--group-classes") or ()
    test = (data.test_features, data.test_labels) if data and len(data.test_labels) else None
    peer = Peer(
        application=options.application,
        classes=classes,
        folder=options.folder,
        backbone=backbone,
        head=head,
        listen=listen,
        known=known,
        beacon=options.beacon,
        secret=secret,
        members=members,
        found=options.found,
        founders=founders,
        invitation=invitation,
        rule=rule,
        pace=pace,
        limits=Limits() if options.forward else Limits(forward_rate=0),
        share_clip=options.share_clip,
        share_noise=options.share_noise,
        seed=options.seed,
        test=test,
        test_every=options.test_every,
        on_iteration=watch,
    )
    return peer, data


async def _serve(
    peer: Peer, data: PeerData | None, iterations: int | None, http: Address | None, board: PeerBoard | None
) -> bool:
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()

    def stop() -> None:
        stopped.set()  # It may come before the run does.
        peer.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        with suppress(NotImplementedError):  # On Windows: Ctrl-C then interrupts, and the state is kept all the same.
            loop.add_signal_handler(number, stop)
    async with AsyncExitStack() as exits:
        await exits.enter_async_context(peer)
        if data is not None:
            added = await asyncio.to_thread(peer.add, data.features, data.labels, features=True)
            LOG.info("data", extra={"details": {"samples": len(data.labels), "new": added}})
        if http is not None:
            # Not at the top: it takes as long to load as all the rest, and a peer may do without.
            from bristle.peer.http import HttpEndpoint  # noqa: PLC0415

            endpoint = await exits.enter_async_context(HttpEndpoint(peer, host=http[0], port=http[1]))
            LOG.info("http", extra={"details": {"address": "{}:{}".format(*endpoint.address)}})
        if board is not None:
            await exits.enter_async_context(board)
        before = peer.iteration
        if not stopped.is_set():
            await peer.run(iterations)
        return iterations is None or peer.iteration - before >= iterations
