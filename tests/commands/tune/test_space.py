from __future__ import annotations

from typing import Any

import pytest

from bristle.commands.tune.space import KNOWN, chosen_parameters, ranges, spelled_out, values_of, with_values
from bristle.rules import Bristle
from bristle.simulation.build import make_rule
from bristle.simulation.config import SimulationConfig, read


def names(config: dict[str, Any], *wanted: str) -> tuple[str, ...]:
    return chosen_parameters(wanted, read(config))


def bounds(config: dict[str, Any], *wanted: str) -> dict[str, tuple[float, float, float]]:
    read_config = read(config)
    chosen = chosen_parameters(wanted, read_config)
    return {one.name: (one.low, one.now, one.high) for one in ranges(chosen, read_config, classes=10)}


def test_all_of_the_rule_and_the_learning_rate_where_the_file_has_it() -> None:
    assert names({}) == KNOWN[:-1]
    assert names({"rule": {"name": "bristle", "before": ["bucketing"]}}) == KNOWN[:-1]
    assert names({"training": {"learning_rate": 0.01}}) == KNOWN
    assert names({"training": {"batch": 3}}) == KNOWN[:-1]
    assert names({}, "eta ", " alpha", "eta") == ("eta", "alpha")
    assert names({"rule": {"name": "krum"}}, "learning_rate") == ("learning_rate",)


def test_rules_without_such_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="rule 'krum' has none of alpha"):
        names({"rule": {"name": "krum"}})
    with pytest.raises(ValueError, match="rule 'krum' has no such parameter"):
        names({"rule": {"name": "krum"}}, "eta")


def test_ranges_follow_the_world() -> None:
    found = bounds({"world": {"peers": 12}, "partition": {"classes_per_peer": 5, "held_out": 20}})
    assert found["beta"] == (1, 11, 11)
    assert found["phi"] == (1, 3, 4)
    assert found["kappa"] == (1, 10, 20)
    assert found["alpha"] == (0, 0.4, 1)
    assert found["familiar.share"][1] == 0.4
    found = bounds({"partition": {"name": "dirichlet", "alpha": 0.1, "samples": 5}})
    assert found["phi"] == (1, 3, 9)


def test_what_the_file_says_is_always_within() -> None:
    rule = {"kappa": 40, "eta": 300.0, "phi": 7, "foreign": [200, 180], "familiar": [0.5, 0]}
    found = bounds({"rule": rule, "training": {"learning_rate": 1.0}})
    assert all(low <= now <= high for low, now, high in found.values())
    assert found["kappa"][2] == 40
    assert found["foreign.share"][2] == 0.9
    assert found["familiar.w1"][0] == 0.5
    with pytest.raises(ValueError, match="gives every model weight 0"):
        bounds({"rule": {"foreign": [0, 1]}})


def test_values_take_the_place_of_the_files_and_nothing_else_changes() -> None:
    config = read({"world": {"peers": 3}, "rule": {"eta": 5.0, "phi": 2}, "training": {"batch": 4}})
    values = {"alpha": 0.123456, "beta": 7, "foreign.w1": 20.0, "foreign.share": 0.25, "learning_rate": 0.00123456}
    new = with_values(config, values)
    assert make_rule(new.rule) == Bristle(alpha=0.123, beta=7, foreign=(20, 5), eta=5, phi=2)
    assert (new.training.learning_rate, new.training.batch, new.world.peers) == (0.00123, 4, 3)
    assert values_of(new, ["alpha", "foreign", "learning_rate", "kappa"]) == {
        "alpha": 0.123,
        "foreign": [20.0, 5.0],
        "learning_rate": 0.00123,
        "kappa": 10,
    }
    assert with_values(config, {}) == config
    assert isinstance(new, SimulationConfig)


def test_defaults_can_be_spelled_out() -> None:
    config = read({"rule": {"eta": 5.0}})
    spelled = spelled_out(config, ["alpha", "eta", "familiar", "learning_rate"])
    assert spelled.rule.options == {"eta": 5.0, "alpha": 0.4, "familiar": [10, 4]}
    assert spelled.training.model_fields_set == {"learning_rate"}
    assert make_rule(spelled.rule) == make_rule(config.rule)
