from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bristle import attacks
from bristle.attacks import View


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.integers(0, 2**32 - 1))
def test_familiar_rows_are_honest_and_foreign_rows_are_rolled(testable: list[bool], seed: int) -> None:
    own = np.random.default_rng(seed).normal(size=(2, len(testable), 3))
    sent = attacks.create("foreign-trojan")(View(own=own, testable=np.array(testable)))
    foreign = [c for c, known in enumerate(testable) if not known]
    source = dict(zip(foreign, foreign[1:] + foreign[:1], strict=True))
    for c in range(len(testable)):
        np.testing.assert_array_equal(sent[:, c], own[:, source.get(c, c)])


def test_each_victim_gets_what_it_cannot_test() -> None:
    own = np.broadcast_to(np.arange(5.0)[:, None], (2, 1, 5, 3))
    testable = np.array([[True, True, False, False, False], [False, True, True, True, False]])
    view = View(own=own, testable=testable)
    sent = attacks.create("foreign-trojan")(view)
    assert sent[:, 0, :, 0].tolist() == [[0, 1, 3, 4, 2], [4, 1, 2, 3, 0]]
    # One foreign class, or none: there is nothing to swap.
    narrow = replace(view, testable=np.array([[True] * 4 + [False], [True] * 5]))
    np.testing.assert_array_equal(attacks.create("foreign-trojan")(narrow), own)
