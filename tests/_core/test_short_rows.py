from __future__ import annotations

from typing import Any

import array_api_strict
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from bristle._core.short_rows import count_values, order_on_device

ON_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
ROWS = arrays.arrays(np.int64, arrays.array_shapes(min_dims=2, max_dims=3, max_side=20), elements=st.integers(-1, 6))


@given(ROWS)
def test_every_library_counts_the_same(values: Any) -> None:
    wanted = np.stack([(values == kind).sum(axis=-1) for kind in range(7)], axis=-1)
    np.testing.assert_array_equal(count_values(values, 7, np.float32), wanted)
    np.testing.assert_array_equal(count_values(torch.as_tensor(values), 7, torch.float32).numpy(), wanted)
    strict = count_values(array_api_strict.asarray(values), 7, array_api_strict.float32)
    np.testing.assert_array_equal(np.asarray(strict), wanted)


def test_a_small_type_can_count_many_kinds() -> None:
    found = count_values(torch.tensor([[3, 3, -1]], dtype=torch.int8), 300, torch.float32)
    assert found.shape == (1, 300)
    assert found[0, 3] == found.sum() == 2


@ON_CUDA
@pytest.mark.parametrize("shape", [(5, 3, 40), (1, 1), (1000, 8), (0, 4), (3, 100)])
def test_a_device_counts_and_orders_the_same(shape: tuple[int, ...]) -> None:
    values = torch.as_tensor(np.random.default_rng(0).integers(-1, 7, shape))
    found = count_values(values.cuda(), 7, torch.float32).cpu()
    torch.testing.assert_close(found, count_values(values, 7, torch.float32), rtol=0, atol=0)
    for some in (values, values.to(torch.float32)):
        ordered = order_on_device(some[..., :32].cuda()).cpu()
        torch.testing.assert_close(ordered, torch.argsort(some[..., :32], dim=-1, stable=True), rtol=0, atol=0)
