from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bristle.simulation.mailbox import Asynchrony, Mailbox, Schedule
from bristle.simulation.topology import All

PEERS = 6


def received(asynchrony: Asynchrony, iterations: int, seed: int = 0) -> list[tuple[Any, Any]]:
    """Play messages that hold the iteration and the sender; return for each iteration who acted and what came."""
    schedule = Schedule(asynchrony, peers=PEERS, total=iterations, seed=seed)
    graph = All().senders(PEERS, seed=0, iteration=1)
    heads = np.stack([np.zeros(PEERS), np.arange(PEERS)], axis=1)[:, None, :]
    box = Mailbox(asynchrony, heads, schedule.present(1), seed=seed)
    seen = []
    for t in range(1, iterations + 1):
        present, acting = schedule.present(t), schedule.acting(t)
        box.absent(present, t)
        arrived = box.arrived(graph, present, t)
        came = box.heads[arrived.index][:, :, 0, :]
        if arrived.mask is not None:
            came = np.where(arrived.mask[..., None], came, -1)
        assert ((came[..., 1] == graph.index) | (came[..., 1] == -1)).all(), "a message comes from its sender"
        seen.append((acting, came[..., 0]))
        heads = np.where(acting[:, None, None], np.stack([np.full(PEERS, t), np.arange(PEERS)], 1)[:, None, :], heads)
        box.put(heads, acting, t)
    return seen


def test_at_once_everyone_hears_what_all_shared_last() -> None:
    assert all((came == t).all() for t, (_, came) in enumerate(received(Asynchrony(), 6)))


def test_a_fixed_delay_makes_models_stale() -> None:
    for t, (_, came) in enumerate(received(Asynchrony(delay=(2, 2)), 12), start=1):
        assert (came == (t - 3 if t >= 3 else -1)).all()


def test_a_slow_sender_is_heard_once_for_each_time_it_acts() -> None:
    seen = received(Asynchrony(slow=1 / PEERS, period=4), 40)
    slow = int(np.argmin(np.array([acting for acting, _ in seen]).sum(axis=0)))
    column = [came[(slow + 1) % PEERS, slow if slow < (slow + 1) % PEERS else slow - 1] for _, came in seen]
    heard = [value for value in column[4:] if value >= 0]
    assert len(heard) == len(set(heard)) == 9


@given(st.floats(0, 0.9), st.integers(0, 2), st.integers(0, 3), st.integers(0, 5), st.sampled_from([0.0, 0.5]))
def test_nothing_is_received_twice_or_before_it_was_sent(
    loss: float, least: int, more: int, seed: int, slow: float
) -> None:
    asynchrony = Asynchrony(loss=loss, delay=(least, least + more), slow=slow, period=3)
    newest = np.full((PEERS, PEERS - 1), -1)
    for t, (acting, came) in enumerate(received(asynchrony, 20, seed), start=1):
        assert (came[came >= 0] <= t - 1 - least).all()
        took = acting[:, None] & (came >= 0)
        assert (came[took] > newest[took]).all(), "what a peer receives is newer than all that it had"
        newest[took] = came[took]


@pytest.mark.parametrize("loss", [0.1, 0.5, 0.9])
def test_messages_are_lost_with_the_probability_given(loss: float) -> None:
    lost = np.array([came < 0 for _, came in received(Asynchrony(loss=loss), 500)])
    assert abs(lost.mean() - loss) < 0.03
    assert abs(lost.mean(axis=0) - loss).max() < 0.12, "on every link"


def test_a_slow_receiver_has_more_chances_to_hear() -> None:
    seen = received(Asynchrony(loss=0.5, slow=1.0, period=4), 2000)
    lost = np.concatenate([came[acting].ravel() < 0 for acting, came in seen[8:]])
    assert lost.mean() < 0.53, "the sender is as slow: one message a turn"
    assert lost.mean() > 0.47


def test_those_who_are_away_neither_hear_nor_are_heard() -> None:
    seen = received(Asynchrony(absences=((0, 5, 9),)), 14)
    for t, (acting, came) in enumerate(seen, start=1):
        away = 5 <= t <= 9
        assert acting[0] == (not away)
        silent = away or t == 10
        assert (came[1:, 0] == (-1 if silent else t - 1)).all(), t
    assert (seen[9][1][0] == 9).all(), "who returns hears what was shared just before, and nothing older"
