"""What one neighbour may cost, beside others that cost as much as they can."""

from __future__ import annotations

from bristle.network import Limits
from bristle.network.allowance import ALL_MANIFESTS, LATE, NOTHING, WANTED, Allowance, Pool

LIMITS = Limits(neighbours=32)


def test_a_neighbour_has_its_share_however_greedy_all_others_are() -> None:
    pool, honest = Pool(LIMITS), Allowance(LIMITS)
    greedy = [Allowance(LIMITS) for _ in range(31)]
    heads = received = others = 0
    for step in range(200):
        now = step / 20
        for one in greedy:
            others += sum(one.take_manifest(pool, now) for _ in range(20))
            while one.take_bytes(100_000, pool, now):
                received += 100_000
        if step % 5 == 0:  # Four heads a second.
            assert honest.take_manifest(pool, now)
            assert honest.take_bytes(30_000, pool, now)
            heads += 1
    assert heads == 40
    # Ten seconds, and bursts.
    assert others <= ALL_MANIFESTS * LIMITS.manifest_rate * 12
    assert received <= LIMITS.receive_rate * 12


def test_alone_a_neighbour_may_send_all_that_one_may() -> None:
    pool, only = Pool(LIMITS), Allowance(LIMITS)
    manifests = sum(only.take_manifest(pool, step / 100) for step in range(1000))
    assert manifests >= 10 * LIMITS.manifest_rate


def test_honest_neighbours_are_no_nuisance_though_much_comes_late() -> None:
    allowance = Allowance(LIMITS)
    for second in range(100):
        for _ in range(512):  # A whole window that a lost manifest makes useless.
            assert not allowance.bothered(-LATE, float(second))
        for _ in range(512):
            allowance.make_up(WANTED)


def test_who_sends_nothing_but_nonsense_is_found_out() -> None:
    allowance = Allowance(LIMITS)
    messages = 0
    while not allowance.bothered(-NOTHING, messages / 50):
        messages += 1
    assert 20 * LIMITS.nuisance_rate <= messages < 1000
    # A few a second are nothing to speak of.
    patient = Allowance(LIMITS)
    assert not any(patient.bothered(-NOTHING, message / 15) for message in range(10_000))
