"""Rate limits for handshakes from unknown addresses."""

from __future__ import annotations

from bristle.p2p.limits import HandshakeLimits

RATE = 10.0


def test_one_address_spends_its_own_budget_and_nobody_elses() -> None:
    strangers = HandshakeLimits(RATE)
    shouted = sum(strangers.admit(("192.0.2.1", 7), 0.0) for _ in range(1000))
    assert shouted == 2 * RATE
    assert strangers.admit(("192.0.2.1", 8), 0.0)
    assert strangers.admit(("198.51.100.1", 7), 0.0)
    assert sum(strangers.admit(("192.0.2.1", 7), 1.0) for _ in range(1000)) == RATE


def test_all_addresses_of_a_network_have_one_budget() -> None:
    strangers = HandshakeLimits(RATE)
    admitted = sum(strangers.admit((f"192.0.2.{host}", port), 0.0) for host in range(256) for port in range(10))
    assert admitted == 40 * RATE
    assert strangers.admit(("198.51.100.1", 7), 0.0)


def test_a_flood_from_hundreds_of_networks_leaves_newcomers_their_share() -> None:
    strangers = HandshakeLimits(RATE)
    flood = [(f"10.{number}.0.1", 9) for number in range(200)]
    now, taken = 0.0, 0
    for second in range(20):
        taken = 0
        for step in range(50):
            now = second + step / 50
            taken += sum(strangers.admit(address, now) for address in flood)
        # One of many who have not been here before says hello, and comes back with its cookie.
        newcomer = (f"10.201.{second}.1", 9)
        assert strangers.admit(newcomer, now)
        assert strangers.admit(newcomer, now)
    # 10,000 were sent.
    assert taken <= 30 * RATE


def test_joins_are_few() -> None:
    strangers = HandshakeLimits(RATE)
    assert sum(strangers.may_join(("192.0.2.1", 7), 0.0, full=False) for _ in range(100)) == RATE
    assert sum(strangers.may_join(("192.0.2.1", port), 0.0, full=False) for port in range(1000)) <= 8 * RATE
    crowd = [(f"10.{number}.7.1", 7) for number in range(99)]
    total = sum(strangers.may_join(one, 1.0 + second, full=False) for second in range(10) for one in crowd)
    assert total <= 10 * RATE + 8 * RATE
    in_vain = sum(strangers.may_join(one, 20.0 + second, full=True) for second in range(10) for one in crowd)
    assert 0 < in_vain <= 10 * 0.4 * RATE + 4 * RATE
    # Those who crowd in where there is no room take nothing from where there is.
    assert strangers.may_join(("192.0.2.9", 7), 30.0, full=False)
