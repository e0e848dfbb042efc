from __future__ import annotations

import array_api_strict
import numpy as np
import pytest

from bristle.peer.step import Sharing

RNG = np.random.default_rng(0)
HEADS = RNG.normal(size=(3, 4, 50)).astype(np.float32)
NORMALS = RNG.normal(size=(3, 4, 50)).astype(np.float32)


def test_nothing_changes_unless_it_is_said() -> None:
    assert Sharing().plain
    np.testing.assert_array_equal(Sharing()(HEADS, None), HEADS)


def test_long_rows_are_shortened_and_short_ones_left() -> None:
    heads = HEADS.copy()
    heads[0, 0] *= 100
    heads[0, 1] = 0
    shared = Sharing(clip=7.0)(heads, None)
    lengths = np.linalg.norm(shared, axis=-1)
    assert lengths.max() <= 7.0 * (1 + 1e-6)
    np.testing.assert_allclose(shared[0, 0], heads[0, 0] * 7 / np.linalg.norm(heads[0, 0]), rtol=1e-5)
    short = np.linalg.norm(heads, axis=-1) < 7
    assert short.any()
    np.testing.assert_array_equal(shared[short], heads[short])
    assert shared.dtype == np.float32


def test_noise_is_as_loud_as_the_row_or_as_the_cut() -> None:
    heads = HEADS.copy()
    heads[0, 1] = 0
    lengths = np.linalg.norm(heads, axis=-1, keepdims=True)
    shared = Sharing(noise=0.5)(heads, NORMALS)
    np.testing.assert_allclose(shared, heads + 0.5 * lengths / np.sqrt(50) * NORMALS, rtol=1e-5)
    assert not shared[0, 1].any(), "a row that was never trained stays empty"
    cut = Sharing(clip=1.0, noise=0.5)(heads, NORMALS)
    expected = Sharing(clip=1.0)(heads, None) + 0.5 / np.sqrt(50) * NORMALS
    np.testing.assert_allclose(cut, expected, rtol=1e-5, atol=1e-7)


def test_any_array_library() -> None:
    heads, normals = array_api_strict.asarray(HEADS), array_api_strict.asarray(NORMALS)
    shared = Sharing(clip=2.0, noise=0.1)(heads, normals)
    np.testing.assert_allclose(np.asarray(shared), Sharing(clip=2.0, noise=0.1)(HEADS, NORMALS), rtol=1e-5)


def test_live_noise_is_new_every_time_and_as_loud_as_it_says() -> None:
    sharing, head = Sharing(clip=1.0, noise=0.25), np.zeros((10, 800), dtype=np.float32)
    first, second = sharing.of_live_head(head), sharing.of_live_head(head)
    assert not np.array_equal(first, second)
    assert abs(float(np.linalg.norm(first[0])) - 0.25) < 0.03
    assert not head.any()


@pytest.mark.parametrize(("options", "said"), [({"clip": 0.0}, "share_clip=0"), ({"noise": -1.0}, "share_noise=-1")])
def test_mistakes_are_told(options: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Sharing(**options)
