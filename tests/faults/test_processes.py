"""What befalls processes and lines: SIGKILL, SIGSTOP, a cut, a third of all datagrams lost, clocks that are wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.fault_lines import Lines
from tests.support.fault_peers import Fleet, PeerProcess, free_port, set_clock, wait_until, wrong_clock

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="signals are Unix's")]

QUICK = ("--interval", "0.1", "--test-every", "5")
LEFT, RIGHT = ("--classes", "0,1,2,3,4,5,6"), ("--classes", "3,4,5,6,7,8,9")


def start_three(fleet: Fleet) -> tuple[PeerProcess, PeerProcess, PeerProcess]:
    """Start three peers, of which the others know the first."""
    first = fleet.start("a", *QUICK, *LEFT)
    known = [first.event("listening")["address"]]
    others = fleet.start("b", *QUICK, *RIGHT, known=known), fleet.start("c", *QUICK, *RIGHT, known=known)
    everybody = (first, *others)
    wait_until(
        lambda: all(one.hears(other) for one in everybody for other in everybody if other is not one),
        "all hear each other",
        watched=everybody,
    )
    return everybody


def test_killed_and_paused_peers_come_back_and_the_others_go_on(fleet: Fleet) -> None:
    first, second, third = start_three(fleet)
    known = [first.event("listening")["address"]]
    second.kill()
    third.pause()
    acknowledged = second.acknowledged()
    first.go_on(10)
    stored = second.stored().iteration  # Before another one goes on from there.
    again = fleet.start("b", *QUICK, *RIGHT, known=known)
    assert again.event("listening")["iteration"] == stored >= acknowledged
    assert again.event("listening")["key_id"] == second.event("listening")["key_id"]
    away, paused = first.acknowledged(), third.acknowledged()
    third.resume()
    wait_until(lambda: first.hears(again, since=away), "the restarted peer is heard again", watched=[first, again])
    wait_until(lambda: third.hears(again, since=paused), "the paused peer hears again", watched=[third, again])
    wait_until(lambda: first.hears(third, since=away), "the paused peer is heard again", watched=[first, third])
    for peer in (first, again, third):
        assert peer.stop() == 0
        iterations = [row["iteration"] for row in peer.all_rows()]
        assert iterations == sorted(set(iterations)), "no iteration is reported twice"
        assert iterations[-1] == peer.stored().iteration


def test_a_cut_and_a_third_of_all_datagrams_lost(fleet: Fleet) -> None:
    lines = Lines(2, loss=0.3)
    try:
        peers = [
            fleet.start(name, *QUICK, *digits, "--listen", f"127.0.0.1:{free_port()}", known=lines.known(number))
            for number, (name, digits) in enumerate((("a", LEFT), ("b", RIGHT)))
        ]
        a, b = peers
        wait_until(lambda: a.hears(b) and b.hears(a), "both hear each other through the loss", watched=peers)
        wait_until(lambda: lines.relay.relayed > 300, "enough to count what is lost", watched=peers)
        assert lines.relay.lost > 0.2 * lines.relay.relayed
        lines.cut([0], [1])
        # What was on its way before the cut has been taken by then.
        a.go_on(3)
        b.go_on(3)
        cut = a.acknowledged(), b.acknowledged()
        a.go_on(8)
        b.go_on(8)
        parted = a.acknowledged(), b.acknowledged()
        assert not [row for row in a.all_rows() if cut[0] < row["iteration"] <= parted[0] and row["heard"]]
        lines.cut()
        wait_until(lambda: a.hears(b, since=parted[0]) and b.hears(a, since=parted[1]), "the cut heals", watched=peers)
        wait_until(lambda: (a.stored().accuracy or 0) > 0.75, "it learns what only the other holds", watched=peers)
    finally:
        lines.close()


def test_clocks_may_be_wrong_and_jump(fleet: Fleet, tmp_path: Path) -> None:
    shift = tmp_path / "shift"
    try:
        ahead = wrong_clock(shift, 400 * 86_400)
    except FileNotFoundError as error:
        pytest.skip(str(error))
    right = fleet.start("a", *QUICK, *LEFT)
    known = [right.event("listening")["address"]]
    wrong = fleet.start("b", *QUICK, *RIGHT, "--max-bytes-per-day", "100000000", known=known, clock=ahead)
    wait_until(lambda: right.hears(wrong) and wrong.hears(right), "a clock 400 days ahead", watched=[right, wrong])
    assert wrong.stored().last is not None
    assert wrong.all_rows()[-1]["at"] - right.all_rows()[-1]["at"] > 399 * 86_400, "the clock is wrong indeed"
    set_clock(shift, -3600)
    since = right.acknowledged(), wrong.acknowledged()
    wrong.go_on(5)
    assert wrong.all_rows()[-1]["at"] < right.all_rows()[-1]["at"] - 3000, "the clock was set back while it ran"
    wait_until(lambda: right.hears(wrong, since=since[0]), "set back, it is heard", watched=[right, wrong])
    wait_until(lambda: wrong.hears(right, since=since[1]), "set back, it hears", watched=[right, wrong])
    wrong.kill()
    since, done = (right.acknowledged(), wrong.acknowledged()), wrong.stored().iteration
    back = fleet.start("b", *QUICK, *RIGHT, "--max-bytes-per-day", "100000000", known=known, clock=ahead)
    assert back.event("listening")["iteration"] == done
    wait_until(
        lambda: right.hears(back, since=since[0]) and back.hears(right, since=since[1]),
        "restarted with a clock behind that of its last run, it is heard",
        watched=[right, back],
    )
    assert back.status().bytes_last_day > 0
