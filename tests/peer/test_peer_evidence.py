"""Live peers that exchange evidence."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from rich.console import Console

from bristle import Head, Peer, load_head, rules, save_head
from bristle.backbones import Backbone, export_classifier
from bristle.commands.status import show
from bristle.p2p import Overlay
from bristle.p2p.statements import ReceivedStatement
from bristle.peer.pace import Pace
from bristle.peer.record import Turn
from bristle.wire import Group, Identity

MakePeer = Callable[..., Peer]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.01)


def check_forms(head: Head, backbone: Backbone, images: Any, folder: Path) -> None:
    """Check that a head with bias predicts the same as safetensors, as ONNX and as a layer of torch."""
    features = backbone(images)
    expected = head.scores(features)
    assert head.bias is not None
    assert np.abs(head.bias).max() > 0.01
    again = load_head(save_head(folder / "head.safetensors", head))
    np.testing.assert_array_equal(again.scores(features), expected)
    layer = again.to_linear()
    with torch.no_grad():
        linear = layer(torch.from_numpy(features)).numpy()
    back = Head.from_linear(layer, classes=head.classes, backbone=backbone)
    session = onnxruntime.InferenceSession(export_classifier(backbone, back, folder / "classifier.onnx"))
    logits = session.run(["logits"], {session.get_inputs()[0].name: images})[0]
    for scores in (linear, logits):
        np.testing.assert_allclose(scores, expected, atol=1e-4)
        np.testing.assert_array_equal(scores.argmax(axis=1), expected.argmax(axis=1))


def test_two_peers_learn_from_one_statement_each(make_peer: MakePeer, digits: Any, tmp_path: Path) -> None:
    turns: list[Turn] = []

    async def run() -> None:
        evidence = rules.create("evidence")
        async with (
            make_peer("a", rule=evidence, on_iteration=turns.append) as a,
            make_peer("b", rule=evidence, known=[a.address]) as b,
        ):
            a.add(*digits.of(range(7)), features=True)
            b.add(*digits.of(range(3, 10)), features=True)
            running = [asyncio.create_task(peer.run()) for peer in (a, b)]
            await until(lambda: all(peer.status().decided is not None for peer in (a, b)))
            for peer, other in ((a, b), (b, a)):
                status = peer.status()
                assert status.accuracy is not None
                assert status.accuracy > 0.85, "seven of ten classes alone are worth little more than 0.7"
                assert (status.counters["statements_in"], status.counters["heads_in"]) == (1, 0)
                assert status.decided is not None
                (heard,) = status.decided.heard
                assert heard.sender == other.key_id
                assert {one.label: one.count for one in heard.classes} == dict.fromkeys(
                    range(7) if other is a else range(3, 10), 30
                )
            screen = Console(width=150, record=True, file=io.StringIO())
            show(a.status(), screen)
            told = screen.export_text()
            assert "Statements weighed last" in told
            assert f"{b.key_id[:16]}" in told
            assert "9: 30" in told
            assert "1 statements" in told
            images = digits.images[::30]
            np.testing.assert_allclose(a.probabilities(images).sum(axis=1), 1, rtol=1e-5)
            scores = digits.test[0] @ a.head.T + a.bias
            np.testing.assert_array_equal(a.predict(digits.test[0], features=True), scores.argmax(axis=1))
            check_forms(Head.of(a.head, a.backbone, a.classes, a.bias), a.backbone, images, tmp_path)
            done = a.iteration
            assert done <= 3, "it decides when something has changed, and then rests"
            a.add(*digits.of([9]), features=True)
            await until(lambda: a.iteration > done)
            for peer in (a, b):
                peer.stop()
            await asyncio.gather(*running)

    asyncio.run(run())
    assert all(len(turn.record.heard) == len(turn.senders) for turn in turns)


def test_evidence_is_the_usual_rule(make_peer: MakePeer) -> None:
    assert make_peer("a", rule=None)._rule == rules.create("evidence")


def test_a_counted_run_ends_without_news(make_peer: MakePeer, digits: Any) -> None:
    async def run() -> None:
        async with make_peer("a", rule=rules.create("evidence")) as peer:
            await peer.run(2)
            assert peer.iteration == 2, "without samples there is nothing to decide"
            assert not peer.head.any()
            peer.add(*digits.of([0, 1]), features=True)
            await peer.run(3)
            assert peer.iteration == 5
            assert peer.head.any()
            head, bias = peer.head.copy(), peer.bias.copy()
        async with make_peer("a", rule=rules.create("evidence")) as peer:
            np.testing.assert_array_equal(peer.head, head)
            np.testing.assert_array_equal(peer.bias, bias)
            assert peer.predict(digits.images[:4]).tolist() == peer.predict(digits.images[:4]).tolist()

    asyncio.run(run())


def test_who_may_not_send_hears_others_and_states_nothing(make_peer: MakePeer, digits: Any) -> None:
    def never() -> bool:
        return False

    async def run() -> None:
        evidence = rules.create("evidence")
        async with (
            make_peer("quiet", rule=evidence, pace=Pace(interval=0.01, check_every=0.02, send_when=never)) as quiet,
            make_peer("other", rule=evidence, known=[quiet.address]) as other,
        ):
            quiet.add(*digits.of([0, 1]), features=True)
            other.add(*digits.of([2, 3]), features=True)
            running = [asyncio.create_task(peer.run()) for peer in (quiet, other)]
            await until(lambda: quiet.status().decided is not None)
            await until(lambda: quiet.status().waiting == "sends only never")
            assert other.status().counters["statements_in"] == 0
            for peer in (quiet, other):
                peer.stop()
            await asyncio.gather(*running)

    asyncio.run(run())


def stated_by(peer: Peer) -> bytes | None:
    state = peer._state
    assert state is not None
    return None if state.own is None else state.own.signed.body


def test_noise_covers_so_many_statements_and_no_more_are_made(
    make_peer: MakePeer, digits: Any, caplog: pytest.LogCaptureFixture
) -> None:
    private = rules.create("evidence", privacy={"epsilon": 1000.0, "clip": 32.0, "releases": 2})
    features, labels = digits.of([0, 1, 2, 3])

    async def stated(bodies: list[bytes], *digit: int) -> None:
        async with make_peer("a", rule=private) as a:
            mine = np.isin(labels, digit)
            a.add(features[mine], labels[mine], features=True)
            running = asyncio.create_task(a.run())
            bodies.append(b"")
            await until(lambda: stated_by(a) is not None and a._exchanging._published)  # type: ignore[attr-defined]
            if len(digit) > 2:
                await until(lambda: "its privacy covers no more statements" in caplog.text)
            bodies[-1] = stated_by(a) or b""
            a.stop()
            await running

    async def run() -> None:
        bodies: list[bytes] = []
        await stated(bodies, 0)
        await stated(bodies, 0)
        assert bodies[0] == bodies[1], "the same noise, not noise drawn anew"
        async with make_peer("a", rule=private) as a:
            a.add(features[labels == 1], labels[labels == 1], features=True)
            running = asyncio.create_task(a.run())
            await until(lambda: stated_by(a) != bodies[0])
            bodies.append(stated_by(a) or b"")
            a.stop()
            await running
        await stated(bodies, 0, 1, 2)
        assert bodies[-1] == bodies[-2]
        async with make_peer("a", rule=private) as a:
            assert a._state is not None
            assert a._state.releases == 2

    asyncio.run(run())


def test_noise_that_leaves_nothing_to_state_is_said_and_counted(
    make_peer: MakePeer, digits: Any, caplog: pytest.LogCaptureFixture
) -> None:
    private = rules.create("evidence", privacy={"epsilon": 0.1, "clip": 32.0, "releases": 5})

    async def run() -> None:
        async with make_peer("a", rule=private) as a:
            a.add(*digits.of([0, 1]), features=True)
            running = asyncio.create_task(a.run())
            await until(lambda: "its noise hides so few samples" in caplog.text)
            await a._exchanging.share()
            await a._exchanging.share()
            assert a._state is not None
            assert (a._state.releases, stated_by(a)) == (1, None)
            assert a.iteration >= 1
            a.stop()
            await running

    asyncio.run(run())


def test_options_for_heads_are_refused(make_peer: MakePeer) -> None:
    with pytest.raises(ValueError, match="share_clip and share_noise: peers with the rule Evidence share no head"):
        make_peer("a", rule=rules.create("evidence"), share_noise=1.0)


def test_a_restart_states_the_same_and_still_knows_what_others_stated(make_peer: MakePeer, digits: Any) -> None:
    evidence = rules.create("evidence")

    async def heard_from(peer: Peer) -> ReceivedStatement:
        group = Group(application="digits", backbone=digits.backbone.digest, classes=peer.classes, features=800)
        listener = Overlay(identity=Identity.generate(), group=group, known=[peer.address])
        await listener.start()
        await until(lambda: any(one.author.hex() == peer.key_id for one in listener.statements()))
        (received,) = (one for one in listener.statements() if one.author.hex() == peer.key_id)
        await listener.stop()
        return received

    async def live(*, more: bool = False) -> tuple[ReceivedStatement, float | None]:
        async with make_peer("a", rule=evidence) as a:
            a.add(*digits.of([0, 1]), features=True)
            if more:
                a.add(*digits.of([2]), features=True)
            running = asyncio.create_task(a.run())
            received = await heard_from(a)
            a.stop()
            await running
            return received, a.status().accuracy

    async def meet() -> None:
        async with make_peer("a", rule=evidence) as a, make_peer("b", rule=evidence, known=[a.address]) as b:
            b.add(*digits.of(range(2, 10)), features=True)
            running = [asyncio.create_task(peer.run()) for peer in (a, b)]
            await until(lambda: a.status().decided is not None)
            for peer in (a, b):
                peer.stop()
            await asyncio.gather(*running)

    first, alone = asyncio.run(live())
    again, _ = asyncio.run(live())
    assert (again.number, again.signed) == (first.number, first.signed)
    asyncio.run(meet())
    grown, together = asyncio.run(live(more=True))  # Without b, which is gone.
    assert grown.number > first.number
    assert grown.statement.counts.tolist() == [30, 30, 30, 0, 0, 0, 0, 0, 0, 0]
    assert alone is not None
    assert together is not None
    assert alone < 0.5
    assert together > 0.85
