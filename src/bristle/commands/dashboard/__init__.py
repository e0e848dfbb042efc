"""The live page of a run: the newest snapshot, served by a thread at a secret URL."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import secrets
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from aiohttp import web

from bristle.peer.http import names_this_machine
from bristle.report.live_page import live_page
from bristle.report.snapshot import Snapshot

LOOKING = 6.0
"""Seconds after the last request until a viewer counts as gone; a page in the background asks every four."""

SOONEST = 0.5
"""Minimum seconds between two snapshots."""

SHARE = 0.05
"""Largest share of a run's time spent on snapshots; none while nobody is watching."""


class Feed:
    """The newest snapshot of a run, readable from any thread; the run's own thread makes it.

    Parameters
    ----------
    clock : callable
        A monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._version = 0
        self._body = b""
        self._asked = float("-inf")
        self._next = float("-inf")

    @property
    def watched(self) -> bool:
        """Whether somebody is watching."""
        return self._clock() - self._asked < LOOKING

    @property
    def wanted(self) -> bool:
        """Whether a new snapshot is due."""
        now = self._clock()
        return now - self._asked < LOOKING and now >= self._next

    def publish(self, make: Callable[[], Snapshot]) -> None:
        """Make a snapshot and publish it."""
        began = self._clock()
        fields = make().to_dict()
        with self._lock:
            self._version += 1
            fields["version"] = self._version
            self._body = json.dumps(fields, allow_nan=False, separators=(",", ":")).encode()
        took = self._clock() - began
        self._next = began + max(SOONEST, took / SHARE)

    def newer_than(self, version: int) -> bytes | None:
        """Return the newest snapshot as JSON if it is newer, and note that somebody is watching."""
        with self._lock:
            self._asked = self._clock()
            if not self._body or self._version == version:
                return None
            return self._body


Address = tuple[str, int]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

TOKEN_BYTES = 18
FAREWELL = 2.0
"""Seconds for which open pages can fetch the end of the run; they ask every second. Ctrl-C ends it."""

HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'",
}


@contextmanager
def dashboard(at: Address | None) -> Iterator[Feed | None]:
    """Serve a live page while the block runs, and print its address on stderr; do nothing if `at` is None.

    At the end, open pages get a moment to fetch the last snapshot.
    """
    if at is None:
        yield None
        return
    feed = Feed()
    server = Server(feed, at)
    server.start()
    try:
        print(f"Live page: {server.url}", file=sys.stderr, flush=True)
        yield feed
    finally:
        try:
            if feed.watched:
                time.sleep(FAREWELL)
        finally:
            server.stop()


def stay(feed: Feed | None) -> None:
    """After a run in a terminal, serve its page until Ctrl-C: a short run may end before the page is opened."""
    if feed is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    print("The run has ended. Its page is served until Ctrl-C.", file=sys.stderr)
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        print(file=sys.stderr)


class Server:
    """An HTTP server in a thread: the page at ``/TOKEN/``, and the newest snapshot at ``/TOKEN/state``.

    Requests without the token are refused with an empty 403. The token is new for every run and gives read access only.

    Parameters
    ----------
    feed : Feed
        The snapshots.
    at : (str, int)
        Where to listen; port 0 for any free one. Not encrypted.
    """

    def __init__(self, feed: Feed, at: Address) -> None:
        self._feed, self._at = feed, at
        self._token = secrets.token_urlsafe(TOKEN_BYTES)
        self._page = live_page()
        self._thread = threading.Thread(target=self._serve, name="bristle-dashboard", daemon=True)
        self._ready = threading.Event()
        self._failed: OSError | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self.address: Address = at

    @property
    def url(self) -> str:
        """The address of the page, token included."""
        host, port = self.address
        try:
            anywhere = ipaddress.ip_address(host).is_unspecified
        except ValueError:
            anywhere = False
        shown = "127.0.0.1" if anywhere else f"[{host}]" if ":" in host else host
        return f"http://{shown}:{port}/{self._token}/"

    def start(self) -> None:
        """Start listening; raise ValueError if the address cannot be used."""
        self._thread.start()
        self._ready.wait()
        if self._failed is not None:
            host, port = self._at
            raise ValueError(
                f"cannot listen on {host}:{port} for the live page: {self._failed.strerror}; choose another address"
            )

    def stop(self) -> None:
        """Stop listening and close all connections."""
        if self._loop is not None and self._stopping is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(timeout=2 * FAREWELL)

    def _serve(self) -> None:
        try:
            asyncio.run(self._run())
        finally:
            self._ready.set()

    async def _run(self) -> None:
        app = web.Application(client_max_size=1, middlewares=[self._let_in])
        app.add_routes([web.get("/{token}/", self._show), web.get("/{token}/state", self._state)])
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5, handle_signals=False)
        await runner.setup()
        try:
            await web.TCPSite(runner, *self._at).start()
            host, port = runner.addresses[0][:2]
            self.address = host, port
            self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
            self._ready.set()
            await self._stopping.wait()
        except OSError as error:
            self._failed = error
        finally:
            await runner.cleanup()

    @web.middleware
    async def _let_in(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        known = names_this_machine(request.headers.get("Host", ""), own=self._at[0])
        given = request.path.split("/")[1].encode("utf-8", "surrogatepass")
        if not known or not hmac.compare_digest(given, self._token.encode()):
            return web.Response(status=403, headers=HEADERS)
        try:
            answer = await handler(request)
        except web.HTTPException as error:
            return web.Response(status=error.status, headers=HEADERS)
        for name, value in HEADERS.items():
            answer.headers.setdefault(name, value)
        return answer

    async def _show(self, request: web.Request) -> web.Response:
        headers = {"Content-Security-Policy": self._page.policy}
        return web.Response(text=self._page.html, content_type="text/html", headers=headers)

    async def _state(self, request: web.Request) -> web.Response:
        try:
            seen = int(request.query.get("after", "-1")[:18])
        except ValueError:
            raise web.HTTPBadRequest from None
        body = self._feed.newer_than(seen)
        return web.Response(status=204) if body is None else web.Response(body=body, content_type="application/json")
