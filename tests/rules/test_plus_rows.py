"""What rows say about each other: how alike and how loud they are, and who speaks for a class."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bristle import Pool
from bristle.rules.bristle_plus import CLOSE, LOUDEST, SAME_CLASS, Rows, majority, volume
from bristle.rules.call import Call

CLASSES = 5


def rows_of(own: Any, received: Any) -> Rows:
    call = Call.check(own, received, mask=None, evaluation=None, claims=None, context=None)
    return Rows.of(next(iter(call.parts())).inbox)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_rows_are_measured_as_defined_in_arrays_and_pools(seed: int, models: int) -> None:
    rng = np.random.default_rng(seed)
    own, received = rng.standard_normal((2, CLASSES, 7)), rng.standard_normal((2, models, CLASSES, 7))
    heads = np.concatenate([own[:, None], received], axis=1)
    centred = heads - heads.mean(axis=-1, keepdims=True)
    norms = np.linalg.norm(centred, axis=-1)
    directions = centred / norms[..., None]
    pool = Pool(received.reshape(-1, CLASSES, 7), np.arange(2 * models).reshape(2, models))
    for rows in (rows_of(own, received), rows_of(own, pool)):
        np.testing.assert_allclose(rows.norms, norms.transpose(0, 2, 1))
        np.testing.assert_allclose(rows.cosines, np.einsum("bicd,bjcd->bcij", directions, directions), atol=1e-9)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.lists(st.floats(0.01, 1e6), min_size=1, max_size=5), st.floats(0.01, 100))
def test_no_row_is_louder_than_the_own_ones_allow(seed: int, loud: list[float], size: float) -> None:
    rng = np.random.default_rng(seed)
    known = np.array([[True, True, False, False, False]])
    own = size * rng.standard_normal((1, CLASSES, 9))
    received = rng.standard_normal((1, len(loud), CLASSES, 9)) * np.array(loud)[:, None, None]
    rows = rows_of(own, received)
    factors = volume(np, rows, known)
    assert (factors[..., 0] == 1).all()
    assert (factors <= 1).all()
    assert (factors > 0).all()
    norms = rows.norms * factors

    def rms(values: Any) -> Any:
        return np.sqrt((values**2).mean(axis=1))

    assert (rms(norms[:, :2])[:, 1:] <= rms(norms[:, :2])[:, :1] * (1 + 1e-9)).all()
    assert (norms[:, 2:, 1:] <= LOUDEST * rms(norms)[:, None, :1] * (1 + 1e-9)).all()


def plain_majority(cosines: Any, norms: Any, first: list[int], second: list[int]) -> list[bool]:
    """Step by step for one class, as the documentation tells it; every row is there."""
    n = len(cosines)
    votes = [1.0 if i in first else 0.5 if i in second else 0.0 for i in range(n)]
    support = [sum(votes[j] for j in range(n) if cosines[i][j] >= SAME_CLASS) if votes[i] else -1.0 for i in range(n)]
    likeness = [sum(votes[j] * cosines[i][j] for j in range(n)) for i in range(n)]
    speaker = max(range(n), key=lambda i: (support[i], round(likeness[i], 6), round(cosines[i][0], 6), norms[i]))
    if support[speaker] <= sum(votes) / 2:
        return [False] * n
    voters = first or second
    near = sorted(cosines[speaker][j] for j in voters if cosines[speaker][j] >= SAME_CLASS)
    typical = near[(len(near) - 1) // 2] if near else 0.0
    bound = min(max(1 - 2 * (1 - typical), SAME_CLASS), CLOSE)
    return [cosines[speaker][j] >= bound for j in range(n)]


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 9), st.floats(0.2, 3))
def test_the_majority_is_what_the_documentation_says(seed: int, n: int, noise: float) -> None:
    rng = np.random.default_rng(seed)
    meanings = rng.standard_normal((2, 12))
    heads = meanings[rng.integers(0, 2, n)] + noise * rng.standard_normal((n, 12))
    rows = rows_of(heads[:1], heads[1:, None])
    kind = rng.integers(0, 3, n)
    kind[0] = 2
    first, second = kind == 1, kind == 2
    found = majority(np, rows, first[None, None], second[None, None])[0, 0]
    voters, echoes = np.flatnonzero(first).tolist(), np.flatnonzero(second).tolist()
    expected = plain_majority(rows.cosines[0, 0].tolist(), rows.norms[0, 0].tolist(), voters, echoes)
    assert found.tolist() == expected


def test_of_equals_the_one_nearest_to_the_own_row_speaks() -> None:
    cosines = np.array([[1.0, 0.3, 0.8, 0.5], [0.3, 1.0, 0.9, 0.1], [0.8, 0.9, 1.0, 0.8], [0.5, 0.1, 0.8, 1.0]])
    rows = Rows(cosines[None, None], np.ones((1, 1, 4)))
    voters = np.array([False, True, True, False])[None, None]
    found = majority(np, rows, voters, np.zeros_like(voters))[0, 0]
    # Both voters have the same support and the same sum of cosines. The second speaks, and the last row is with it.
    assert found.tolist() == [True, True, True, True]
    further = cosines.copy()
    further[0, [1, 2]] = further[[1, 2], 0] = 0.8, 0.3
    found = majority(np, Rows(further[None, None], rows.norms), voters, np.zeros_like(voters))[0, 0]
    assert found.tolist() == [True, True, True, False]


def test_a_receiver_without_rows_goes_by_the_middle_one_of_the_others() -> None:
    direction = np.random.default_rng(0).standard_normal((CLASSES, 9))
    direction -= direction.mean(axis=-1, keepdims=True)
    direction /= np.linalg.norm(direction, axis=-1, keepdims=True)
    received = np.array([5.0, 1.0, 9.0])[:, None, None] * direction
    factors = volume(np, rows_of(np.zeros_like(direction), received), np.zeros((1, CLASSES), dtype=bool))
    np.testing.assert_allclose(factors[0], np.tile([1, 1, 1, 5 / 9], (CLASSES, 1)))
