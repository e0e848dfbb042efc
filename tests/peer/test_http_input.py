from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bristle.peer.http import MAX_SAMPLES, parse


def test_images_and_features_are_told_apart() -> None:
    images = parse(b'{"images": [[[0, 255], [7, 1]]]}', labelled=False)
    assert images.values.dtype == np.uint8
    assert images.values.shape == (1, 2, 2)
    assert not images.features
    scaled = parse(b'{"images": [[[0.5, 1], [0, 1]]]}', labelled=False)
    assert scaled.values.dtype == np.float32
    features = parse(b'{"features": [[1, 2], [3, 4]], "labels": ["a", "b"]}', labelled=True)
    assert features.values.dtype == np.float32
    assert features.labels == ["a", "b"]
    assert features.features


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1]", "send"),
        (b"{}", "send"),
        (b'{"features": [[1]], "images": [[1]]}', "nothing else"),
        (b'{"features": [[1]], "model": "x"}', "nothing else"),
        (b'{"features": [[1]], "labels": [0]}', "nothing else"),
        (b'{"features": []}', "1 to"),
        (b'{"features": 7}', "list"),
        (b'{"features": [1, 2]}', "lists of numbers"),
        (b'{"features": [["a"]]}', "lists of numbers"),
        (b'{"features": [[true]]}', "lists of numbers"),
        (b'{"features": [[null]]}', "lists of numbers"),
        (b'{"features": [[1, 2], [3]]}', "same size"),
        (b'{"features": [[NaN]]}', "NaN"),
        (b'{"features": [[-Infinity]]}', "Infinity"),
        (b'{"features": [[1e39]]}', "finite"),
        (b'{"features": [[1e999]]}', "finite"),
        (b'{"features": [[1%s]]}' % (b"0" * 60), "lists of numbers"),
        (b'{"features": [[1%s]]}' % (b"0" * 6000), "not JSON|digits"),
        (b'{"images": [[[256]]]}', "0 to 255"),
        (b'{"images": [[[-1]]]}', "0 to 255"),
    ],
)
def test_bad_bodies_are_refused_in_one_line(body: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        parse(body, labelled=False)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("labels", ["[0]", '[0, "a"]', "[0, true]", "7", "null", "[0.5, 1]", f"[0, {10**30}]"])
def test_bad_labels_are_refused(labels: str) -> None:
    with pytest.raises(ValueError, match="labels must be"):
        parse(f'{{"features": [[1], [2]], "labels": {labels}}}'.encode(), labelled=True)


def test_too_many_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="1 to 1000"):
        parse(json.dumps({"features": [[1]] * (MAX_SAMPLES + 1)}).encode(), labelled=False)


@settings(deadline=None)
@given(st.binary(max_size=60) | st.recursive(st.integers() | st.text() | st.floats(), st.lists, max_leaves=8).map(
    lambda value: json.dumps({"features": value, "labels": value}).encode()
))  # fmt: skip
def test_nothing_but_a_value_error_comes_of_any_bytes(body: bytes) -> None:
    try:
        found = parse(body, labelled=True)
    except ValueError:
        return
    assert np.isfinite(found.values).all()
    assert found.labels is not None
    assert len(found.labels) == len(found.values)
