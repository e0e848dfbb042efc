"""`bristle peer`: one long-running peer, from options and data to a graceful stop."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack, suppress
from datetime import UTC, datetime
from typing import Any

from bristle.backbones.backbone import Backbone
from bristle.commands.dashboard import dashboard
from bristle.commands.dashboard.peer import PeerBoard
from bristle.commands.jsonl import RowsFile
from bristle.commands.peer_choices import LogFormat
from bristle.commands.peer_options import (
    Address,
    PeerData,
    PeerOptions,
    address,
    http_address,
    names,
    read_members,
    read_secret,
)
from bristle.peer.peer import Peer
from bristle.peer.record import Turn


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, event, and what there is to say about it."""

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
    """For people: the time, the event, and what there is to say about it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        event, details = record.getMessage(), dict(_details(record))
        if event in details:
            event = f"{event} {details.pop(event)}"
        told = "  ".join(f"{name} {_short(value)}" for name, value in details.items())
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        line = f"{datetime.fromtimestamp(record.created):%H:%M:%S}  {level}{event}  {told}".rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def log_to_stderr(form: LogFormat) -> None:
    """Send what peers and their network log to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form is LogFormat.JSON else Words())
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


LOG = logging.getLogger("bristle.peer")


def run_peer(options: PeerOptions) -> bool:
    """Run a peer until it is stopped, or has done its iterations; tell whether it had done those.

    SIGTERM and SIGINT end it after the iteration in progress, with everything kept.
    """
    if options.iterations is not None and options.iterations < 1:
        raise ValueError(f"--iterations {options.iterations}: give at least 1, or leave it out")
    http = None if options.http is None else http_address(options.http)
    backbone = options.make_backbone()
    with ExitStack() as exits:
        told: list[Callable[[Turn], None]] = []
        if options.json is not None:
            told.append(exits.enter_context(RowsFile(options.json)).write)
        peer, data = _make_peer(options, backbone, lambda turn: [tell(turn) for tell in told])
        feed = exits.enter_context(dashboard(options.page))
        board = None if feed is None else PeerBoard(peer, feed, total=options.iterations)
        if board is not None:
            told.append(board.took)
        return asyncio.run(_serve(peer, data, options.iterations, http, board))


def _make_peer(
    options: PeerOptions, backbone: Backbone, watch: Callable[[Turn], object]
) -> tuple[Peer, PeerData | None]:
    listen = address(options.listen, "--listen")
    known = [address(text, "--known") for text in options.known]
    secret, members = read_secret(options.secret_file), read_members(options.members_file)
    rule, pace = options.make_rule(), options.make_pace()
    data = options.make_data(backbone)  # Last: it may take a while, and mistakes should show before.
    classes = data.classes if data else names(options.group_classes, "--group-classes") or ()
    test = (data.test_features, data.test_labels) if data and len(data.test_labels) else None
    peer = Peer(
        application=options.application,
        classes=classes,
        folder=options.folder,
        backbone=backbone,
        listen=listen,
        known=known,
        beacon=options.beacon,
        secret=secret,
        members=members,
        rule=rule,
        pace=pace,
        encoding=options.encoding,
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
