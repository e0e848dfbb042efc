"""Sorting networks, and plans for running them on many rows at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

Pair = tuple[int, int]
# (low, high, whether the smaller values are needed, whether the larger ones are)
Comparator = tuple[int, int, bool, bool]

# Where a row lies while a plan runs: in one of two work spaces, or still where it was given.
FIRST, SECOND, GIVEN = 0, 1, 2

# The shortest network known for sixteen rows: Green (1969), in Knuth, volume 3, section 5.3.4. Four rounds compare
# rows that differ in one bit of their number; these follow.
_GREEN = (
    *((5, 10), (6, 9), (3, 12), (13, 14), (4, 8), (7, 11), (1, 2)),
    *((1, 4), (7, 13), (2, 8), (11, 14)),
    *((2, 4), (5, 6), (9, 10), (11, 13), (3, 8), (7, 12)),
    *((6, 8), (10, 12), (3, 5), (7, 9)),
    *((3, 4), (5, 6), (7, 8), (9, 10), (11, 12)),
    *((6, 7), (8, 9)),
)


@dataclass(frozen=True)
class SortingNetwork:
    """Comparators, and the rows `order` on which the smallest, second smallest, ... values end."""

    comparators: tuple[Comparator, ...]
    order: tuple[int, ...]

    @property
    def cost(self) -> int:
        """Number of minima and maxima."""
        return sum(low + high for _, _, low, high in self.comparators)


@dataclass(frozen=True)
class Run:
    """Consecutive rows, start..start+count-1, that lie in the same place."""

    place: int
    start: int
    count: int


@dataclass(frozen=True)
class Comparators:
    """Comparators of consecutive rows, done by one minimum and one maximum; None where not needed."""

    low: Run
    high: Run
    smaller: Run | None
    larger: Run | None


@dataclass(frozen=True, eq=False)
class Plan:
    """Steps, where each row lies in the end (by sorted position), and the wanted ones as runs.

    Compared by identity: there is one plan for each task, and it is too long to be hashed at every use.
    """

    steps: tuple[Comparators, ...]
    places: tuple[Run, ...]
    wanted: tuple[Run, ...]


@lru_cache(maxsize=256)
def network_for(count: int, start: int, stop: int, as_set: bool) -> SortingNetwork:
    """Return the cheapest network known here that gets positions start..stop-1 right, or only their values as a set."""
    networks = [_pruned(sorting_network(count), tuple(range(count)), start, stop, as_set)]
    extremes = start
    if as_set and extremes and count - stop == extremes:
        groups = 2
        while count // groups >= 2 * extremes:
            networks.append(_pruned(*_tournament(count, extremes, groups), start, stop, as_set))
            groups *= 2
    return min(networks, key=lambda network: network.cost)


@lru_cache(maxsize=256)
def plan_for(sizes: tuple[int, ...], start: int, stop: int, as_set: bool) -> Plan:
    """Plan the network for rows that are given in stacks of `sizes`.

    Rows change places instead of being copied: the smaller values of a comparator go to the other work space, the
    larger ones stay where they are.
    """
    count = sum(sizes)
    network = network_for(count, start, stop, as_set)
    stack = [number for number, size in enumerate(sizes) for _ in range(size)]
    place = [GIVEN] * count

    def follows(first: int, row: int, offset: int) -> bool:
        together = row == first + offset and place[row] == place[first]
        return together and (place[row] != GIVEN or stack[row] == stack[first])

    steps = []
    for layer in _layers(network.comparators, count):
        # Comparators of one layer share no row, so that their order is free: those of neighbours come together.
        left = sorted(layer, key=lambda c: (c[2:], place[c[0]], place[c[1]], c[0]))
        while left:
            low, high, keep_low, keep_high = left[0]
            size = 1
            while size < len(left) and left[size][2:] == (keep_low, keep_high):
                if not (follows(low, left[size][0], size) and follows(high, left[size][1], size)):
                    break
                size += 1
            lows, highs = Run(place[low], low, size), Run(place[high], high, size)
            to_low = FIRST if place[low] == GIVEN else place[low]
            if keep_low and keep_high and place[low] != GIVEN:
                to_low = SECOND - place[low]  # The larger values are still to be compared with these.
            to_high = FIRST if place[high] == GIVEN else place[high]
            steps.append(
                Comparators(
                    lows,
                    highs,
                    Run(to_low, low, size) if keep_low else None,
                    Run(to_high, high, size) if keep_high else None,
                )
            )
            for offset in range(size):
                place[low + offset], place[high + offset] = to_low, to_high
            left = left[size:]
    wanted: list[Run] = []
    for row in sorted(network.order[start:stop], key=lambda row: (place[row], row)):
        if wanted and follows(wanted[-1].start, row, wanted[-1].count):
            wanted[-1] = Run(wanted[-1].place, wanted[-1].start, wanted[-1].count + 1)
        else:
            wanted.append(Run(place[row], row, 1))
    return Plan(tuple(steps), tuple(Run(place[row], row, 1) for row in network.order), tuple(wanted))


def sorting_network(count: int) -> list[Pair]:
    """Return comparators that sort `count` rows: Batcher's odd-even merge sort (1968), for sixteen rows Green's."""
    if count == 16:
        return [*((low, low + step) for step in (1, 2, 4, 8) for low in range(16) if not low & step), *_GREEN]
    comparators = []
    run = 1
    while run < count:
        step = run
        while step >= 1:
            for first in range(step % run, count - step, 2 * step):
                for low in range(first, first + min(step, count - first - step)):
                    if low // (2 * run) == (low + step) // (2 * run):
                        comparators.append((low, low + step))
            step //= 2
        run *= 2
    return comparators


def _tournament(count: int, extremes: int, groups: int) -> tuple[list[Pair], tuple[int, ...]]:
    """Find the smallest and the largest `extremes` values, and where they end.

    Groups are sorted, and then meet in pairs: of two sorted lists of smallest values, a_i and b_(k-1-i) hold one
    value each that stays in the race, the smaller one. What remains rises and falls, and a bitonic merge (Batcher 1968)
    sorts it for the next round. The largest values are found likewise. Groups are interleaved, so that the same
    comparator of neighbouring groups works on neighbouring rows.
    """
    members = [list(range(group, count, groups)) for group in range(groups)]
    comparators = [(rows[low], rows[high]) for rows in members for low, high in sorting_network(len(rows))]
    lows, highs = [rows[:extremes] for rows in members], [rows[-extremes:] for rows in members]
    while len(lows) > 1:
        half = len(lows) // 2
        for winners, losers in zip(lows[:half], lows[half:], strict=True):
            comparators += zip(winners, reversed(losers), strict=True)
            comparators += _bitonic_merge(winners, missing_first=True) if half > 1 else []
        for losers, winners in zip(highs[:half], highs[half:], strict=True):
            comparators += zip(reversed(losers), winners, strict=True)
            comparators += _bitonic_merge(winners, missing_first=False) if half > 1 else []
        lows, highs = lows[:half], highs[half:]
    middle = sorted(set(range(count)) - {*lows[0], *highs[0]})
    return comparators, (*lows[0], *middle, *highs[0])


def _bitonic_merge(rows: list[int], *, missing_first: bool) -> list[Pair]:
    """Sort rows that rise and then fall (or fall and then rise, where what is missing is at the end).

    The merge is made for a power of two; missing rows would hold minus infinity in front, or infinity at the end,
    where no comparator moves them.
    """
    size = 1 << (len(rows) - 1).bit_length()
    first = size - len(rows) if missing_first else 0
    comparators, step = [], size // 2
    while step >= 1:
        for low in range(size):
            if not low & step and low >= first and low + step < first + len(rows):
                comparators.append((rows[low - first], rows[low + step - first]))
        step //= 2
    return comparators


def _pruned(pairs: list[Pair], order: tuple[int, ...], start: int, stop: int, as_set: bool) -> SortingNetwork:
    """Leave out the comparators that positions start..stop-1 of `order` do not depend on.

    Wanted only as a set, two of these positions need no comparing with each other: their sum is the same.
    """
    wanted = set(order[start:stop])
    in_set, exact = (wanted, set()) if as_set else (set(), wanted)
    kept: list[Comparator] = []
    for low, high in reversed(pairs):
        if low in in_set and high in in_set:
            continue
        keep_low, keep_high = low in in_set or low in exact, high in in_set or high in exact
        if keep_low or keep_high:
            kept.append((low, high, keep_low, keep_high))
            in_set -= {low, high}
            exact |= {low, high}
    return SortingNetwork(tuple(reversed(kept)), order)


def _layers(comparators: tuple[Comparator, ...], count: int) -> list[list[Comparator]]:
    """Put comparators that can run side by side together."""
    depth = [0] * count
    layers: list[list[Comparator]] = []
    for comparator in comparators:
        low, high = comparator[:2]
        layer = max(depth[low], depth[high])
        depth[low] = depth[high] = layer + 1
        if layer == len(layers):
            layers.append([])
        layers[layer].append(comparator)
    return layers
