from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bristle._core.rng import Stream, draw, stream_key
from bristle.simulation.large.device import draw_on_device


@given(st.integers(0, 2**64 - 1), st.sampled_from(Stream), st.integers(0, 10**6), st.integers(1, 9))
def test_draws_are_those_of_numpy_to_the_bit(seed: int, stream: Stream, iteration: int, size: int) -> None:
    ids = np.array([0, 1, 2, 999_999, 2**40])
    wanted = draw(seed, stream, ids, iteration, size).astype(np.float32)
    key = torch.tensor(stream_key(seed, stream, iteration))
    np.testing.assert_array_equal(draw_on_device(torch, key, torch.as_tensor(ids), size).numpy(), wanted)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_a_device_draws_the_same() -> None:
    ids, key = torch.arange(1000), stream_key(3, Stream.MODELS, 7)
    here, there = draw_on_device(torch, key, ids, 5), draw_on_device(torch, key, ids.cuda(), 5)
    np.testing.assert_array_equal(here.numpy(), there.cpu().numpy())
