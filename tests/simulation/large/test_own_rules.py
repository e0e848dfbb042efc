"""Rules of users in large worlds: they work as in other worlds, or it is said why the world is not a large one."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bristle import attacks, rules
from bristle.rules import Rule
from bristle.simulation import FeatureData, LargeWorld, RandomNeighbours, Scenario, World, measure, on_device, run
from bristle.simulation.large.memory import suits

TUTORIAL = Path(__file__).parents[3] / "docs" / "tutorials" / "own-rule.md"
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")),
]


def tutorial_rule(file: str, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Rule:
    """Return a rule of the tutorial, from the module that its readers save."""
    found = re.search(rf'```python title="{file}"\n(.*?)```', TUTORIAL.read_text(encoding="utf-8"), re.S)
    assert found is not None
    (tmp_path / file).write_text(found[1], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return rules.create(f"{file.removesuffix('.py')}:{name}")


@dataclass(frozen=True, kw_only=True)
class BestTested(Rule):
    """x' = the head with the most correct predictions; reads the samples themselves."""

    def decide(self, inbox: rules.Inbox, task: rules.Task) -> rules.Verdict:
        if task.evaluation is None:
            return rules.stay(inbox, rules.Reason.NOTHING_TO_TEST_ON)
        xp, (features, labels) = inbox.xp, (task.evaluation.features, task.evaluation.labels)
        assert features.shape == (*labels.shape, inbox.own.shape[1] // inbox.classes)
        right = xp.sum(xp.astype(inbox.predictions(features) == labels[:, None, :], inbox.own.dtype), axis=-1)
        best = xp.astype(right == xp.max(right, axis=-1, keepdims=True), inbox.own.dtype)
        weights = best / xp.sum(best, axis=-1, keepdims=True)
        return rules.combination(inbox, weights, rules.kept_or(xp, best[:, 1:] > 0, rules.Reason.NOT_CHOSEN))


@dataclass(frozen=True, kw_only=True)
class Owners(Rule):
    """x'_c = the mean of row c over the receiver and all who claim class c."""

    uses_claims = True

    def decide(self, inbox: rules.Inbox, task: rules.Task) -> rules.Verdict:
        assert task.claims is not None
        xp = inbox.xp
        claimed = xp.astype(task.claims, inbox.own.dtype)
        weights = xp.concat([xp.ones_like(claimed[:, :1]), claimed], axis=1)
        weights = weights / xp.sum(weights, axis=1, keepdims=True)
        reasons = rules.kept_or(xp, xp.any(task.claims, axis=2), rules.Reason.NOT_CHOSEN)
        return rules.Verdict(inbox.combine_rows(weights), lambda: weights, reasons)


class Halved(rules.FedAvg):
    """Overrides the call, which large worlds do not use."""

    def __call__(self, own: Any, received: Any, **given: Any) -> rules.Decision:
        decision = super().__call__(own, received, **given)
        decision.head = (own + decision.head) / 2
        return decision


def scenario(rule: Rule) -> Scenario:
    return Scenario(
        peers=30,
        attackers=9,
        attack=attacks.create("label-flip", classes=6),
        attackers_in_graph=True,
        classes_per_peer=3,
        topology=RandomNeighbours(k=6),
        reuse=True,
        iterations=6,
        rule=rule,
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["Nearby", "BestTested"])
def test_a_rule_of_the_tutorial_works_on_a_device(
    name: str, device: str, data: FeatureData, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rule = BestTested() if name == "BestTested" else tutorial_rule("nearby.py", "Nearby", monkeypatch, tmp_path)
    chosen = scenario(rule)
    plain = World(chosen, data)
    large = LargeWorld(replace(chosen, receivers_at_once=7), on_device(data, device))
    for _ in range(6):
        plain.advance()
        large.advance()
    np.testing.assert_allclose(large.heads.cpu().numpy(), plain.heads, rtol=0, atol=5e-5)
    chained = scenario(rules.chain(rules.Bucketing(s=2), rule))  # Rounding decides ties there.
    found, wanted = run(chained, on_device(data, device), evaluate_peers=30).last(), run(chained, data).last()
    assert found["accuracy_mean"] == pytest.approx(wanted["accuracy_mean"], abs=0.03)


@pytest.mark.parametrize("device", DEVICES)
def test_claims_reach_a_rule_that_uses_them(device: str, data: FeatureData) -> None:
    chosen = replace(scenario(Owners()), claiming=0.8)
    plain, large = World(chosen, data), LargeWorld(replace(chosen, receivers_at_once=7), on_device(data, device))
    for _ in range(6):
        latest, given = plain.advance(), large.advance(weigh=True)
    np.testing.assert_allclose(large.heads.cpu().numpy(), plain.heads, rtol=0, atol=5e-5)
    wanted = measure(plain, latest)
    assert given == pytest.approx((wanted.weight_benign, wanted.weight_malicious), abs=1e-5)
    silent = LargeWorld(replace(chosen, claiming=0.0), on_device(data, device)).advance(weigh=True)
    assert silent is not None
    assert silent[0] == 0 < silent[1]  # Only attackers claim, and they claim all.


def test_a_rule_that_overrides_the_call_runs_the_ordinary_way(data: FeatureData) -> None:
    moved, chosen = on_device(data, "cpu"), scenario(Halved())
    assert "its rule must not override __call__, as Halved does" in str(suits(chosen, moved))
    found, wanted = run(chosen, moved).last(), run(chosen, data).last()
    assert found["accuracy_mean"] == pytest.approx(wanted["accuracy_mean"], abs=1e-3)
    with pytest.raises(ValueError, match="Halved overrides __call__, which a chain does not use"):
        rules.chain(rules.Bucketing(), Halved())


def test_a_rule_with_memory_runs_the_ordinary_way(
    data: FeatureData, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    chosen = scenario(tutorial_rule("steady.py", "Steady", monkeypatch, tmp_path))
    assert "must not remember anything" in str(suits(chosen, on_device(data, "cpu")))
    assert run(chosen, on_device(data, "cpu")).last()["iteration"] == 6
