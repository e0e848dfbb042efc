from __future__ import annotations

import tomllib
from datetime import date
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bristle.simulation.config import SimulationConfig, read, toml_of

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
scalars = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | words
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=4,
)


@settings(max_examples=60)
@given(st.dictionaries(words.filter(lambda key: key != "name"), values, max_size=4))
def test_what_is_written_is_read_again(options: dict[str, Any]) -> None:
    content = {"world": {"figure": 'a "quoted" \\ one\x7f'}, "attack": {"name": "mine:Attack", **options}}
    assert tomllib.loads(toml_of(SimulationConfig.model_validate(content))) == content


def test_about_is_a_comment() -> None:
    config = read({"world": {"peers": 3}, "data": {"train_samples": None}})
    assert toml_of(config, about="Found.\n\nBy us.") == "# Found.\n#\n# By us.\n\n[world]\npeers = 3\n\n[data]\n"


@pytest.mark.parametrize(
    "config", [{}, {"rule": {"before": ["nearest-neighbour-mixing", {"name": "bucketing", "s": 3}]}}]
)
def test_a_configuration_survives(config: dict[str, Any]) -> None:
    assert read(tomllib.loads(toml_of(read(config)))) == read(config)


def test_dates_are_written_as_they_are_said() -> None:
    config = SimulationConfig.model_validate({"attack": {"name": "x", "since": date(2026, 1, 2)}})
    assert tomllib.loads(toml_of(config))["attack"]["since"] == date(2026, 1, 2)
