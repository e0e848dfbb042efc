"""A peer written from the page of the wire format alone joins live groups: it sends a head, and takes one."""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import json
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from bristle import Peer
from bristle.p2p import Limits
from bristle.wire import Group, Identity
from bristle.wire.grid import GridHead, on_grid
from bristle.wire.messages import Address
from bristle.wire.statements import sign_statement
from tests.p2p.test_statements import statement_of

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


async def second_peer(address: Address, group: Group, head: Matrix, iteration: int, **more: object) -> dict[str, Any]:
    host, port = address
    wanted = {
        **json.loads(group.to_json()),
        "secret": None if group.secret is None else group.secret.hex(),
        "host": host,
        "port": port,
        "values": head.ravel().tolist(),
        "iteration": iteration,
        "count": 3,
        **more,
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
        head: Any = head_of(group, 1)
        heads: list[GridHead] = []
        heads.append(on_grid(head))
        first.share(head, iteration=1)
        # A head of 8,000 numbers: several pieces in each direction where datagrams are small, and several chunks.
        speaking = asyncio.ensure_future(second_peer(first.address, group, head_of(group, 2), 9))
        for iteration in (2, 3):
            await wait(lambda count=iteration: first.counters.heads_out == 2 * (count - 1))
            head = head + head_of(group, iteration) / 30
            heads.append(on_grid(head, heads[-1]))
            first.share(head, iteration=iteration)
        found = await speaking
        await wait(lambda: first.node.inbox.waiting)
        (heard,) = first.take()
        assert heard.sender.hex() == found["key id"]
        np.testing.assert_allclose(heard.head, head_of(group, 2), atol=2**-10)
        assert (heard.iteration, heard.claims) == (9, None)
        assert [(each["author"], each["iteration"]) for each in found["heads"]] == [
            (first.identity.key.hex(), iteration) for iteration in (1, 2, 3)
        ]
        assert [each["base"] for each in found["heads"]] == [0, *(each["sequence"] for each in found["heads"][:2])]
        for each, public in zip(found["heads"], heads, strict=True):
            np.testing.assert_array_equal(np.array(each["values"]).reshape(group.shape), public.values())
        assert not first.counters.refused
        await wait(lambda: [each.key_id for each in first.neighbours()] == [other.identity.key_id])

    on_network(scenario)


@pytest.mark.parametrize("limits", [Limits(), SMALL_DATAGRAMS])
def test_it_passes_statements_and_gets_those_of_others(
    on_network: Scenario, wait: Wait, large: Group, limits: Limits
) -> None:
    """Its statement reaches somebody who is no neighbour of its, and the other way round; a renewal and a proof too."""
    classes, features = large.shape
    means = np.zeros(large.shape)
    means[3] = np.arange(features) % 7
    said = {"counts": [25 * (at == 3) for at in range(classes)], "means": means.tolist(), "diagonal": [1.0] * features}

    async def scenario(network: RealNetwork) -> None:
        first = await network.peer(large, limits=limits)
        other = await network.peer(large, limits=limits, known=[first.address])
        await wait(lambda: bool(first.neighbours() and other.neighbours()))
        expires = int(time.time()) + 3600
        stated = statement_of(large, rank=8)
        other.publish(other.sign_statement(stated, number=7, expires=expires))
        later = other.renew(expires + 3600).expires
        liar = Identity.generate()
        for seed in (1, 2):
            number = sign_statement(statement_of(large, seed), number=5, expires=expires, identity=liar, group=large)
            (first if seed == 1 else other).restore(number)
        await wait(lambda: first.equivocators() == other.equivocators() == {liar.key_id})
        await wait(lambda: bool(first.statements()) and first.statements()[0].expires == later)
        speaking = second_peer(
            first.address, large, np.zeros(large.shape, np.float32), 1, count=0, statement=said, statements=2
        )
        found = await speaking
        heard = found["statements"][other.identity.key_id.hex()]
        assert (heard["number"], heard["expires"], heard["renewals"]) == (7, later, 1)
        counts = np.asarray(stated.counts)
        np.testing.assert_array_equal(heard["counts"], counts)
        lines = np.concatenate([np.asarray(stated.rows)[counts > 0], stated.factors, np.asarray(stated.diagonal)[None]])
        np.testing.assert_array_equal(heard["lines"], lines)
        assert found["statements"][liar.key_id.hex()] == {"number": 2**64 - 1, "convicted": True}
        # Gone by now, it is heard by somebody who never met it.
        await wait(lambda: [each.author.hex() for each in other.statements()] == [found["key id"]])
        (passed,) = other.statements()
        np.testing.assert_array_equal(passed.statement.rows, means)
        assert passed.source == first.identity.key_id

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
            assert len(found["heads"]) == 3
            assert all(np.isfinite(head["values"]).all() for head in found["heads"])
            assert found["heads"][0]["iteration"] >= 1

    asyncio.run(run())
