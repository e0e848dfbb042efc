"""A peer written from the page of the wire format alone joins live groups: it sends a head, and takes one."""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import json
import sys
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from bristle import Peer
from bristle.p2p import Limits
from bristle.wire import Group
from bristle.wire.messages import Address

if TYPE_CHECKING:
    from tests.support.network import Matrix, RealNetwork

Scenario = Callable[[Callable[["RealNetwork"], Awaitable[None]]], None]
Wait = Callable[..., Coroutine[Any, Any, None]]
Heads = Callable[..., "Matrix"]

VECTORS = Path(__file__).parents[2] / "docs" / "wire-format-vectors.json"
SECOND = Path(__file__).with_name("second_peer.py")
SMALL_DATAGRAMS = Limits(loopback_datagram=1232)


def test_it_knows_nothing_of_our_code() -> None:
    tree = ast.parse(SECOND.read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    others = {name.split(".")[0] for name in names} - set(sys.stdlib_module_names)
    assert others == {"cryptography"}


def test_it_finds_the_values_of_the_vectors() -> None:
    spec = importlib.util.spec_from_file_location("second_peer", SECOND)
    assert spec is not None
    assert spec.loader is not None
    second = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(second)
    vectors = json.loads(VECTORS.read_text(encoding="utf-8"))
    for each in vectors["groups"]:
        secret = None if each["secret"] is None else bytes.fromhex(each["secret"])
        group = second.Group(each["application"], each["backbone"], each["classes"], each["features"], secret)
        assert (group.k.hex(), group.id.hex()) == (each["k"], each["id"])
        assert group.proof(b"purpose", b"challenge").hex() == each["proof('purpose', 'challenge')"]
    said = vectors["handshake"]
    shared = bytes.fromhex(said["shared"]) + group.k
    transcript = sha256(bytes.fromhex(said["join"] + said["welcome"])).digest()
    assert transcript.hex() == said["transcript"]
    keys = [second.hkdf(transcript, shared, b"bristle 2 key of the " + side) for side in (b"caller", b"called")]
    assert [key.hex() for key in keys] == [said["key of the caller"], said["key of the called"]]
    caller = second.Session(*keys, b"anne", b"bert")
    assert [caller.seal(text).hex() for text in (b"hello", b"again")] == said["sealed by the caller: 'hello', 'again'"]
    assert [caller.open(bytes.fromhex(each)) for each in said["sealed by the called: 'hello'"]] == [b"hello"]


async def second_peer(address: Address, group: Group, head: Matrix, iteration: int) -> dict[str, Any]:
    host, port = address
    wanted = {
        **json.loads(group.to_json()),
        "secret": None if group.secret is None else group.secret.hex(),
        "host": host,
        "port": port,
        "values": head.ravel().tolist(),
        "iteration": iteration,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", str(SECOND), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate(json.dumps(wanted).encode())
    assert process.returncode == 0
    found: dict[str, Any] = json.loads(said)
    return found


@pytest.mark.parametrize("secret", [None, b"sixteen bytes or more"])
@pytest.mark.parametrize("limits", [Limits(), SMALL_DATAGRAMS])
def test_a_peer_written_from_the_page_joins_a_live_group_and_exchanges(
    on_network: Scenario, wait: Wait, large: Group, head_of: Heads, secret: bytes | None, limits: Limits
) -> None:
    group = replace(large, secret=secret)

    async def scenario(network: RealNetwork) -> None:
        first = await network.peer(group, limits=limits)
        other = await network.peer(group, limits=limits, known=[first.address])
        await wait(lambda: bool(first.neighbours() and other.neighbours()))
        first.share(head_of(group, 1), iteration=7)
        # A head of 32,000 bytes: many pieces in each direction, compressed in one, and several chunks.
        found = await second_peer(first.address, group, head_of(group, 2), 9)
        await wait(lambda: any(head.iteration == 9 for head in first.node.inbox._heads.values()))
        (heard,) = first.take()
        assert heard.sender.hex() == found["key id"]
        np.testing.assert_array_equal(heard.head, head_of(group, 2))
        assert (heard.iteration, heard.claims) == (9, None)
        head = found["head"]
        assert (head["author"], head["iteration"]) == (first.identity.key.hex(), 7)
        np.testing.assert_array_equal(np.array(head["values"], np.float32).reshape(group.shape), head_of(group, 1))
        assert not first.counters.refused
        await wait(lambda: [each.key_id for each in first.neighbours()] == [other.identity.key_id])

    on_network(scenario)


def test_a_live_peer_learns_with_it(make_peer: Callable[..., Peer], digits: Any, wait: Wait) -> None:
    """A whole `Peer`, with its store and its rule, takes the head into an iteration, and shares its own."""

    async def run() -> None:
        async with make_peer("a") as peer:
            peer.add(*digits.of(range(10)), features=True)
            await peer.run(1)
            group = peer._group
            speaking = asyncio.ensure_future(second_peer(peer.address, group, np.zeros(group.shape, np.float32), 3))
            await wait(lambda: bool(peer.status().neighbours) or speaking.done())
            while not speaking.done():
                await peer.run(1)
            await peer.run(1)
            found = await speaking
            heard = [one for record in peer.decisions() for one in record.heard]
            assert any(one.sender == found["key id"] and one.iteration == 3 for one in heard)
            assert np.isfinite(found["head"]["values"]).all()
            assert found["head"]["iteration"] >= 1

    asyncio.run(run())
