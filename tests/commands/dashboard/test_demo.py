"""What the demo shows: put together from what its peers tell."""

from __future__ import annotations

import numpy as np
import pytest

from bristle.commands.dashboard.demo import DemoBoard
from bristle.commands.demo import Demo
from bristle.commands.demo.tally import Tally
from bristle.commands.demo.worker import Connected, Finished, PeerIteration
from bristle.peer.record import Heard
from bristle.report.snapshot import MOST_MEMBERS, MemberKind, RunState
from bristle.rules.decision import Reason

DEMO = Demo(rule="bristle", peers=3, attackers=1, iterations=10)
MEMBERS = {f"key{number}": number for number in range(4)}


def heard(number: int, reason: str = "kept") -> Heard:
    return Heard(sender=f"key{number}", iteration=10, share=0.1, reason=reason, words=reason)


def test_it_shows_what_peers_told_last() -> None:
    board = DemoBoard(DEMO, None)
    assert [one.name for one in board.snapshot(RunState.STARTING).members] == [
        "peer 0",
        "peer 1",
        "peer 2",
        "attacker 1",
    ]
    tally = Tally(DEMO, MEMBERS, samples_per_class=2)
    compared = [{"rule": "fedavg", "iteration": 10, "accuracy_mean": 0.2}]
    board.follow(tally, ends={"oracle": 0.95}, compared=compared)
    weights = np.linspace(0, 0.5, 20, dtype=np.float32).reshape(2, 10)
    for peer in range(3):
        told = (heard((peer + 1) % 3), heard(3, "worse-everywhere"))
        connected = Connected(500, {"malformed": 2}, ("key3", "key1", "stranger"))
        tally.take(PeerIteration(peer, 10, tally.began + 1, 0.8 + peer / 100, told, 1000, weights, connected))
    tally.take(Finished(0, 1100, 600, 0, 3))
    found = board.snapshot(RunState.ENDED)
    assert len(found.history) == 1
    np.testing.assert_allclose(np.array(found.history[0], dtype=np.float64), [10, 0.81, 0.8, 0.82])
    assert found.oracle == 0.95
    assert found.references == {"fedavg": [(10, 0.2)]}
    first = found.members[0]
    assert (first.bytes_in, first.bytes_out, first.refused) == (600, 1100, {"malformed": 2})
    assert first.hears == (1, 3)
    assert found.members[3].kind is MemberKind.MALICIOUS
    assert [one.receiver for one in found.judgements] == [0, 1, 2]
    judgement = found.judgements[0]
    assert (judgement.senders, judgement.iteration) == ([1, 3], 10)
    assert judgement.reasons == [Reason.KEPT, Reason.WORSE_EVERYWHERE]
    np.testing.assert_array_equal(judgement.weights, weights)


@pytest.mark.parametrize(("peers", "attackers"), [(150, 50), (199, 1), (1, 199), (100, 5)])
def test_a_large_demo_shows_both_kinds(peers: int, attackers: int) -> None:
    found = DemoBoard(Demo(peers=peers, attackers=attackers), None).snapshot(RunState.STARTING)
    assert len(found.members) <= MOST_MEMBERS
    assert len(found.members) + found.left_out == peers + attackers
    assert {one.kind for one in found.members} == {MemberKind.BENIGN, MemberKind.MALICIOUS}
