"""What one neighbour may cost, beside others that cost as much as they can."""

from __future__ import annotations

from bristle.p2p import Limits
from bristle.p2p.limits import ALL_MANIFESTS, LATE, NOTHING, WANTED, NeighbourBudget, SharedBudget

LIMITS = Limits(neighbours=32)


def test_a_neighbour_has_its_share_however_greedy_all_others_are() -> None:
    shared, honest = SharedBudget(LIMITS), NeighbourBudget(LIMITS)
    greedy = [NeighbourBudget(LIMITS) for _ in range(31)]
    heads = received = others = 0
    for step in range(200):
        now = step / 20
        for one in greedy:
            for _ in range(20):
                others += one.take_manifest(shared, now)
                one.body_followed()
            while one.take_bytes(100_000, shared, now):
                received += 100_000
        if step % 5 == 0:  # Four heads a second.
            assert honest.take_manifest(shared, now)
            honest.body_followed()
            assert honest.take_bytes(30_000, shared, now)
            heads += 1
    assert heads == 40
    # Ten seconds, and bursts.
    assert others <= ALL_MANIFESTS * LIMITS.manifest_rate * 12
    assert received <= LIMITS.receive_rate * 12


def test_alone_a_neighbour_may_send_all_that_one_may() -> None:
    shared, only = SharedBudget(LIMITS), NeighbourBudget(LIMITS)
    manifests = 0
    for step in range(1000):
        manifests += only.take_manifest(shared, step / 100)
        only.body_followed()
    assert manifests >= 10 * LIMITS.manifest_rate


def test_manifests_whose_heads_never_follow_are_seldom_looked_at() -> None:
    shared, empty = SharedBudget(LIMITS), NeighbourBudget(LIMITS)
    assert sum(empty.may_announce(step / 100) and empty.take_manifest(shared, step / 100) for step in range(1000)) <= 28


def test_honest_neighbours_stay_though_much_comes_late() -> None:
    shared, lossy, quick = SharedBudget(LIMITS), NeighbourBudget(LIMITS), NeighbourBudget(LIMITS)
    for second in range(100):
        for _ in range(512):  # A whole window that a lost manifest makes useless.
            assert not lossy.useless_message(-LATE, shared, float(second))
        for _ in range(512):
            lossy.useful_message(WANTED)
        for _ in range(25 * 30):  # Somebody whose heads are all replaced by newer ones before they are here.
            assert not quick.useless_message(-LATE, shared, float(second))


def test_who_sends_nothing_but_nonsense_is_found_out_when_it_hurts() -> None:
    shared = SharedBudget(LIMITS)
    crowd = [NeighbourBudget(LIMITS) for _ in range(29)]
    honest = NeighbourBudget(LIMITS)
    found: set[int] = set()
    now = 0.0
    while len(found) < len(crowd):
        now += 1 / 345
        found |= {place for place, one in enumerate(crowd) if one.useless_message(-NOTHING, shared, now)}
        assert not honest.useless_message(-LATE / 10, shared, now)
    assert now < 5
    # A few a second are nothing to speak of.
    shared, patient = SharedBudget(LIMITS), NeighbourBudget(LIMITS)
    assert not any(patient.useless_message(-NOTHING, shared, message / 15) for message in range(10_000))
