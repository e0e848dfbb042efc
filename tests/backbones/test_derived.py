from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bristle.backbones import Backbone, CallableBackbone, NoBackbone, WithBias, bundled, extract, find_backbone


def test_ready_features_are_used_as_they_are_and_not_cached(tmp_path: Path) -> None:
    table = np.array([[1, 200], [3, 255]], np.uint8)
    np.testing.assert_array_equal(NoBackbone(2)(table), table)
    windows = np.random.default_rng(0).normal(size=(3, 4, 5))
    backbone = NoBackbone(20)
    found = extract(backbone, windows, cache=tmp_path)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, windows.reshape(3, 20), rtol=1e-6)
    assert not list(tmp_path.iterdir())


def test_the_name_of_what_made_features_is_their_identity() -> None:
    kinds: list[Backbone] = [NoBackbone(3), NoBackbone(4), NoBackbone(3, name="MiniLM"), WithBias(NoBackbone(3))]
    assert len({kind.digest for kind in kinds}) == 4
    assert NoBackbone(3).digest == NoBackbone(3).digest


def test_none_is_a_backbone_of_as_many_features_as_the_data_have() -> None:
    found = find_backbone("none", like=np.zeros((2, 4, 5)))
    assert (found.features, found.digest) == (20, NoBackbone(20).digest)
    with pytest.raises(ValueError, match='backbone "none" needs data'):
        find_backbone("none")


def test_samples_that_do_not_fit_are_named_by_their_shape() -> None:
    with pytest.raises(ValueError, match=r"samples of shape \[4\] are not 3 features: .*NoBackbone\(4\)"):
        NoBackbone(3)(np.zeros((2, 4)))
    with pytest.raises(ValueError, match="features are numbers, not <U1"):
        NoBackbone(3)(np.array([["a", "b", "c"]]))
    with pytest.raises(ValueError, match="give at least one feature"):
        NoBackbone(0)
    with pytest.raises(ValueError, match=r'takes samples of shape .*, and got \[30\]: .* "none", .*NoBackbone\(30\)'):
        bundled()(np.zeros((2, 30), np.uint8))
    with pytest.raises(ValueError, match=r"sample 1 has values that are not finite"):
        extract(NoBackbone(2), np.array([[0, 1], [np.nan, 1]]))


def test_a_bias_is_a_last_feature_that_is_one_and_shares_the_cache(tmp_path: Path) -> None:
    calls = []

    def doubled(x: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> object:
        calls.append(len(x))
        return 2 * x

    inner = CallableBackbone(doubled, name="doubled", version="1", features=3, input_shape=(3,))
    backbone = WithBias(inner)
    assert (backbone.features, backbone.input_shape, backbone.name) == (4, (3,), "doubled with bias")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(backbone(x), [[0, 2, 4, 1], [6, 8, 10, 1]])
    before = len(calls)
    extract(inner, x, cache=tmp_path)
    np.testing.assert_array_equal(extract(backbone, x, cache=tmp_path), backbone(x))
    assert len(calls) == before + 2  # once to fill the cache, once to compare; never in `extract(backbone, ...)`
