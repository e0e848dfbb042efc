"""Members that send what they should not, over real sockets: slow, endless, forged, replayed, blown up, and lies."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from bristle.p2p import Limits
from bristle.wire import Group, messages

if TYPE_CHECKING:
    from tests.support.hostile import Attacker, Attackers, Bodies, Heads, Scenario, Wait
    from tests.support.network import Matrix, RealNetwork


Act = Callable[[Any, Any, "Attacker", bytes], Coroutine[Any, Any, None]]
"""What happens between two honest peers that know each other, a member who means the first no good, and its body."""
Stage = Callable[..., None]


@pytest.fixture
def on_stage(on_network: Scenario, wait: Wait, head_of: Heads, attackers: Attackers, body_of: Bodies) -> Stage:
    """Play an act: on_stage(group, act, limit=...); after all that happens in it, an honest head has to arrive."""

    def play(group: Group, act: Act, **limits: Any) -> None:
        async def scenario(network: RealNetwork) -> None:
            first = await network.peer(group, limits=Limits(**limits))
            second = await network.peer(group, known=[first.address])
            await wait(lambda: bool(first.neighbours()) and bool(second.neighbours()))
            liar = attackers(group)
            assert await liar.join(first.address)
            await act(first, second, liar, body_of(head_of(group, 9)))
            await still_hears(first, second, head_of(group), wait)

        on_network(scenario)

    return play


async def still_hears(first: Any, second: Any, head: Matrix, wait: Wait) -> None:
    """See to it that an honest head arrives."""
    first.take()
    before = first.node.inbox.seen(second.identity.key_id)
    second.share(head, iteration=5)
    await wait(lambda: first.node.inbox.seen(second.identity.key_id) > before)
    np.testing.assert_array_equal({one.sender: one.head for one in first.take()}[second.identity.key_id], head)


def test_a_transfer_that_drips_is_given_up_and_holds_up_nobody(on_stage: Stage, wait: Wait, large: Group) -> None:
    async def act(first: Any, second: Any, slow: Attacker, body: bytes) -> None:
        sequence, signed = slow.manifest(body)
        slow.say(messages.SignedManifest(1, 512, signed))
        await wait(lambda: first.node.inbox.memory == len(body))
        for index in range(len(body) // 512):  # A piece now and then: always news, and never the end.
            slow.say(messages.Piece(sequence, 2 + index, index, body[512 * index :][:512]))
            await asyncio.sleep(0.04)
            if first.counters.refused.get("transfer too slow"):
                break
        else:
            pytest.fail("it dripped to its end")
        assert first.node.inbox.memory == 0

    on_stage(large, act, patience=0.2)


def test_endless_manifests_hold_one_heads_memory_and_end_in_a_bar(on_stage: Stage, wait: Wait, large: Group) -> None:
    async def act(first: Any, second: Any, liar: Attacker, body: bytes) -> None:
        most = 0
        for count in range(1000):
            liar.say(messages.SignedManifest(1, 4000, liar.manifest(body)[1]))
            most = max(most, first.node.inbox.memory)
            if count % 20 == 0:
                await asyncio.sleep(0)
            if first.counters.refused.get("too many useless messages"):
                break
        await wait(lambda: first.counters.refused.get("too many useless messages") == 1)
        assert 0 < most <= len(body)
        assert first.counters.refused["over budget"] > 100
        assert [one.key_id for one in first.neighbours()] == [second.identity.key_id]
        # Its key is known by now; nobody checks its signature.
        with pytest.raises(TimeoutError):
            await liar.join(first.address, seconds=0.3)
        assert first.counters.refused["temporarily banned"] >= 1

    on_stage(large, act, useless_rate=2.0)


def test_forged_chunks_bombs_and_oversize_are_refused(
    on_stage: Stage, wait: Wait, large: Group, body_of: Bodies
) -> None:
    async def act(first: Any, second: Any, liar: Attacker, body: bytes) -> None:
        flipped = body[:20_000] + bytes([body[20_000] ^ 1]) + body[20_001:]
        bomb = zlib.compress(bytes(2**24), 9)
        not_finite = body_of(np.zeros(large.shape, np.float32)).replace(b"\x00", b"\xff")
        cases: dict[str, Callable[[], None]] = {
            "chunk does not match its digest": lambda: liar.share(body, altered=flipped),
            "decompression bomb": lambda: liar.share(bomb, compression=1),
            "oversize": lambda: liar.share(body + bytes(1)),
            "body does not decode": lambda: liar.share(body[:-1]),
            "not finite": lambda: liar.share(not_finite),
            "wrong shape": lambda: liar.share(body, features=799),
            "forged sender": lambda: liar.share(body, author=second.identity.key),
            "wrong group": lambda: liar.share(body, group=bytes(20)),
        }
        for refusal, share in cases.items():
            share()
            await wait(lambda refusal=refusal: first.counters.refused.get(refusal, 0) >= 1)
        liar.send(b"\xb5" + bytes(20_000))
        await wait(lambda: first.counters.refused["oversize"] == 2)
        assert not first.take()
        assert first.node.inbox.memory == 0

    on_stage(large, act)


def test_what_was_said_before_is_not_heard_again(
    on_stage: Stage, wait: Wait, group: Group, attackers: Attackers
) -> None:
    async def act(first: Any, second: Any, member: Attacker, body: bytes) -> None:
        assert member.session is not None
        sequence, signed = member.manifest(body)
        said = [
            member.session.seal(messages.encode(messages.SignedManifest(1, 4000, signed))),
            member.session.seal(messages.encode(messages.Piece(sequence, 2, 0, body))),
        ]
        for datagram in said:
            member.send(datagram)
        await wait(lambda: len(first.take()) == 1)
        # By whoever listened, from the same address and from another one; and by its author, sealed anew.
        for datagram in said:
            member.send(datagram)
        await wait(lambda: first.counters.refused.get("replay") == 2)
        listener = attackers(group)
        listener.target = first.address
        for datagram in said:
            listener.send(datagram)
        await wait(lambda: first.counters.refused.get("unknown session") == 2)
        member.share(body, sequence=sequence - 1)
        await wait(lambda: first.counters.refused["replay"] == 3)
        # A new session of another identity does not make somebody else's words its own.
        assert await listener.join(first.address)
        listener.say(messages.SignedManifest(1, 4000, signed))
        await wait(lambda: first.counters.refused.get("forged sender") == 1)
        assert not first.take()

    on_stage(group, act)


def test_lies_about_time_and_progress_change_nothing(on_stage: Stage, wait: Wait, group: Group, head_of: Heads) -> None:
    async def act(first: Any, second: Any, liar: Attacker, body: bytes) -> None:
        # As far as numbers go: its words are kept as its words, and it has silenced nobody but itself.
        liar.share(body, sequence=2**64 - 1, iteration=2**32 - 1)
        received: list[Any] = []

        def arrived() -> bool:
            received.extend(first.take())
            return bool(received)

        await wait(arrived)
        assert [(one.iteration, one.sequence) for one in received] == [(2**32 - 1, 2**64 - 1)]
        liar.share(body)
        await wait(lambda: first.counters.refused.get("replay") == 1)
        # That we were seen at the end of all numbers: believed, it would leave us nothing to count with.
        before = first.node.outbox.next_sequence
        for seen in (2**64 - 1, 2**63 - 1, 2**50):
            liar.say(messages.Peers(seen))
        await still_hears(first, second, head_of(group, 1), wait)
        assert first.node.outbox.next_sequence == before
        # That a clock went back is believed.
        liar.say(messages.Peers(before + 1000))
        await wait(lambda: first.node.outbox.next_sequence == before + 1001)

    on_stage(group, act)


def test_an_equivocator_is_heard_by_each_as_it_speaks_to_each(
    on_stage: Stage, wait: Wait, group: Group, head_of: Heads, body_of: Bodies
) -> None:
    async def act(first: Any, second: Any, two_faced: Attacker, body: bytes) -> None:
        sessions = {first: two_faced.session}
        assert await two_faced.join(second.address)
        sessions[second] = two_faced.session
        heads = {first: head_of(group, 1), second: head_of(group, 2)}
        for peer, head in heads.items():
            two_faced.session, two_faced.target = sessions[peer], peer.address
            two_faced.share(body_of(head), sequence=2**42)
        # Nobody compares notes: each judges what it got by its own data, and takes no second head for the same number.
        for peer, head in heads.items():
            received: list[Any] = []
            await wait(lambda peer=peer, received=received: bool(received.extend(peer.take()) or received))
            np.testing.assert_array_equal(received[0].head, head)
            two_faced.session, two_faced.target = sessions[peer], peer.address
            two_faced.share(body, sequence=2**42)
            await asyncio.sleep(0.05)
            assert not peer.take()

    on_stage(group, act)
