"""Properties of dealing that every partition inherits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bristle.data.partitions.allocation import Cells, Indices, Pools, allocate


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Pools, Cells, int]:
    """Pools of 0 to 30 samples and peers that ask anything of them."""
    count, peers = draw(st.integers(1, 4)), draw(st.integers(1, 8))
    sizes = draw(st.lists(st.integers(0, 30), min_size=count, max_size=count))
    of_sample = np.repeat(np.arange(count), sizes)
    np.random.default_rng(draw(st.integers(0, 99))).shuffle(of_sample)
    pairs = sorted(draw(st.sets(st.tuples(st.integers(0, peers - 1), st.integers(0, count - 1)))))
    wanted = [draw(st.tuples(st.integers(0, 6), st.integers(0, 6))) for _ in pairs]
    columns = np.array([(*pair, *want) for pair, want in zip(pairs, wanted, strict=True)], dtype=np.int64)
    cells = Cells(*columns.reshape(-1, 4).T)
    return Pools(of_sample, count, lambda pool: f"pool {pool}"), cells, peers


def demand_of(cells: Cells, pool: int) -> int:
    mine = cells.pool == pool
    return int((cells.train + cells.held_out)[mine].sum())


def most(values: Indices) -> int:
    return int(values.max(initial=0))


@given(world=worlds(), seed=st.integers(0, 2**32), reuse=st.booleans())
def test_counts_are_exact_and_training_never_meets_held_out(
    world: tuple[Pools, Cells, int], seed: int, reuse: bool
) -> None:
    pools, cells, peers = world
    sizes = pools.sizes()
    short = [pool for pool in range(pools.count) if demand_of(cells, pool) > sizes[pool]]
    hopeless = [
        pool
        for pool in short
        if most(cells.train[cells.pool == pool]) + most(cells.held_out[cells.pool == pool]) > sizes[pool]
    ]
    rng = np.random.default_rng(seed)
    if hopeless or (short and not reuse):
        with pytest.raises(ValueError, match=r"pool \d has \d+ samples, but .* lower"):
            allocate(cells, pools, peers=peers, reuse=reuse, rng=rng)
        return
    train, held_out, reused = allocate(cells, pools, peers=peers, reuse=reuse, rng=rng)
    assert reused == bool(short)
    assert len(train) == len(held_out) == peers
    for part, asked in ((train, cells.train), (held_out, cells.held_out)):
        for peer in range(peers):
            mine = cells.peer == peer
            expected = np.zeros(pools.count, dtype=int)
            expected[cells.pool[mine]] = asked[mine]
            found = np.bincount(pools.of_sample[part[peer]], minlength=pools.count)
            np.testing.assert_array_equal(found, expected)
            assert len(set(part[peer].tolist())) == len(part[peer])
    assert not set(train.flat.tolist()) & set(held_out.flat.tolist())
    if not short:
        dealt = [*train.flat.tolist(), *held_out.flat.tolist()]
        assert len(set(dealt)) == len(dealt)


@given(world=worlds(), seed=st.integers(0, 2**32))
def test_peers_do_not_depend_on_those_after_them(world: tuple[Pools, Cells, int], seed: int) -> None:
    pools, cells, peers = world
    if any(demand_of(cells, pool) > size for pool, size in enumerate(pools.sizes())):
        return
    early = cells.peer < peers // 2
    fewer = Cells(cells.peer[early], cells.pool[early], cells.train[early], cells.held_out[early])
    full = allocate(cells, pools, peers=peers, reuse=False, rng=np.random.default_rng(seed))
    part = allocate(fewer, pools, peers=peers // 2, reuse=False, rng=np.random.default_rng(seed))
    for peer in range(peers // 2):
        np.testing.assert_array_equal(part[0][peer], full[0][peer])
        np.testing.assert_array_equal(part[1][peer], full[1][peer])


def test_reuse_is_even() -> None:
    """100 peers, 3 of 12 training samples each: every sample serves as many peers as any other."""
    pools = Pools(np.zeros(16, dtype=np.int64), 1, str)
    cells = Cells(np.arange(100), np.zeros(100, dtype=np.int64), np.full(100, 3), np.full(100, 1))
    train, held_out, reused = allocate(cells, pools, peers=100, reuse=True, rng=np.random.default_rng(0))
    assert reused
    used = np.bincount(train.flat)
    assert sorted(used[used > 0].tolist()) == [25] * 12
    used = np.bincount(held_out.flat)
    assert sorted(used[used > 0].tolist()) == [25] * 4
