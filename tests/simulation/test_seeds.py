"""Several seeds in one call, baselines beside them, and what is made of the rows."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from bristle import simulate
from bristle._core.statistics import mean_interval
from bristle.data import Dataset
from bristle.simulation import Results, Watch

CONFIG: dict[str, Any] = {
    "world": {"peers": 5, "attackers": 1, "iterations": 20, "evaluate_every": 10, "seed": 3},
    "data": {"backbone": "none"},
    "partition": {"classes_per_peer": 2, "samples": 3, "held_out": 3},
    "rule": {"name": "bristle", "kappa": 3},
    "attack": {"name": "sign-flip"},
    "training": {"learning_rate": 0.02},
}


@pytest.fixture(scope="module")
def table() -> Dataset:
    rng = np.random.default_rng(0)
    y = np.arange(800) % 5
    x = rng.normal(size=(5, 12))[y] + rng.normal(size=(800, 12))
    return Dataset.from_arrays(x, y, name="table")


@pytest.fixture(scope="module")
def several(table: Dataset) -> Results:
    return simulate(CONFIG, data=table, seeds=3, baselines=True)


def test_each_seed_is_the_run_with_that_seed(several: Results, table: Dataset) -> None:
    alone = simulate(CONFIG, data=table, overrides=["world.seed=4"]).rows
    assert [row for row in several.rows if row["rule"] == "bristle" and row["seed"] == 4] == alone
    assert {row["seed"] for row in several.rows} == {3, 4, 5}


def test_means_over_seeds_have_a_confidence_interval(several: Results) -> None:
    last = several.last()
    ends = [row["accuracy_mean"] for row in several.rows if (row["rule"], row["iteration"]) == ("bristle", 20)]
    assert last["seeds"] == [3, 4, 5]
    assert last["accuracy_mean"] == np.mean(ends)
    assert (last["accuracy_low"], last["accuracy_high"]) == mean_interval(ends)
    assert [(row["rule"], row["iteration"]) for row in several.over_seeds()] == [
        (rule, iteration) for rule in ("local", "oracle", "bristle") for iteration in (10, 20)
    ]


def test_baselines_are_of_the_same_samples(several: Results, table: Dataset) -> None:
    alone = simulate(CONFIG | {"rule": {"name": "local"}}, data=table).rows
    assert [row for row in several.rows if row["rule"] == "local" and row["seed"] == 3] == alone
    ends = {row["rule"]: row["accuracy_mean"] for row in several.over_seeds()}
    assert ends["local"] < 0.45, "two of five classes are worth 40 % at most"
    assert ends["oracle"] > ends["local"] + 0.2
    oracle = [row for row in several.rows if row["rule"] == "oracle"]
    assert all(row["settings"].keys().isdisjoint({"rule.name", "rule.kappa"}) for row in oracle)


def test_baselines_of_local_are_the_oracle_alone(table: Dataset) -> None:
    found = simulate(CONFIG | {"rule": {"name": "local"}}, data=table, baselines=True)
    assert [row["rule"] for row in found.rows] == ["oracle", "oracle", "local", "local"]


def test_rows_come_as_they_are_made(several: Results, table: Dataset) -> None:
    seen: list[dict[str, Any]] = []
    simulate(CONFIG, data=table, seeds=3, baselines=True, watch=Watch(row=seen.append))
    assert seen == several.rows


def test_what_cannot_be_is_refused(table: Dataset, tmp_path: Any) -> None:
    with pytest.raises(ValueError, match="seeds must be"):
        simulate(CONFIG, data=table, seeds=0)
    with pytest.raises(ValueError, match="a checkpoint holds one run, not 2 seeds: leave out the checkpoint"):
        simulate(CONFIG, data=table, seeds=2, checkpoint=tmp_path / "run.npz")


class Cells(HTMLParser):
    """Collects the texts of a table's cells."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_a_notebook_shows_the_end_of_every_run(several: Results) -> None:
    cells = Cells()
    cells.feed(several._repr_html_())
    last = several.last()
    assert f"{last['accuracy_low']:.1%} to {last['accuracy_high']:.1%}" in cells.texts
    assert [text for text in cells.texts if text in ("local", "oracle", "bristle")] == ["local", "oracle", "bristle"]
    assert "<script>" not in Results([{**several.rows[0], "rule": "<script>"}])._repr_html_()
    assert Results()._repr_html_().startswith("<table>")


def test_a_table_for_pandas(several: Results) -> None:
    pandas = pytest.importorskip("pandas", reason="needs pandas: pip install pandas")
    table = several.to_pandas()
    assert isinstance(table, pandas.DataFrame)
    assert len(table) == len(several.rows)
    assert table.loc[table["rule"] == "bristle", "rule.kappa"].unique().tolist() == ["3"]
    assert "settings" not in table


def test_without_pandas_the_remedy_is_named(several: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError, match="a table needs pandas: pip install pandas"):
        several.to_pandas()
