"""What the peers tell, put together."""

from __future__ import annotations

import pytest

from bristle.commands.demo import Demo
from bristle.commands.demo.tally import Tally
from bristle.commands.demo.worker import Finished, PeerIteration
from bristle.peer.record import Heard

MEMBERS = {"aa": 0, "bb": 1, "cc": 2}
BEGAN = 100.0
DEMO = Demo(rule="bristle", peers=2, attackers=1, iterations=12)


def heard(sender: str, share: float) -> Heard:
    return Heard(sender=sender, iteration=1, share=share, reason="kept", words="kept")


def step(peer: int, iteration: int, accuracy: float | None = None, **shares: float) -> PeerIteration:
    told = tuple(heard(sender, share) for sender, share in shares.items())
    return PeerIteration(
        peer, iteration, BEGAN + iteration, accuracy, told, None if accuracy is None else 1000 * iteration
    )


@pytest.fixture
def tally(monkeypatch: pytest.MonkeyPatch) -> Tally:
    monkeypatch.setattr("time.time", lambda: BEGAN)
    return Tally(DEMO, MEMBERS, samples_per_class=2)


def test_a_row_comes_when_all_have_come_so_far(tally: Tally) -> None:
    for iteration in range(1, 11):
        accuracy = 0.5 if iteration == 10 else None
        assert tally.take(step(0, iteration, accuracy, bb=0.3, cc=0.1)) is None
    for iteration in range(1, 10):
        assert tally.take(step(1, iteration, aa=0.4)) is None
    row = tally.take(step(1, 10, 0.7, aa=0.4))
    assert row is not None
    assert (row["iteration"], row["engine"], row["attack"]) == (10, "network", "label-flip")
    assert row["accuracy_mean"] == pytest.approx(0.6)
    assert row["accuracy_min"] == 0.5
    assert row["bytes_sent"] == 10_000
    assert row["seconds"] == pytest.approx(10.0)
    assert row["round_seconds"] == pytest.approx(1.0)
    assert row["attacker_weight"] == pytest.approx(0.1 / 0.8)
    assert row["weight_benign"] == pytest.approx(0.35)
    assert row["heard"] == 1.0


def test_the_last_iteration_has_a_row_and_weights_are_of_the_iterations_since_the_last(tally: Tally) -> None:
    rows = []
    for iteration in range(1, 13):
        accuracy = 0.5 if iteration in (10, 12) else None
        share = {"cc": 0.5} if iteration <= 10 else {"bb": 0.5}
        rows += [tally.take(step(0, iteration, accuracy, **share)), tally.take(step(1, iteration, accuracy))]
    found = [row for row in rows if row is not None]
    assert [row["iteration"] for row in found] == [10, 12]
    assert [row["attacker_weight"] for row in found] == [1.0, 0.0]
    assert [row["round_seconds"] for row in found] == pytest.approx([1.0, 1.0])
    assert tally.whole.attackers == pytest.approx(10 / 12)
    assert tally.heard == pytest.approx(2 / 24)


def test_who_is_who(tally: Tally) -> None:
    assert [tally.name(key_id) for key_id in MEMBERS] == ["peer 0", "peer 1", "attacker 1"]
    tally.take(Finished(1, 5, 6, 7, 8))
    assert (tally.peers[1].bytes_out, tally.bytes_in, tally.retransmissions, tally.heads_in) == (5, 6, 7, 8)


def test_nobody_heard_is_no_share_of_nothing(tally: Tally) -> None:
    tally.take(step(0, 1))
    assert tally.whole.attackers == 0.0
    assert tally.peers[0].lately.attackers == 0.0


def test_of_evidence_the_last_decision_of_each_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: BEGAN)
    tally = Tally(Demo(peers=2, attackers=1), MEMBERS, samples_per_class=2, began=BEGAN - 1)
    for event in (step(0, 1, 0.5, cc=0.5), step(1, 1, 0.3, aa=0.4), step(0, 3, 0.9, bb=0.3, cc=0.0)):
        assert tally.take(event) is None
    assert tally.history == [(1, 0.4, 0.3, 0.5), (2, pytest.approx(0.6), 0.3, 0.9)]
    assert tally.take(Finished(0, 2000, 6, 7, 0)) is None
    row = tally.take(Finished(1, 4000, 6, 7, 0))
    assert row is not None
    assert (row["iteration"], row["accuracy_mean"], row["accuracy_min"]) == (3, pytest.approx(0.6), 0.3)
    assert (row["bytes_sent"], row["attacker_weight"], row["heard"]) == (3000, 0.0, 1.0)
    assert row["seconds"] == pytest.approx(4.0)
