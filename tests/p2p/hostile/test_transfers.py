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


Act = Callable[[Any, Any, "Attacker", tuple[bytes, bytes]], Coroutine[Any, Any, None]]
"""What happens between two honest peers that know each other, a member who means the first no good, and its bodies."""
Stage = Callable[..., None]


@pytest.fixture
def on_stage(on_network: Scenario, wait: Wait, head_of: Heads, attackers: Attackers, bodies_of: Bodies) -> Stage:
    """Play an act: on_stage(group, act, limit=...); after all that happens in it, an honest head has to arrive."""

    def play(group: Group, act: Act, **limits: Any) -> None:
        async def scenario(network: RealNetwork) -> None:
            first = await network.peer(group, limits=Limits(**limits))
            second = await network.peer(group, known=[first.address])
            await wait(lambda: bool(first.neighbours()) and bool(second.neighbours()))
            liar = attackers(group)
            assert await liar.join(first.address)
            await act(first, second, liar, bodies_of(head_of(group, 9)))
            await still_hears(first, second, head_of(group), wait)

        on_network(scenario)

    return play


async def still_hears(first: Any, second: Any, head: Matrix, wait: Wait) -> None:
    """See to it that an honest head arrives."""
    first.take()
    before = first.node.inbox.seen(second.identity.key_id)
    second.share(head, iteration=5)
    await wait(lambda: first.node.inbox.seen(second.identity.key_id) > before)
    np.testing.assert_allclose({one.sender: one.head for one in first.take()}[second.identity.key_id], head, atol=3e-3)


def test_a_transfer_that_drips_is_given_up_and_holds_up_nobody(on_stage: Stage, wait: Wait, large: Group) -> None:
    async def act(first: Any, second: Any, slow: Attacker, bodies: tuple[bytes, bytes]) -> None:
        body, sent = bodies
        sequence, signed = slow.manifest(body)
        slow.say(messages.SignedManifest(1, 512, signed, size=len(sent)))
        await wait(lambda: first.node.inbox.memory == len(sent))
        for index in range(len(sent) // 512):  # A piece now and then: always news, and never the end.
            transfer = messages.transfer_of(sequence, 0)
            slow.say(messages.Piece(transfer, 2 + index, index, sent[512 * index :][:512]))
            await asyncio.sleep(0.1)
            if first.counters.refused.get("transfer too slow"):
                break
        else:
            pytest.fail("it dripped to its end")
        assert first.node.inbox.memory == 0

    on_stage(large, act, patience=0.2)


def test_endless_manifests_hold_one_heads_memory_and_end_in_a_bar(on_stage: Stage, wait: Wait, large: Group) -> None:
    async def act(first: Any, second: Any, liar: Attacker, bodies: tuple[bytes, bytes]) -> None:
        body, sent = bodies
        most = 0
        for count in range(1000):
            liar.say(messages.SignedManifest(1, 4000, liar.manifest(body)[1], size=len(sent)))
            most = max(most, first.node.inbox.memory)
            if count % 20 == 0:
                await asyncio.sleep(0)
            if first.counters.refused.get("too many useless messages"):
                break
        await wait(lambda: first.counters.refused.get("too many useless messages") == 1)
        assert 0 < most <= len(sent)
        assert first.counters.refused["over budget"] > 100
        assert [one.key_id for one in first.neighbours()] == [second.identity.key_id]
        # Its key is known by now; nobody checks its signature.
        with pytest.raises(TimeoutError):
            await liar.join(first.address, seconds=0.3)
        assert first.counters.refused["temporarily banned"] >= 1

    on_stage(large, act, useless_rate=2.0)


def test_forged_chunks_bombs_and_oversize_are_refused(
    on_stage: Stage, wait: Wait, large: Group, bodies_of: Bodies
) -> None:
    async def act(first: Any, second: Any, liar: Attacker, bodies: tuple[bytes, bytes]) -> None:
        body, sent = bodies
        other = bodies_of(np.ones(large.shape, np.float32))[1]
        bomb = zlib.compressobj(9, wbits=-15)
        exploding = bomb.compress(bytes(2**24)) + bomb.flush()
        cases: dict[str, Callable[[], None]] = {
            "chunk does not match its digest": lambda: liar.share((body, other)),
            "decompression bomb": lambda: liar.share((body, exploding)),
            "oversize": lambda: liar.share((body + bytes(1), sent)),
            "body does not decode": lambda: liar.share((body, sent[:-1])),
            "wrong shape": lambda: liar.share(bodies, features=799),
            "forged sender": lambda: liar.share(bodies, author=second.identity.key),
            "wrong group": lambda: liar.share(bodies, group=bytes(20)),
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
    async def act(first: Any, second: Any, member: Attacker, bodies: tuple[bytes, bytes]) -> None:
        assert member.session is not None
        body, sent = bodies
        sequence, signed = member.manifest(body)
        said = [
            member.session.seal(messages.encode(messages.SignedManifest(1, 4000, signed, size=len(sent)))),
            member.session.seal(messages.encode(messages.Piece(messages.transfer_of(sequence, 0), 2, 0, sent))),
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
        member.share(bodies, sequence=sequence - 1)
        await wait(lambda: first.counters.refused["replay"] == 3)
        # A new session of another identity does not make somebody else's words its own.
        assert await listener.join(first.address)
        listener.say(messages.SignedManifest(1, 4000, signed, size=len(sent)))
        await wait(lambda: first.counters.refused.get("forged sender") == 1)
        assert not first.take()

    on_stage(group, act)


def test_lies_about_time_and_progress_change_nothing(on_stage: Stage, wait: Wait, group: Group, head_of: Heads) -> None:
    async def act(first: Any, second: Any, liar: Attacker, bodies: tuple[bytes, bytes]) -> None:
        liar.share(bodies, sequence=2**64 - 1)
        await wait(lambda: first.counters.refused.get("malformed", 0) >= 1)
        # As far as numbers go: its words are kept as its words, and it has silenced nobody but itself.
        liar.share(bodies, sequence=2**63 - 1, iteration=2**32 - 1)
        received: list[Any] = []

        def arrived() -> bool:
            received.extend(first.take())
            return bool(received)

        await wait(arrived)
        assert [(one.iteration, one.sequence) for one in received] == [(2**32 - 1, 2**63 - 1)]
        liar.share(bodies)
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
    on_stage: Stage, wait: Wait, group: Group, head_of: Heads, bodies_of: Bodies
) -> None:
    async def act(first: Any, second: Any, two_faced: Attacker, bodies: tuple[bytes, bytes]) -> None:
        sessions = {first: two_faced.session}
        assert await two_faced.join(second.address)
        sessions[second] = two_faced.session
        heads = {first: head_of(group, 1), second: head_of(group, 2)}
        for peer, head in heads.items():
            two_faced.session, two_faced.target = sessions[peer], peer.address
            two_faced.share(bodies_of(head), sequence=2**42)
        # Nobody compares notes: each judges what it got by its own data, and takes no second head for the same number.
        for peer, head in heads.items():
            received: list[Any] = []
            await wait(lambda peer=peer, received=received: bool(received.extend(peer.take()) or received))
            np.testing.assert_allclose(received[0].head, head, atol=3e-3)
            two_faced.session, two_faced.target = sessions[peer], peer.address
            two_faced.share(bodies, sequence=2**42)
            await asyncio.sleep(0.05)
            assert not peer.take()

    on_stage(group, act)
