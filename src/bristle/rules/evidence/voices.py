"""Senders that count together as one voice, and the choice of statements whose scatter is pooled."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from bristle.rules.evidence.location import Claims, Integers
from bristle.rules.evidence.statement import Statement

SKETCHES = 48
"""The most statements whose scatter is pooled; drawn at random where there are more."""


def voice_numbers(voices: Sequence[Hashable], places: Integers, senders: int) -> Integers:
    """Return the number of the voice of every usable statement; the receiver has one of its own."""
    if len(voices) != senders:
        raise ValueError(f"voices has {len(voices)} values for {senders} statements: give one for each")
    numbers: dict[Hashable, int] = {}
    return np.array([-1 if place < 0 else numbers.setdefault(voices[place], len(numbers)) for place in places])


def shares_voice(claims: Claims, number: int) -> bool:
    """Return whether another claim of the same class has the same voice, so that the two count as one."""
    if claims.voice is None:
        return False
    return int(((claims.label == claims.label[number]) & (claims.voice == claims.voice[number])).sum()) > 1


def merge_voices(statements: list[Statement], voice: Integers, rng: np.random.Generator | None) -> list[Statement]:
    """Return one statement for each voice, whose scatter is the mean of its members'; the own one first.

    Of a voice with many members some are drawn, so that there are about SKETCHES in all.
    """
    names = np.unique(voice)
    most, draws = max(1, SKETCHES // len(names)), rng or np.random.default_rng(0)
    found = []
    for name in names:
        those = np.flatnonzero(voice == name)
        those = those if len(those) <= most else np.sort(draws.choice(those, most, replace=False))
        some = [statements[place].numpy() for place in those]
        factors = np.concatenate([np.asarray(one.factors) for one in some]) / np.sqrt(len(some))
        diagonal = np.mean([np.asarray(one.diagonal) for one in some], axis=0)
        counts = np.sum([np.asarray(one.counts) for one in some], axis=0)
        found.append(Statement(some[0].rows, counts, factors, diagonal))
    return found


def draw_statements(statements: list[Statement], rng: np.random.Generator | None) -> list[Statement]:
    """Return the statements whose scatter is pooled, the own one first."""
    if len(statements) <= SKETCHES:
        return statements
    others = (rng or np.random.default_rng(0)).choice(len(statements) - 1, SKETCHES - 1, replace=False)
    return [statements[0], *(statements[1 + place] for place in np.sort(others))]
