"""Bytes that are no HTTP, or nearly, on the endpoint's real socket."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

from bristle import Peer
from bristle.peer.http import HttpEndpoint

REQUESTS = 150
BODY = b'{"features": [[1, 2]], "labels": [0]}'


def changed(request: bytes, rng: random.Random) -> bytes:
    """Return a request with some bytes flipped, taken out, put in or said twice."""
    data = bytearray(request)
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(data))
        match rng.randrange(4):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                del data[at : at + rng.randrange(1, 20)]
            case 2:
                data[at:at] = rng.choice(
                    (b"\r\n", b"\r\n\r\n", b"\x00", b"\xff\xfe", b": ", b"chunked", rng.randbytes(5))
                )
            case _:
                data[at:at] = data[at : at + rng.randrange(1, 40)]
        data = data or bytearray(b"x")
    return bytes(data)


async def told(address: tuple[str, int], request: bytes, *, patience: float = 30) -> bytes:
    """Send bytes and return how the answer begins; nothing, if the endpoint still waits for the rest of them."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(request)
        return await asyncio.wait_for(reader.read(64), patience)
    except (ConnectionError, TimeoutError):
        return b""
    finally:
        writer.close()


def test_no_bytes_bring_the_endpoint_down(make_peer: Callable[..., Peer], tmp_path: Path) -> None:
    async def run() -> None:
        async with make_peer("a") as peer, HttpEndpoint(peer) as endpoint:
            token = (tmp_path / "a" / "http.token").read_text().strip()
            start = f"POST /add HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n".encode()
            plain = start + b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
            pieces = start + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
            query = b"GET /decisions?last=1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \xff\xfe\r\n\r\n"
            assert (await told(endpoint.address, plain)).startswith(b"HTTP/1.1 400"), "two features are too few"
            assert (await told(endpoint.address, query)).startswith(b"HTTP/1.1 401")
            rng = random.Random(1)
            requests = [changed(rng.choice((plain, pieces, query)), rng) for _ in range(REQUESTS)]
            answers = await asyncio.gather(*(told(endpoint.address, each, patience=2) for each in requests))
            statuses = {answer[9:10] for answer in answers}
            assert b"4" in statuses
            assert b"5" not in statuses
            status = b"GET /status HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n" % token.encode()
            assert (await told(endpoint.address, status)).startswith(b"HTTP/1.1 200"), "it still serves"

    asyncio.run(run())
