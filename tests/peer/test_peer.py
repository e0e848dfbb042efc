from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bristle import Peer, rules
from bristle.p2p import Overlay
from bristle.peer.pace import Pace
from bristle.peer.record import Turn
from bristle.peer.store_files import StoreError, is_running
from bristle.wire import Group, Identity

MakePeer = Callable[..., Peer]


def test_two_peers_teach_each_other(make_peer: MakePeer, digits: Any) -> None:
    turns: dict[str, list[Turn]] = {"a": [], "b": []}

    async def run() -> None:
        async with (
            make_peer("a", on_iteration=turns["a"].append) as a,
            make_peer("b", known=[a.address], on_iteration=turns["b"].append) as b,
        ):
            assert a.add(*digits.of(range(7)), features=True) == 210
            b.add(*digits.of(range(3, 10)), features=True)
            await asyncio.gather(a.run(60), b.run(60))
            assert a.iteration == b.iteration == 60
            assert {one.key_id for one in a.status().neighbours} == {b.key_id}
            images = digits.images[::30]
            probabilities = a.probabilities(images)
            np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
            np.testing.assert_array_equal(a.predict(images), probabilities.argmax(axis=1))
            counters = a.status().counters
            assert counters["heads_in"] > 5
            assert counters["bytes_out"] > 5 * 3_000
        # What was learnt can be used after the network is left.
        assert (a.predict(digits.test[0], features=True) == digits.test[1]).mean() > 0.78

    asyncio.run(run())
    for name in ("a", "b"):
        last = turns[name][-1]
        assert last.record.iteration == 60
        assert last.record.accuracy is not None
        assert last.record.accuracy > 0.78, "seven of ten classes alone are worth little more than 0.7"
        assert last.shared
        heard = [turn for turn in turns[name] if turn.senders]
        assert any(turn.decision.weights.max() > 0 for turn in heard)
        assert all(len(turn.record.heard) == len(turn.senders) for turn in heard)


def test_a_restart_goes_on_where_it_stopped(make_peer: MakePeer, digits: Any) -> None:
    async def first() -> tuple[np.ndarray, str, Any]:
        async with make_peer("a") as peer:
            peer.add(*digits.of([0, 1, 2]), features=True)
            await peer.run(5)
            return peer.head.copy(), peer.key_id, peer.status()

    async def second() -> None:
        async with make_peer("a") as peer:
            assert (peer.iteration, peer.key_id) == (5, key_id)
            np.testing.assert_array_equal(peer.head, head)
            assert peer.status().samples == status.samples
            assert [record.iteration for record in peer.decisions()] == [1, 2, 3, 4, 5]
            assert peer.add(*digits.of([0, 1, 2]), features=True) == 0, "samples that are there are not added again"
            await peer.run(1)
            assert peer.iteration == 6

    head, key_id, status = asyncio.run(first())
    asyncio.run(second())


def test_a_restart_changes_nothing_about_what_is_learnt(make_peer: MakePeer, digits: Any) -> None:
    async def learn(name: str, pieces: list[int]) -> np.ndarray:
        for piece in pieces:
            async with make_peer(name, seed=7) as peer:
                peer.add(*digits.of([0, 1, 2]), features=True)
                await peer.run(piece)
        return peer.head

    whole = asyncio.run(learn("a", [6]))
    parts = asyncio.run(learn("b", [1, 3, 2]))
    np.testing.assert_array_equal(whole, parts)


def test_data_keep_coming(make_peer: MakePeer, digits: Any) -> None:
    async def run() -> None:
        async with make_peer("a") as peer:
            await peer.run(2)
            assert not peer.decisions()[-1].trained
            running = asyncio.create_task(peer.run())
            for start in range(0, 300, 60):
                part = slice(start, start + 60)
                added = await asyncio.to_thread(peer.add, digits.images[part], digits.labels[part].astype(str))
                assert added == 60
                await asyncio.sleep(0.05)
            goal = peer.iteration + 40
            while peer.iteration < goal:
                await asyncio.sleep(0.01)
            peer.stop()
            await running
            assert [(one.training, one.held_out) for one in peer.status().samples] == [(20, 10)] * 10
            accuracy = peer.status().accuracy
            assert accuracy is not None
            assert accuracy > 0.6

    asyncio.run(run())


def test_a_peer_waits_for_its_condition(make_peer: MakePeer) -> None:
    allowed, asked = False, 0

    def permission() -> bool:
        nonlocal asked
        asked += 1
        return allowed

    pace = Pace(interval=0, check_every=0.01, train_when=permission)

    async def wait_for_permission() -> None:
        nonlocal allowed
        async with make_peer("a", pace=pace) as peer:
            running = asyncio.create_task(peer.run(3))
            while asked < 3:
                await asyncio.sleep(0.01)
            assert peer.iteration == 0
            assert peer.status().waiting == "trains only permission"
            allowed = True
            await running
            assert peer.iteration == 3

    asyncio.run(wait_for_permission())


def test_a_byte_cap_holds_over_restarts(make_peer: MakePeer, digits: Any) -> None:
    cap = 20_000

    async def share(iterations: int) -> tuple[list[bool], int, str | None]:
        turns: list[Turn] = []
        pace = Pace(interval=0.01, bytes_per_day=cap)
        async with (
            make_peer("quiet", pace=pace, on_iteration=turns.append) as quiet,
            make_peer("other", known=[quiet.address]) as other,
        ):
            quiet.add(*digits.of([0, 1]), features=True)
            while not other.status().neighbours or not quiet.status().neighbours:
                await asyncio.sleep(0.01)
            await quiet.run(iterations)
            status = quiet.status()
            return [turn.shared for turn in turns], status.bytes_last_day, status.waiting

    shared, spent, waiting = asyncio.run(share(40))
    assert shared[0]
    assert not shared[-1]
    assert spent <= cap
    assert waiting == "has sent as many bytes as it may"
    shared, spent, _ = asyncio.run(share(3))
    assert not any(shared)
    assert spent <= cap


def test_send_when_says_no_others_hear_nothing(make_peer: MakePeer, digits: Any) -> None:
    def never() -> bool:
        return False

    async def run() -> None:
        async with (
            make_peer("quiet", pace=Pace(interval=0.01, send_when=never)) as quiet,
            make_peer("other", known=[quiet.address]) as other,
        ):
            quiet.add(*digits.of([0, 1]), features=True)
            while not other.status().neighbours:
                await asyncio.sleep(0.01)
            while not quiet.status().counters["heads_in"]:
                await asyncio.gather(quiet.run(10), other.run(10))
            assert quiet.head.any()
            assert other.status().counters["heads_in"] == 0
            assert quiet.status().waiting == "sends only never"

    asyncio.run(run())


def test_noise_is_on_what_is_shared_and_not_on_the_own_head(make_peer: MakePeer, digits: Any) -> None:
    async def run() -> None:
        async with make_peer("a", share_clip=1.0, share_noise=10.0, pace=Pace(interval=3600)) as peer:
            peer.add(*digits.of([0, 1]), features=True)
            group = Group(application="digits", backbone=digits.backbone.digest, classes=peer.classes, features=800)
            listener = Overlay(identity=Identity.generate(), group=group, known=[peer.address])
            await listener.start()
            running = asyncio.create_task(peer.run(1))
            await listener.arrival()
            (received,) = listener.take()
            await listener.stop()
            await running
            assert 9 < np.linalg.norm(received.head[0]) < 11
            assert np.linalg.norm(peer.head[0]) < 1

    asyncio.run(run())


def test_stop_ends_a_long_wait(make_peer: MakePeer) -> None:
    async def run() -> None:
        async with make_peer("a", pace=Pace(interval=3600)) as peer:
            running = asyncio.create_task(peer.run())
            while peer.iteration < 1:
                await asyncio.sleep(0.01)
            peer.stop()
            await running
            assert peer.iteration == 1

    asyncio.run(run())


def test_a_run_after_a_stop_goes_on(make_peer: MakePeer) -> None:
    async def run() -> None:
        async with make_peer("a", pace=Pace(interval=0)) as peer:
            peer.stop()  # Nothing runs, so nothing ends.
            await peer.run(2)
            assert peer.iteration == 2
            task = asyncio.create_task(peer.run())
            peer.stop()  # Before the task has begun.
            await task
            assert peer.iteration == 2
            await peer.run(3)
            assert peer.iteration == 5
        async with peer:  # Once more, in the same folder.
            await peer.run(1)
            assert peer.iteration == 6

    asyncio.run(run())


def test_a_peer_says_once_that_it_learns_alone(
    make_peer: MakePeer, digits: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def said() -> list[str]:
        return [record.__dict__["details"]["why"] for record in caplog.records if record.message == "learns alone"]

    async def run() -> None:
        async with make_peer("a") as peer:
            await peer.run(3)
            (why,) = said()
            assert why.startswith("this peer learns alone until it has more data; too few held-out samples")
            assert "needs 10 held-out samples of a class, the most of any class is 0" in why
            peer.add(*digits.of([0]), features=True)
            await peer.run(2)
        async with make_peer("b", rule=rules.create("fedavg")) as tests_nothing:
            await tests_nothing.run(2)
        assert len(said()) == 1

    asyncio.run(run())


def test_a_peer_has_a_key_id_before_it_starts(make_peer: MakePeer) -> None:
    async def run() -> None:
        peer = make_peer("a")
        before = peer.key_id
        with pytest.raises(ValueError, match="has not been started"):
            _ = peer.iteration
        async with peer:
            assert peer.key_id == before == peer.status().key_id
        assert make_peer("a").key_id == before

    asyncio.run(run())


def test_a_cancelled_run_leaves_a_whole_store(make_peer: MakePeer, digits: Any) -> None:
    async def run() -> int:
        async with make_peer("a", pace=Pace(interval=0)) as peer:
            peer.add(*digits.of([0, 1]), features=True)
            running = asyncio.create_task(peer.run())
            while peer.iteration < 2:
                await asyncio.sleep(0.01)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        return peer.iteration

    async def look() -> int:
        async with make_peer("a") as peer:
            return peer.iteration

    assert asyncio.run(run()) == asyncio.run(look()) > 0


@pytest.mark.parametrize(("name", "reason"), [("krum", "too-few-models"), ("fedavg", "kept"), ("local", "not-used")])
def test_any_rule_serves(make_peer: MakePeer, digits: Any, name: str, reason: str) -> None:
    async def run() -> None:
        async with (
            make_peer("a", rule=rules.create(name)) as a,
            make_peer("b", rule=rules.create(name), known=[a.address]) as b,
        ):
            a.add(*digits.of([0, 1]), features=True)
            b.add(*digits.of([2, 3]), features=True)
            while not b.status().neighbours:
                await asyncio.sleep(0.01)
            heard: list[str] = []
            while not heard:
                await asyncio.gather(a.run(8), b.run(8))
                heard = [one.reason for record in b.decisions() for one in record.heard]
            assert set(heard) == {reason}

    asyncio.run(run())


def test_closed_groups_do_not_hear_outsiders(make_peer: MakePeer, digits: Any) -> None:
    async def run() -> None:
        secret = b"a secret of twenty-two"
        async with (
            make_peer("a", secret=secret) as a,
            make_peer("b", secret=secret, known=[a.address]) as b,
            make_peer("outsider", known=[a.address, b.address]) as outsider,
        ):
            for peer in (a, b, outsider):
                peer.add(*digits.of([0, 1]), features=True)
            while not b.status().neighbours:
                await asyncio.sleep(0.01)
            while not b.status().counters["heads_in"]:
                await asyncio.gather(a.run(10), b.run(10), outsider.run(10))
            assert not outsider.status().neighbours
            assert outsider.status().counters["heads_in"] == 0

    asyncio.run(run())


def test_one_folder_one_peer(make_peer: MakePeer, tmp_path: Path) -> None:
    async def run() -> None:
        async with make_peer("a"):
            assert is_running(tmp_path / "a")
            with pytest.raises(StoreError, match="running in"):
                await make_peer("a").__aenter__()
        assert not is_running(tmp_path / "a")
        with pytest.raises(StoreError, match="another group"):
            await make_peer("a", application="letters").__aenter__()
        assert not is_running(tmp_path / "a"), "a peer that could not start gives its folder up"
        assert (tmp_path / "a").stat().st_mode & 0o077 == 0

    asyncio.run(run())


def test_mistakes_get_one_clear_error(make_peer: MakePeer, digits: Any) -> None:
    with pytest.raises(ValueError, match="two different names"):
        make_peer("a", classes=("x",))
    with pytest.raises(ValueError, match="classes must be a list of names, not the text 'cats'"):
        make_peer("a", classes="cats")
    with pytest.raises(ValueError, match=r"rule must be a Rule, not 'evidence': make one with rules\.create"):
        make_peer("a", rule="evidence")
    with pytest.raises(ValueError, match=r"known has '192\.0\.2\.7:7700': give pairs of host and port"):
        make_peer("a", known=["192.0.2.7:7700"])
    with pytest.raises(ValueError, match="test set"):
        make_peer("a", test=(np.zeros((3, 4)), [0, 1, 2]))
    with pytest.raises(ValueError, match="interval=-1"):
        Pace(interval=-1)
    with pytest.raises(ValueError, match="has not been started"):
        make_peer("a").add(digits.images[:1], [0])

    async def run() -> None:
        async with make_peer("a") as peer:
            for x, y, said in (
                (digits.images[:2], [0], "labels of shape"),
                (digits.images[:1], [10], "no class 10"),
                (digits.images[:1], ["ten"], "no class 'ten'"),
                (digits.images[:1], [0.5], "class number"),
                (digits.images[:1, :5], [0], "resize"),
            ):
                with pytest.raises(ValueError, match=said):
                    peer.add(x, y)
            with pytest.raises(ValueError, match=r"give \[samples, 800\]"):
                peer.add(np.zeros((1, 7)), [0], features=True)
            with pytest.raises(ValueError, match="finite"):
                peer.add(np.full((1, 800), np.nan), [0], features=True)
            assert len(peer.predict(digits.images[:0])) == 0
            host, port = peer.address
            with pytest.raises(ValueError, match=f"cannot listen on {host}:{port}"):
                await make_peer("b", listen=(host, port)).__aenter__()
        with pytest.raises(ValueError, match="not running"):
            peer.add(digits.images[:1], [0])

    asyncio.run(run())
