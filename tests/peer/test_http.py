from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bristle import Peer
from bristle.peer.http import MAX_BODY, HttpEndpoint

Ask = Callable[..., Awaitable[tuple[int, Any]]]


@pytest.fixture
def served(make_peer: Callable[..., Peer], digits: Any, tmp_path: Path) -> Callable[..., None]:
    """Run a peer that has learnt a little, with its endpoint, while a test asks it things."""

    def serve(work: Callable[[Peer, Ask], Awaitable[None]]) -> None:
        async def run() -> None:
            async with make_peer("a") as peer, HttpEndpoint(peer) as endpoint, aiohttp.ClientSession() as session:
                peer.add(*digits.of([0, 1, 2]), features=True)
                await peer.run(3)
                token = (tmp_path / "a" / "http.token").read_text().strip()

                async def ask(method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
                    url = "http://{}:{}{}".format(*endpoint.address, path)
                    sent = {"Authorization": f"Bearer {token}", **headers}
                    text = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
                    async with session.request(method, url, data=BytesIO(text), headers=sent) as answer:
                        kind = answer.headers["Content-Type"]
                        return answer.status, await (answer.json() if "json" in kind else answer.text())

                await work(peer, ask)

        asyncio.run(run())

    return serve


def test_predict_and_add(served: Callable[..., None], digits: Any) -> None:
    async def work(peer: Peer, ask: Ask) -> None:
        images = digits.images[::100]
        status, answer = await ask("POST", "/predict", {"images": images.tolist()})
        assert status == 200
        assert answer["labels"] == peer.predict(images).tolist()
        assert answer["classes"] == [str(label) for label in answer["labels"]]
        assert len(answer["probabilities"][0]) == 10
        status, same = await ask("POST", "/predict", {"features": digits.features[::100].tolist()})
        assert same["labels"] == answer["labels"]
        new = {"images": digits.images[-4:].tolist(), "labels": ["9"] * 4}
        assert await ask("POST", "/add", new) == (200, {"added": 4})
        assert await ask("POST", "/add", new) == (200, {"added": 0})
        assert peer.status().samples[9].training + peer.status().samples[9].held_out == 4
        assert await ask("POST", "/remove", new) == (200, {"removed": 4})
        assert await ask("POST", "/remove", new) == (200, {"removed": 0})
        assert await ask("POST", "/add", new) == (200, {"added": 0})

    served(work)


def test_status_metrics_and_decisions(served: Callable[..., None]) -> None:
    async def work(peer: Peer, ask: Ask) -> None:
        status, answer = await ask("GET", "/status")
        assert (status, answer["iteration"], answer["key_id"]) == (200, 3, peer.key_id)
        status, text = await ask("GET", "/metrics")
        assert status == 200
        assert "bristle_iteration 3\n" in text
        assert 'bristle_samples{class="0",use="held-out"} 10\n' in text
        status, answer = await ask("GET", "/decisions?last=2")
        assert [record["iteration"] for record in answer["decisions"]] == [2, 3]
        for last in ("0", "-1", "x", "501", "9" * 30, "٣"):
            status, answer = await ask("GET", f"/decisions?last={last}")
            assert status == 400
            assert "give a number" in answer["error"]

    served(work)


def test_nothing_without_the_token(served: Callable[..., None], tmp_path: Path) -> None:
    async def work(peer: Peer, ask: Ask) -> None:
        for path in ("/status", "/metrics", "/decisions", "/predict", "/nowhere"):
            for given in ("", "Bearer", "Bearer wrong", "Basic abc", "Bearer ä"):
                status, answer = await ask("GET", path, Authorization=given)
                assert status == 401
                assert "http.token" in answer["error"]
        file = tmp_path / "a" / "http.token"
        assert file.stat().st_mode & 0o777 == 0o600
        assert file.read_text().strip() not in json.dumps(peer.status().to_dict())

    served(work)


@pytest.mark.parametrize("host", ["attacker.example", "attacker.example:80", "localhost.attacker.example", "", "[::1"])
def test_other_names_are_refused(served: Callable[..., None], host: str) -> None:
    async def work(peer: Peer, ask: Ask) -> None:
        status, _ = await ask("GET", "/status", Host=host)
        assert status in (400, 403)
        for good in ("localhost", "localhost:8080", "127.0.0.1", "[::1]:99"):
            assert (await ask("GET", "/status", Host=good))[0] == 200

    served(work)


def test_bad_input_is_the_callers_fault(served: Callable[..., None], digits: Any) -> None:
    async def work(peer: Peer, ask: Ask) -> None:
        for path, body, said in (
            ("/predict", b"nonsense", "not JSON"),
            ("/predict", {"features": [[1, 2]]}, "give [samples, 800]"),
            ("/predict", {"images": [[[1, 2]]]}, "resize"),
            ("/add", {"features": digits.features[:1].tolist()}, "labels must be"),
            ("/add", {"features": digits.features[:1].tolist(), "labels": [10]}, "no class 10"),
            ("/add", {"features": digits.features[:1].tolist(), "labels": ["ten"]}, "no class 'ten'"),
        ):
            status, answer = await ask("POST", path, body)
            assert (status, said in answer["error"]) == (400, True), answer
        assert (await ask("POST", "/predict", b"[" * (MAX_BODY + 1)))[0] == 413
        assert (await ask("GET", "/nowhere"))[0] == 404
        assert (await ask("GET", "/predict"))[0] == 405
        assert (await ask("GET", "/status"))[0] == 200, "it still serves"

    served(work)


def test_the_token_stays_and_the_address_goes(make_peer: Callable[..., Peer], tmp_path: Path) -> None:
    folder = tmp_path / "a"

    async def run() -> str:
        async with make_peer("a") as peer:
            async with HttpEndpoint(peer) as endpoint:
                where = json.loads((folder / "http.json").read_text())
                assert (where["host"], where["port"]) == endpoint.address
                with pytest.raises(ValueError, match="choose another port"):
                    await HttpEndpoint(peer, port=endpoint.address[1]).__aenter__()
            assert not (folder / "http.json").exists()
        return (folder / "http.token").read_text()

    first = asyncio.run(run())
    assert asyncio.run(run()) == first
    (folder / "http.token").write_text("short")
    with pytest.raises(ValueError, match="holds no token"):
        asyncio.run(run())


def test_samples_that_find_no_room_are_not_the_caller_s_fault(served: Callable[..., None], digits: Any) -> None:
    async def work(peer: Peer, ask: Ask) -> None:
        peer._open_state.store._connection.execute("PRAGMA query_only = ON")
        new = {"images": digits.images[-4:].tolist(), "labels": ["9"] * 4}
        status, answer = await ask("POST", "/add", new)
        assert status == 507
        assert "free some space" in answer["error"]
        peer._open_state.store._connection.execute("PRAGMA query_only = OFF")
        assert await ask("POST", "/add", new) == (200, {"added": 4})

    served(work)
