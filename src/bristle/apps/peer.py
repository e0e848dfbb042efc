"""`bristle peer`: one long-running peer, from options to a graceful stop."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack, suppress

from bristle.apps.dashboard import dashboard
from bristle.apps.dashboard_peer import PeerBoard
from bristle.apps.peer_data import PeerData
from bristle.apps.peer_options import (
    Address,
    PeerOptions,
    address,
    http_address,
    names,
    read_members,
    read_secret,
)
from bristle.apps.peer_rows import RowsFile
from bristle.backbones.backbone import Backbone
from bristle.peer.peer import Peer
from bristle.peer.record import Turn

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
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        with suppress(NotImplementedError):  # On Windows: Ctrl-C then interrupts, and the state is kept all the same.
            loop.add_signal_handler(number, peer.stop)
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
        await peer.run(iterations)
        return iterations is None or peer.iteration - before >= iterations
