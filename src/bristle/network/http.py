"""A peer over HTTP: predictions, new samples, status, metrics and decisions, for programs on the same machine.

Every request needs the token in the peer's folder. Names in the Host header are refused unless they are this
endpoint's own: a page in a browser that has its own name pointed here gets nothing.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from bristle._core.files import write_atomically
from bristle.network.http_input import MAX_BODY, Inputs, given_token, names_this_machine, parse, wanted_number
from bristle.network.metrics import CONTENT_TYPE, render
from bristle.network.service import Peer
from bristle.peer.store import KEPT_DECISIONS
from bristle.peer.store_files import ENDPOINT, TOKEN, TryAgainError

TOKEN_BYTES = 32

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HttpEndpoint:
    """Serves a running peer: ``async with Peer(...) as peer, HttpEndpoint(peer, port=8080): ...``.

    Parameters
    ----------
    peer : Peer
        The peer, which must be running.
    host : str
        Where to listen. What goes beyond this machine is not encrypted: put a proxy with TLS before it.
    port : int
        0 for any that is free; `address` says which.
    """

    def __init__(self, peer: Peer, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._peer = peer
        self._host, self._port = host, port
        self._token = b""
        app = web.Application(client_max_size=MAX_BODY, middlewares=[self._as_json, self._let_in])
        app.add_routes(
            [
                web.post("/predict", self._predict),
                web.post("/add", self._add),
                web.get("/status", self._status),
                web.get("/metrics", self._metrics),
                web.get("/decisions", self._decisions),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=5.0)

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        host, port = self._runner.addresses[0][:2]
        return host, port

    async def __aenter__(self) -> Self:
        """Start to listen; write into the peer's folder where."""
        self._token = _load_or_create_token(self._peer.folder / TOKEN).encode()
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._port).start()
        except OSError as error:
            await self._runner.cleanup()
            raise ValueError(
                f"cannot listen for HTTP on {self._host}:{self._port}: {error.strerror}; choose another port"
            ) from error
        host, port = self.address
        where = json.dumps({"host": host, "port": port, "pid": os.getpid()})
        write_atomically(self._peer.folder / ENDPOINT, [where.encode()])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop listening."""
        (self._peer.folder / ENDPOINT).unlink(missing_ok=True)
        await self._runner.cleanup()

    @web.middleware
    async def _as_json(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer what is wrong with a request in JSON, in one line."""
        try:
            return await handler(request)
        except TryAgainError as error:
            return web.json_response({"error": str(error)}, status=507)
        except ValueError as error:
            return web.json_response({"error": str(error)}, status=400)
        except web.HTTPRequestEntityTooLarge:
            return web.json_response({"error": f"the body has more than {MAX_BODY} bytes: send less"}, status=413)
        except web.HTTPException as error:
            headers = {name: value for name, value in error.headers.items() if name in ("Allow", "WWW-Authenticate")}
            return web.json_response({"error": error.reason}, status=error.status, headers=headers)

    @web.middleware
    async def _let_in(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not names_this_machine(request.headers.get("Host", ""), own=self._host):
            raise web.HTTPForbidden(reason="the Host header names another machine: use the address of this endpoint")
        given = given_token(request.headers.get("Authorization", ""))
        if not hmac.compare_digest(given, self._token):
            raise web.HTTPUnauthorized(
                reason=f"send 'Authorization: Bearer TOKEN' with the token in the file {TOKEN} of the peer's folder",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return await handler(request)

    async def _predict(self, request: web.Request) -> web.Response:
        def predict(inputs: Inputs) -> dict[str, Any]:
            likely = self._peer.probabilities(inputs.values, features=inputs.features)
            numbers = [int(number) for number in likely.argmax(axis=1)]
            return {
                "labels": numbers,
                "classes": [self._peer.classes[number] for number in numbers],
                "probabilities": [[round(float(share), 6) for share in row] for row in likely],
                "iteration": self._peer.iteration,
            }

        return web.json_response(await _worked(request, predict, labelled=False))

    async def _add(self, request: web.Request) -> web.Response:
        def add(inputs: Inputs) -> dict[str, Any]:
            return {"added": self._peer.add(inputs.values, inputs.labels or [], features=inputs.features)}

        return web.json_response(await _worked(request, add, labelled=True))

    async def _status(self, request: web.Request) -> web.Response:
        return web.json_response(self._peer.status().to_dict())

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=render(self._peer.status()).encode(), headers={"Content-Type": CONTENT_TYPE})

    async def _decisions(self, request: web.Request) -> web.Response:
        wanted = wanted_number(request.query.get("last", "20"), most=KEPT_DECISIONS)
        records = await asyncio.to_thread(self._peer.decisions, wanted)
        return web.json_response({"decisions": [asdict(record) for record in records]})


async def _worked(request: web.Request, work: Callable[[Inputs], dict[str, Any]], *, labelled: bool) -> dict[str, Any]:
    """Read the body, and do the work in a thread: the network must not wait for a backbone."""
    body = await request.read()
    return await asyncio.to_thread(lambda: work(parse(body, labelled=labelled)))


def _load_or_create_token(path: Path) -> str:
    """Return the token in a file that only its owner can read; a new one where there is none."""
    if path.exists():
        token = path.read_text(encoding="ascii", errors="replace").strip()
        if len(token) < TOKEN_BYTES or not token.isascii():
            raise ValueError(f"{path} holds no token: remove it, and the peer makes a new one")
        return token
    token = secrets.token_urlsafe(TOKEN_BYTES)
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(token + "\n")
    os.replace(part, path)
    return token
