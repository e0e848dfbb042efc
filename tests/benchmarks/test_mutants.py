"""The mutants that the tests are measured with: one small change each, drawn evenly and always the same."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from mutants_changes import Mutant, change_of, changed_source, mutants_of, sampled

PROGRAM = '''
"""A docstring."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decimal import Decimal

Number = int | float
LIMIT = 10


def clip(value: int = 3, *, strict: bool = True) -> int | None:
    """Another."""
    if value < LIMIT and not strict:
        return -value
    if value is None:
        raise ValueError(f"{value + 1} is too much")
    print(value)
    return value * 2
'''


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "room" / "clip.py"
    path.parent.mkdir()
    path.write_text(PROGRAM)
    return path


def test_every_place_that_matters_is_changed_and_no_other(program: Path, tmp_path: Path) -> None:
    root = tmp_path
    found = {change_of(mutant, root) for mutant in mutants_of(program, root)}
    head = "def clip(value: int=3, *, strict: bool=True) -> int | None:"
    condition = "if value < LIMIT and (not strict):"
    assert found == {
        "LIMIT = 10 -> LIMIT = 11",
        f"{head} -> def clip(value: int=4, *, strict: bool=True) -> int | None:",
        f"{head} -> def clip(value: int=3, *, strict: bool=False) -> int | None:",
        f"{condition} -> if value <= LIMIT and (not strict):",
        f"{condition} -> if value >= LIMIT and (not strict):",
        f"{condition} -> if value < LIMIT or not strict:",
        f"{condition} -> if value < LIMIT and strict:",
        "return -value -> return None",
        "return -value -> return value",
        "if value is None: -> if value is not None:",
        "raise ValueError(f'{value + 1} is too much') -> pass",
        "print(value) -> pass",
        "return value * 2 -> return None",
        "return value * 2 -> return value / 2",
        "return value * 2 -> return value * 3",
    }


def test_a_mutant_is_a_program_that_differs_in_one_place(program: Path, tmp_path: Path) -> None:
    whole = ast.unparse(ast.parse(PROGRAM)).splitlines()
    for mutant in mutants_of(program, tmp_path):
        assert mutant.module == "room.clip"
        changed = changed_source(mutant, tmp_path)
        compile(changed, "clip.py", "exec")
        assert sum(one != other for one, other in zip(whole, changed.splitlines(), strict=True)) == 1


def test_a_sample_is_stratified_and_repeatable() -> None:
    def mutants(file: str, kind: str, count: int) -> list[Mutant]:
        return [Mutant(file=file, module="m", line=at, end=at, kind=kind, place=at, number=0) for at in range(count)]

    everything = mutants("a.py", "constant", 600) + mutants("a.py", "return", 300) + mutants("b.py", "return", 100)
    drawn = sampled(everything, 50, seed=1)
    assert Counter((mutant.file, mutant.kind) for mutant in drawn) == {
        ("a.py", "constant"): 30,
        ("a.py", "return"): 15,
        ("b.py", "return"): 5,
    }
    assert len({mutant.name for mutant in drawn}) == 50
    assert sampled(everything, 50, seed=1) == drawn
    assert sampled(everything, 50, seed=2) != drawn
    assert len(sampled(everything, 5000, seed=1)) == 1000
