"""A peer over HTTP: predictions, samples that come and go, status, Prometheus metrics and decisions."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import os
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
from aiohttp import web

from bristle._core.files import write_atomically
from bristle.peer.record import Iteration
from bristle.peer.status import Status
from bristle.peer.store import KEPT_DECISIONS
from bristle.peer.store_files import ENDPOINT, TOKEN, TryAgainError

if TYPE_CHECKING:
    from bristle.peer.peer import Peer  # It loads the network, which a live page of a simulation does without.

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Metric:
    """One figure: its name, what it means, its kind, and a value for each set of labels."""

    name: str
    help: str
    kind: str
    values: tuple[tuple[Labels, float], ...]

    def lines(self) -> Iterable[str]:
        """Yield the metric as lines of text."""
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} {self.kind}"
        for labels, value in self.values:
            shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
            yield f"{self.name}{{{shown}}} {_number(value)}" if shown else f"{self.name} {_number(value)}"


def render(status: Status) -> str:
    """Return all metrics of a peer as text for Prometheus."""
    return "".join(f"{line}\n" for metric in _metrics(status) for line in metric.lines())


def _metrics(status: Status) -> Iterable[Metric]:
    last, counters = status.last, status.counters
    yield _gauge("bristle_iteration", "Iterations that the peer has done.", status.iteration)
    yield _gauge("bristle_neighbours", "Peers of the group that are in touch now.", len(status.neighbours))
    ways = Counter(one.reached for one in status.neighbours)
    yield Metric(
        "bristle_neighbours_reached",
        "Neighbours, by how they are reached.",
        "gauge",
        tuple(({"way": way}, ways[way]) for way in ("directly", "locally", "forwarded")),
    )
    yield _gauge("bristle_waiting", "1 while a condition or a cap holds the peer back.", status.waiting is not None)
    yield _gauge("bristle_bytes_sent_last_day", "UDP payload sent in the last 24 hours.", status.bytes_last_day)
    for name, words in (
        ("bytes_in", "UDP payload received."),
        ("bytes_out", "UDP payload sent."),
        ("bytes_forwarded", "UDP payload that it forwarded for others."),
        ("heads_in", "Heads received whole and found well signed."),
        ("heads_out", "Heads that a neighbour acknowledged."),
        ("heads_given_up", "Heads that no acknowledgement came for."),
        ("statements_in", "Statements of others received whole and found well signed."),
        ("statements_out", "Statements that a neighbour acknowledged."),
        ("retransmissions", "Chunks that were sent again."),
    ):
        yield Metric(f"bristle_{name}_total", words, "counter", (({}, counters.get(name, 0)),))
    refused = {name.removeprefix("refused."): count for name, count in counters.items() if name.startswith("refused.")}
    yield Metric(
        "bristle_refused_total",
        "What came from outside and was not taken, by reason.",
        "counter",
        tuple(({"reason": kind}, count) for kind, count in sorted(refused.items())),
    )
    yield Metric(
        "bristle_samples",
        "Samples that the peer holds, by class and use.",
        "gauge",
        tuple(
            ({"class": one.name, "use": use}, count)
            for one in status.samples
            for use, count in (("training", one.training), ("held-out", one.held_out))
        ),
    )
    if status.decided is not None and any(one.number is not None for one in status.decided.heard):
        yield from _of_statements(status.decided)
    if last is not None:
        yield _gauge("bristle_last_iteration_timestamp_seconds", "When the last iteration ended.", last.at)
        yield _gauge("bristle_last_iteration_seconds", "How long integrating and training took.", last.seconds)
        reasons = sorted({one.reason for one in last.heard})
        yield Metric(
            "bristle_last_heard",
            "Heads or statements that the last iteration was about, by what became of them.",
            "gauge",
            tuple(({"reason": reason}, sum(one.reason == reason for one in last.heard)) for reason in reasons),
        )
        yield _gauge("bristle_last_share", "Share of the head that came from others.", sum(o.share for o in last.heard))
    if status.accuracy is not None:
        yield _gauge("bristle_accuracy", "Accuracy on the test set that the peer was given.", status.accuracy)


def _of_statements(decided: Iteration) -> Iterable[Metric]:
    """Yield what became of the statements that count: of each whole one, and of each mean in it."""
    whole = Counter(one.reason for one in decided.heard)
    means = Counter(each.reason for one in decided.heard for each in one.classes)
    for name, words, found in (
        ("bristle_statements", "Statements of others that count now, by what became of them.", whole),
        ("bristle_statement_means", "Means of classes in these statements, by what became of them.", means),
    ):
        yield Metric(name, words, "gauge", tuple(({"reason": reason}, found[reason]) for reason in sorted(found)))


def _gauge(name: str, words: str, value: float) -> Metric:
    return Metric(name, words, "gauge", (({}, float(value)),))


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


MAX_BODY = 16 << 20
MAX_SAMPLES = 1_000


@dataclass(frozen=True, eq=False)
class Inputs:
    """Images or features [n, ...], and labels where they were asked for."""

    values: npt.NDArray[Any]
    features: bool
    labels: list[int] | list[str] | None = None


def parse(body: bytes, *, labelled: bool) -> Inputs:
    """Read ``{"images": [...]}`` or ``{"features": [...]}``, with ``"labels": [...]`` beside it where `labelled`.

    Raises
    ------
    ValueError
        One line that says what is wrong.
    """
    wanted = '{"features": [[...]], "labels": [...]}' if labelled else '{"features": [[...]]}'
    try:
        given = json.loads(body, parse_constant=_refuse)
    except _NotANumberError:
        raise
    except (ValueError, RecursionError) as error:  # Not UTF-8, not JSON, or a number of thousands of digits.
        raise ValueError(f"the body is not JSON ({error}): send {wanted}") from error
    known = {"images", "features"} | ({"labels"} if labelled else set())
    if not isinstance(given, dict) or not set(given) <= known or len({"images", "features"} & set(given)) != 1:
        raise ValueError(f"send {wanted}, or images in place of features, and nothing else")
    features = "features" in given
    values = _values(given["features" if features else "images"], features)
    return Inputs(values, features, _labels(given.get("labels"), len(values)) if labelled else None)


def _values(given: Any, features: bool) -> npt.NDArray[Any]:
    what = "features" if features else "images"
    if not isinstance(given, list) or not 1 <= len(given) <= MAX_SAMPLES:
        raise ValueError(f"{what} must be a list of 1 to {MAX_SAMPLES} samples")
    # Before NumPy sees it: among a thousand samples, one long text would make it set aside as much for each.
    level: list[Any] = given
    while (kinds := set(map(type, level))) == {list}:
        level = list(chain.from_iterable(level))
    if not kinds <= {int, float}:
        raise ValueError(f"{what} must be lists of numbers, one for each sample, and all must have the same size")
    try:
        values = np.array(given)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{what} must all have the same size") from error
    if values.dtype.kind not in "iuf" or values.ndim < 2:
        raise ValueError(f"{what} must be lists of numbers, one for each sample")
    if features or values.dtype.kind == "f":
        with np.errstate(over="ignore"):
            values = values.astype(np.float32)
        if not np.isfinite(values).all():
            raise ValueError(f"{what} must be finite numbers that fit into 32 bits")
        return values
    if values.min(initial=0) < 0 or values.max(initial=0) > 255:
        raise ValueError("whole numbers in images must be from 0 to 255; send others as 0.5, with a decimal point")
    return values.astype(np.uint8)


def _labels(given: Any, count: int) -> list[int] | list[str]:
    if not isinstance(given, list) or len(given) != count:
        raise ValueError(f"labels must be a list of {count}, one for each sample")
    if not (all(type(one) is int for one in given) or all(isinstance(one, str) for one in given)):
        raise ValueError("labels must be class numbers, or all of them names")
    if any(isinstance(one, int) and not -(2**31) < one < 2**31 for one in given):
        raise ValueError("labels must be class numbers from 0")
    return given


class _NotANumberError(ValueError):
    """One of the three constants that are no JSON."""


def _refuse(constant: str) -> float:
    raise _NotANumberError(f"the body has {constant}, which is not a number: leave that sample out")


def given_token(authorization: str) -> bytes:
    """Return the token of an Authorization header `Bearer TOKEN`, as bytes; empty for any other header."""
    kind, _, token = authorization.partition(" ")
    return token.strip().encode("utf-8", "surrogatepass") if kind.lower() == "bearer" else b""


def names_this_machine(host: str, *, own: str) -> bool:
    """Return whether a Host header is safe from DNS rebinding: an IP address, localhost or our own name."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if name in ("localhost", own):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def wanted_number(text: str, *, most: int) -> int:
    """Return the number in a query, from 1 to `most`.

    Raises
    ------
    ValueError
        One line that says what is wrong.
    """
    digits = text.lstrip("0") if text.isascii() and text.isdigit() else ""
    if not digits or len(digits) > len(str(most)) or int(digits) > most:
        raise ValueError(f"last={text[:50]!r}: give a number from 1 to {most}")
    return int(digits)


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
                web.post("/remove", self._remove),
                web.get("/status", self._status),
                web.get("/metrics", self._metrics),
                web.get("/decisions", self._decisions),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=5.0)

    @property
    def address(self) -> tuple[str, int]:
        """The address that it listens on."""
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

    async def _remove(self, request: web.Request) -> web.Response:
        def remove(inputs: Inputs) -> dict[str, Any]:
            return {"removed": self._peer.remove(inputs.values, inputs.labels or [], features=inputs.features)}

        return web.json_response(await _worked(request, remove, labelled=True))

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
