from __future__ import annotations

import multiprocessing
import warnings

import numpy as np
import pytest

from bristle import rules
from bristle.arrays.threads import in_parallel, workers


def test_answers_come_in_order() -> None:
    assert in_parallel(lambda i: i * i, range(100)) == [i * i for i in range(100)]


def test_an_error_in_a_block_reaches_the_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        in_parallel(lambda i: 1 // (i - 3), range(8))


def test_the_number_of_threads_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert workers() == 3
    for unusable in ("", "0", "many"):
        monkeypatch.setenv("OMP_NUM_THREADS", unusable)
        assert workers() >= 1


def test_threads_do_not_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).standard_normal((20, 10, 5000)).astype(np.float32)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    alone = rules.Median()(x[0], x[1:]).head
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert rules.Median()(x[0], x[1:]).head.tobytes() == alone.tobytes()


def _median_of_wide_heads(seed: int) -> float:
    x = np.random.default_rng(seed).standard_normal((5, 2, 20_000))
    return float(rules.Median()(x[0], x[1:]).head.sum())


def test_a_forked_child_does_not_wait_for_its_parents_threads() -> None:
    expected = _median_of_wide_heads(1)  # The parent's threads are running now.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Forking with threads is what is tested.
        with multiprocessing.get_context("fork").Pool(1) as pool:
            assert pool.apply_async(_median_of_wide_heads, (1,)).get(timeout=30) == expected
