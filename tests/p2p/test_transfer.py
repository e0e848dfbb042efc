"""A sender and a receiver, driven by hypothesis through loss, reordering, duplication and delay."""

from __future__ import annotations

import heapq
import random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from bristle.p2p.transfer import LARGEST_WINDOW, MOST_ORPHANS, SMALLEST_WINDOW, Incoming, Outgoing, Path
from bristle.wire.manifest import Manifest, digests_of
from bristle.wire.messages import KEPT, MOST_UNITS, STOP, Acknowledgement, Piece, SignedManifest, decode, encode

TRANSFER = 2 * 5 + 1


def manifest_for(body: bytes) -> Manifest:
    return Manifest(
        group=bytes(20),
        author=bytes(32),
        sequence=5,
        iteration=1,
        encoding="grid",
        compression=0,
        classes=1,
        features=1,
        body=len(body),
        digests=digests_of(body),
    )


def announced(body: bytes, order: int = 1, start: int = 0) -> SignedManifest:
    return SignedManifest(order, 600, b"manifest", size=len(body), start=body[:start])


def outgoing(body: bytes, *, datagram: int = 644, path: Path | None = None, patience: float = 1e9) -> Outgoing:
    return Outgoing(
        transfer=TRANSFER,
        signed=b"manifest",
        body=body,
        datagram=datagram,
        path=path or Path(),
        now=0.0,
        patience=patience,
    )


@settings(max_examples=40, deadline=None)
# The manifest is lost after more pieces have come than a receiver keeps without it.
@example(length=31_801, seed=8018, loss=0.375, duplication=0.0625, delay=0.125, jitter=0.0625)
@given(
    length=st.integers(1, 60_000),
    seed=st.integers(0, 2**32),
    loss=st.floats(0, 0.6),
    duplication=st.floats(0, 0.5),
    delay=st.floats(0, 0.2),
    jitter=st.floats(0, 0.2),
)
def test_a_head_arrives_through_anything_that_is_not_always_lost(
    length: int, seed: int, loss: float, duplication: float, delay: float, jitter: float
) -> None:
    body = bytes(index % 251 for index in range(length))
    sender, receiver = outgoing(body), Incoming(TRANSFER, 0.0)
    manifest = manifest_for(body)
    rng = random.Random(seed)
    events: list[tuple[float, int, bool, bytes]] = []
    now, turn, said = 0.0, 0, False

    def travel(message: bytes, to_receiver: bool) -> None:
        nonlocal turn
        for _ in range(2 if rng.random() < duplication else 1):
            turn += 1
            if rng.random() >= loss:
                heapq.heappush(events, (now + delay + rng.uniform(0, jitter), turn, to_receiver, message))

    while not sender.delivered:
        assert now < 120
        sender.tick(now)
        while sender.ready():
            travel(sender.next(now), True)
        if receiver.complete and said:
            travel(encode(Acknowledgement(TRANSFER, receiver.newest, KEPT)), False)
        elif (news := receiver.acknowledgement(now)) is not None:
            travel(encode(news), False)
        said = False
        now += 0.005
        while events and events[0][0] <= now:
            _, _, to_receiver, message = heapq.heappop(events)
            heard, said = decode(message), to_receiver or said
            if isinstance(heard, SignedManifest):
                receiver.begin(manifest, heard, now)
            elif isinstance(heard, Piece):
                assert receiver.add(heard, now)
            elif isinstance(heard, Acknowledgement):
                assert not to_receiver
                sender.acknowledged(heard, now)
        assert SMALLEST_WINDOW <= sender.path.window <= LARGEST_WINDOW
        assert len(sender.in_flight) <= LARGEST_WINDOW
    assert receiver.complete
    assert receiver.body() == body


@settings(deadline=None)
@given(
    st.lists(
        st.builds(Acknowledgement, st.just(TRANSFER), st.integers(0, 99), st.integers(0, STOP), st.integers(0, 2**64)),
        max_size=30,
    )
)
def test_acknowledgements_that_lie_do_no_harm(lies: list[Acknowledgement]) -> None:
    sender = outgoing(bytes(20_000))
    for turn, lie in enumerate(lies):
        while sender.ready():
            sender.next(0.01 * turn)
        sender.acknowledged(lie, 0.01 * turn)
        sender.tick(0.01 * turn)
    assert len(sender.in_flight) <= sender.path.window + len(lies)


@given(
    st.lists(
        st.builds(Piece, st.just(TRANSFER), st.just(1), st.integers(0, MOST_UNITS), st.binary(max_size=700)),
        max_size=100,
    )
)
def test_pieces_that_nobody_asked_for_take_no_memory(pieces: list[Piece]) -> None:
    body = bytes(5_000)
    before, after = Incoming(TRANSFER, 0.0), Incoming(TRANSFER, 0.0)
    after.begin(manifest_for(body), announced(body), 0.0)
    for piece in pieces:
        before.add(piece, 0.0)
        after.add(piece, 0.0)
    assert len(before.received) <= MOST_ORPHANS
    assert sum(map(len, after.received.values())) <= len(body)
    before.begin(manifest_for(body), announced(body), 0.0)
    assert sum(map(len, before.received.values())) <= len(body)
    assert all(len(data) == before.expected_length(index) for index, data in before.received.items())


def test_nothing_is_sent_for_ever() -> None:
    sender = outgoing(bytes(20_000), patience=5.0)
    sent, now = 0, 0.0
    while not sender.over:
        sender.tick(now)
        while sender.ready():
            sender.next(now)
            sent += 1
        now += 0.01
    assert sender.failed
    assert not sender.delivered
    assert now < 5.1
    # A window, a probe, and then some windows more and more seldom: no flood into the void.
    assert sent < 6 * 35


def test_a_receiver_that_wants_no_more_gets_no_more() -> None:
    sender = outgoing(bytes(100_000))
    sender.next(0.0)
    sender.acknowledged(Acknowledgement(TRANSFER - 1, 1, STOP), 0.1)
    assert not sender.over
    sender.acknowledged(Acknowledgement(TRANSFER, 1, STOP), 0.1)
    assert sender.delivered
    assert not sender.ready()


def test_the_window_opens_with_what_arrives_and_closes_with_what_is_lost() -> None:
    path = Path()
    path.delivered(10)
    assert path.window == 42
    path.measured(0.1)
    path.lost(10.0)
    path.lost(10.05)  # The same round trip.
    assert path.window == 42 * 0.7
    path.lost(10.2)
    path.lost(20.0)
    path.lost(30.0)
    assert path.window == SMALLEST_WINDOW


def test_round_trips_are_learnt_as_rfc_6298_says() -> None:
    path = Path(handshake=0.2)
    assert path.timeout == 0.8
    path.measured(0.1)
    assert (path.delay, path.variation) == (0.1, 0.05)
    path.measured(0.2)
    assert path.variation == 0.05 + (0.1 - 0.05) / 4
    assert path.delay == 0.1 + 0.1 / 8
    for _ in range(200):
        path.measured(0.001)
    assert path.timeout == 0.2


def test_acknowledgements_are_few() -> None:
    body = bytes(60_000)
    receiver = Incoming(TRANSFER, 0.0)
    receiver.begin(manifest_for(body), announced(body), 0.0)
    told = []
    for index in range(100):
        receiver.add(Piece(TRANSFER, index + 2, index, bytes(600)), 0.0)
        if (news := receiver.acknowledgement(0.0)) is not None:
            told.append(news)
    assert [news.base for news in told] == [16, 32, 48, 64, 80, 96]
    assert receiver.complete


def test_news_does_not_wait_for_more_for_long() -> None:
    receiver = Incoming(TRANSFER, 0.0)
    receiver.add(Piece(TRANSFER, 7, 3, b"x"), 10.0)
    assert receiver.acknowledgement(10.005) is None
    assert receiver.acknowledgement(10.02) == Acknowledgement(TRANSFER, 7, 0, 0b1000)
    assert receiver.acknowledgement(10.03) is None
