"""Strangers' arrays: whatever is in the list, a rule gets something that it can work with."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bristle import rules
from bristle.rules import Reason

OWN = np.ones((3, 4), dtype=np.float32)


def test_each_fault_has_its_reason() -> None:
    good = np.full((3, 4), 2, dtype=np.float32)
    nan = good.copy()
    nan[1, 1] = np.nan
    strangers: list[object] = [
        good, None, good[:2], good.astype(np.float64), good.astype(int), nan, good * np.inf, "pickle", {}, good[0],
        np.array(object()), good[None],
    ]  # fmt: skip
    received, mask, reasons = rules.stack(OWN, strangers)
    assert received.shape == (12, 3, 4)
    assert [Reason(int(code)).name for code in reasons] == [
        "KEPT", "ABSENT", "WRONG_SHAPE", "WRONG_DTYPE", "WRONG_DTYPE", "NOT_FINITE", "NOT_FINITE", "WRONG_DTYPE",
        "WRONG_DTYPE", "WRONG_SHAPE", "WRONG_SHAPE", "WRONG_SHAPE",
    ]  # fmt: skip
    assert mask.tolist() == [True] + [False] * 11
    assert np.isfinite(received).all()
    assert not received[1:].any()
    np.testing.assert_array_equal(rules.FedAvg()(OWN, received, mask=mask).head, 1.5 * OWN)


def test_an_empty_message_is_no_neighbour_at_distance_zero() -> None:
    received, mask, reasons = rules.stack(OWN, [np.zeros((0, 0), dtype=np.float32)])
    assert not mask.any()
    assert reasons[0] == Reason.WRONG_SHAPE
    np.testing.assert_array_equal(rules.Balance()(OWN, received, mask=mask).head, OWN)


def test_nobody_sent_anything() -> None:
    received, mask, reasons = rules.stack(OWN, [])
    assert received.shape == (0, 3, 4)
    np.testing.assert_array_equal(rules.Bristle()(OWN, received, mask=mask).head, OWN)
    assert reasons.shape == (0,)


def test_arrays_of_another_library_are_converted() -> None:
    own = torch.ones(3, 4)
    received, mask, _ = rules.stack(own, [OWN, torch.zeros(3, 4), torch.zeros(3, 4, dtype=torch.float64)])
    assert isinstance(received, torch.Tensor)
    assert mask.tolist() == [True, True, False]


@given(
    st.lists(
        st.one_of(
            st.none(),
            st.binary(max_size=8),
            hnp.arrays(
                dtype=st.one_of(hnp.floating_dtypes(), hnp.integer_dtypes(), hnp.boolean_dtypes()),
                shape=st.one_of(st.just((3, 4)), hnp.array_shapes(max_side=5)),
            ),
        ),
        max_size=6,
    )
)
@settings(max_examples=150, deadline=None)
def test_no_list_breaks_any_rule(strangers: list[object]) -> None:
    received, mask, _ = rules.stack(OWN, strangers)
    for name in ("fedavg", "median", "krum", "centered-clipping", "bristle"):
        rule = rules.create(name, **({"f": 1} if name == "krum" else {}))
        assert np.isfinite(rule(OWN, received, mask=mask).head).all()


def test_own_must_be_one_head() -> None:
    with pytest.raises(ValueError, match="own must be one head"):
        rules.stack(np.ones((2, 3, 4)), [])
