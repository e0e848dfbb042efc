"""The server of the live page: real requests, right and wrong ones."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from bristle.commands.dashboard import Feed, Server, dashboard
from bristle.report.snapshot import RunState, Snapshot


def a_run() -> Snapshot:
    return Snapshot(
        title="t", subtitle="", rule="", state=RunState.RUNNING, iteration=1, total=9, classes=(), members=()
    )


@pytest.fixture
def feed() -> Feed:
    return Feed()


@pytest.fixture
def server(feed: Feed) -> Iterator[Server]:
    made = Server(feed, ("127.0.0.1", 0))
    made.start()
    yield made
    made.stop()


def ask(server: Server, path: str, *, host: str | None = None, method: str = "GET") -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(*server.address, timeout=10)
    connection.request(method, path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    answer.body = answer.read()  # type: ignore[attr-defined]
    connection.close()
    return answer


def body(answer: http.client.HTTPResponse) -> bytes:
    read: bytes = answer.body  # type: ignore[attr-defined]
    return read


def test_the_address_with_the_token_has_the_page(server: Server, feed: Feed) -> None:
    path = urlsplit(server.url).path
    page = ask(server, path)
    assert page.status == 200
    assert body(page).startswith(b"<!doctype html>")
    assert "sha256-" in page.headers["Content-Security-Policy"]
    assert ask(server, f"{path}state?after=-1").status == 204
    feed.publish(a_run)
    state = ask(server, f"{path}state?after=-1")
    assert state.status == 200
    assert b'"version":1' in body(state)
    assert ask(server, f"{path}state?after=1").status == 204
    for answer in (page, state):
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("path", ["/", "/wrong/", "/wrong/state", "//", "/../", "/%C3%A9/", "/" + "a" * 4000])
def test_without_the_token_there_is_nothing_to_learn(server: Server, path: str) -> None:
    answer = ask(server, path)
    assert answer.status == 403
    assert body(answer) == b""
    assert answer.headers["Content-Security-Policy"] == "default-src 'none'"
    assert answer.headers["Cache-Control"] == "no-store"


def test_a_part_of_the_token_is_not_enough(server: Server) -> None:
    path = urlsplit(server.url).path
    assert ask(server, path[:-2] + "/").status == 403
    assert ask(server, path.upper()).status == 403


def test_a_page_that_pointed_its_name_here_gets_nothing(server: Server) -> None:
    path = urlsplit(server.url).path
    assert ask(server, path, host="evil.example").status == 403
    assert ask(server, path, host="localhost:1").status == 200


def test_odd_requests_get_short_answers(server: Server) -> None:
    path = urlsplit(server.url).path
    for wrong, status in ((f"{path}state?after=x", 400), (f"{path}nothing", 404)):
        answer = ask(server, wrong)
        assert (answer.status, body(answer)) == (status, b"")
    assert ask(server, path, method="POST").status == 405


def test_a_taken_port_is_one_clear_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"127.0.0.1:{port} for the live page"):
            Server(Feed(), ("127.0.0.1", port)).start()


def test_an_open_page_keeps_nothing_from_ending(capsys: pytest.CaptureFixture[str]) -> None:
    with dashboard(("127.0.0.1", 0)) as feed:
        assert feed is not None
        address = urlsplit(capsys.readouterr().err.split()[-1])
        half = socket.create_connection((address.hostname, address.port or 0))
        half.sendall(b"GET ")  # and never more
        idle = http.client.HTTPConnection(address.hostname or "", address.port)
        idle.request("GET", f"{address.path}state")
        idle.getresponse().read()
    assert "bristle-dashboard" not in {thread.name for thread in threading.enumerate()}
    half.close()
    idle.close()


def test_without_an_address_there_is_no_server() -> None:
    before = threading.active_count()
    with dashboard(None) as feed:
        assert feed is None
        assert threading.active_count() == before
