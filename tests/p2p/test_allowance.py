"""What one neighbour may cost, beside others that cost as much as they can."""

from __future__ import annotations

from bristle.p2p import Limits
from bristle.p2p.limits import ALL_MANIFESTS, LATE, NOTHING, WANTED, Allowance, Pool

LIMITS = Limits(neighbours=32)


def test_a_neighbour_has_its_share_however_greedy_all_others_are() -> None:
    pool, honest = Pool(LIMITS), Allowance(LIMITS)
    greedy = [Allowance(LIMITS) for _ in range(31)]
    heads = received = others = 0
    for step in range(200):
        now = step / 20
        for one in greedy:
            for _ in range(20):
                others += one.take_manifest(pool, now)
                one.kept()
            while one.take_bytes(100_000, pool, now):
                received += 100_000
        if step % 5 == 0:  # Four heads a second.
            assert honest.take_manifest(pool, now)
            honest.kept()
            assert honest.take_bytes(30_000, pool, now)
            heads += 1
    assert heads == 40
    # Ten seconds, and bursts.
    assert others <= ALL_MANIFESTS * LIMITS.manifest_rate * 12
    assert received <= LIMITS.receive_rate * 12


def test_alone_a_neighbour_may_send_all_that_one_may() -> None:
    pool, only = Pool(LIMITS), Allowance(LIMITS)
    manifests = 0
    for step in range(1000):
        manifests += only.take_manifest(pool, step / 100)
        only.kept()
    assert manifests >= 10 * LIMITS.manifest_rate


def test_manifests_whose_heads_never_follow_are_seldom_looked_at() -> None:
    pool, empty = Pool(LIMITS), Allowance(LIMITS)
    assert sum(empty.may_announce(step / 100) and empty.take_manifest(pool, step / 100) for step in range(1000)) <= 28


def test_honest_neighbours_are_no_nuisance_though_much_comes_late() -> None:
    pool, lossy, quick = Pool(LIMITS), Allowance(LIMITS), Allowance(LIMITS)
    for second in range(100):
        for _ in range(512):  # A whole window that a lost manifest makes useless.
            assert not lossy.bothered(-LATE, pool, float(second))
        for _ in range(512):
            lossy.make_up(WANTED)
        for _ in range(25 * 30):  # Somebody whose heads are all replaced by newer ones before they are here.
            assert not quick.bothered(-LATE, pool, float(second))


def test_who_sends_nothing_but_nonsense_is_found_out_when_it_hurts() -> None:
    pool = Pool(LIMITS)
    crowd = [Allowance(LIMITS) for _ in range(29)]
    honest = Allowance(LIMITS)
    found: set[int] = set()
    now = 0.0
    while len(found) < len(crowd):
        now += 1 / 345
        found |= {place for place, one in enumerate(crowd) if one.bothered(-NOTHING, pool, now)}
        assert not honest.bothered(-LATE / 10, pool, now)
    assert now < 5
    # A few a second are nothing to speak of.
    pool, patient = Pool(LIMITS), Allowance(LIMITS)
    assert not any(patient.bothered(-NOTHING, pool, message / 15) for message in range(10_000))
