"""Notes for users about settings that have no effect."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bristle.rules import RULES, Reason, Rule
from bristle.rules.steps import Chain
from bristle.simulation.results import attack_name, rule_name
from bristle.simulation.scenario import Scenario
from bristle.simulation.topology import All, Integers, Neighbourhoods, Senders


def scenario_notes(scenario: Scenario) -> Iterator[str]:
    """Yield a sentence for an attack without attackers, and for a rule that needs more heads than a peer can have."""
    attack = attack_name(scenario.attack)
    if attack != "none" and not scenario.attackers:
        yield f"the attack {attack!r} has no effect, since there are 0 attackers: set world.attackers"
    rule = scenario.rule.rule if isinstance(scenario.rule, Chain) else scenario.rule
    f = getattr(rule, "f", None)
    if f is None or type(rule) not in RULES.own.values():
        return
    heads = 1 + _most_heard(scenario)
    if _too_few(scenario.rule, heads):
        yield (
            f"{rule_name(scenario.rule)} with f = {f} needs more than the {heads} heads that a peer has at most, its "
            "own included, so every peer keeps its own: set a smaller rule.f, or let peers hear more"
        )


def _most_heard(scenario: Scenario) -> int:
    """Return the largest number of heads that a peer receives."""
    if isinstance(scenario.topology, All):
        return scenario.peers + scenario.attackers - 1
    around = Neighbourhoods(scenario).at(1)
    return int((_counts(around.peers) + _counts(around.attackers)).max(initial=0))


def _counts(senders: Senders) -> Integers:
    if senders.mask is None:
        return np.full(senders.index.shape[0], senders.index.shape[1])
    counts: Integers = senders.mask.sum(axis=1, dtype=np.int64)
    return counts


def _too_few(rule: Rule, heads: int) -> bool:
    """Return whether a number of heads is too small for a rule."""
    if heads < 2:
        return False
    some = np.random.default_rng(0).normal(size=(heads, 2, 3))
    return bool((rule(some[0], some[1:]).reasons == int(Reason.TOO_FEW_MODELS)).all())
