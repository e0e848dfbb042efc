from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bristle.p2p.limits import TokenBucket, TokenBuckets

times = st.lists(st.tuples(st.floats(0, 0.5), st.floats(0.1, 3)), max_size=60)


@given(times)
def test_no_more_is_spent_than_the_burst_and_what_came_since(steps: list[tuple[float, float]]) -> None:
    bucket, now, spent = TokenBucket(rate=2.0, burst=5.0), 100.0, 0.0
    for wait, amount in steps:
        now += wait
        if bucket.take(amount, now):
            spent += amount
        assert spent <= 5.0 + 2.0 * (now - 100.0) + 1e-6


def test_a_bucket_fills_and_a_clock_that_steps_back_does_not_fill_it() -> None:
    bucket = TokenBucket(rate=1.0, burst=2.0)
    assert bucket.take(2, 10.0)
    assert not bucket.take(0.1, 10.0)
    assert not bucket.take(1, 9.0)
    assert bucket.take(1, 10.0)
    assert bucket.available(1000.0) == 2.0


def test_sources_do_not_spend_each_others_budget_and_are_not_remembered_for_ever() -> None:
    budgets = TokenBuckets[int](rate=1.0, burst=1.0, most=10)
    assert all(budgets.take(source, 1, 0.0) for source in range(10))
    assert not any(budgets.take(source, 1, 0.0) for source in range(10))
    for source in range(1000):
        budgets.take(source, 1, 0.0)
    assert len(budgets) == 10
