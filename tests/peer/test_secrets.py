"""Keys, the group's secret and the token of the HTTP endpoint are in no log, however much is logged."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bristle import Peer
from bristle.peer.http import HttpEndpoint
from bristle.peer.pace import Pace
from bristle.wire import Identity

SECRET = b"a secret of the group, 32 bytes."


def forms(secret: bytes) -> set[str]:
    """Return how a secret looks in a log: as it is, in hexadecimal, in base 64 at any offset, or as Python does."""
    found = {secret.hex(), secret.hex().upper(), repr(secret)[2:-1], repr(bytearray(secret))[12:-2]}
    for alphabet in (base64.b64encode, base64.urlsafe_b64encode):
        for offset in range(3):
            encoded = alphabet(bytes(offset) + secret).decode()
            found.add(encoded[4 * (offset > 0) : -4])  # What lies beside it changes the ends.
    return {form for form in found if len(form) >= 16}


def test_nothing_secret_is_logged(
    make_peer: Callable[..., Peer],
    digits: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def run() -> None:
        pace = Pace(interval=0.01, check_every=0.02)
        async with (
            make_peer("a", secret=SECRET, pace=pace) as a,
            make_peer("b", secret=SECRET, known=[a.address], pace=pace) as b,
            HttpEndpoint(a) as endpoint,
            aiohttp.ClientSession() as session,
        ):
            a.add(*digits.of(range(7)), features=True)
            b.add(*digits.of(range(3, 10)), features=True)
            await asyncio.gather(a.run(8), b.run(8))
            token = (tmp_path / "a" / "http.token").read_text().strip()
            url = "http://{}:{}".format(*endpoint.address)
            for given in (token, token[:-1], f"{token}x"):
                for path in ("/status", "/metrics", "/nowhere"):
                    async with session.get(url + path, headers={"Authorization": f"Bearer {given}"}) as answer:
                        assert token not in await answer.text()
            # What an error of the program would show of its objects.
            logging.getLogger("bristle.test").error("%r %r %r %r", a, b, endpoint, vars(a))
            logging.getLogger("bristle.test").error("%r %r", a._group, vars(a)["_group"])

    with caplog.at_level(logging.DEBUG):
        asyncio.run(run(), debug=True)
    logged = caplog.text + "".join(capfd.readouterr())
    assert "iteration" in logged, "there is a log to look at"
    token = (tmp_path / "a" / "http.token").read_bytes().strip()
    keys = [Identity.load_or_create(tmp_path / name / "identity.key").secret for name in ("a", "b")]
    for secret in (SECRET, token, *keys):
        for form in forms(secret):
            assert form not in logged


def test_a_secret_that_is_logged_would_be_found() -> None:
    secret = bytes(range(200, 232))
    shown = f"{secret!r} {secret.hex()} {base64.b64encode(b'identity: ' + secret).decode()}"
    assert sum(form in shown for form in forms(secret)) >= 3
