"""Run every rule, step and attack in small worlds through the public names alone; print digests of the results as JSON.

`same_rows.py` runs this script with both versions of the sources: on NumPy, torch and CUDA where there is a device, in
ordinary and in large worlds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np
import torch

from bristle import attacks, rules
from bristle.simulation import FeatureData, LargeWorld, RandomNeighbours, Ring, Scenario, World, on_device

CLASSES, FEATURES, ITERATIONS = 10, 24, 10
PLAIN = Scenario(
    peers=12,
    attackers=4,
    classes_per_peer=6,
    reuse=True,
    iterations=ITERATIONS,
    attack=attacks.create("alie"),
    # Fast, so that heads move far enough for rules with a fixed radius to have an effect.
    training=replace(Scenario().training, learning_rate=0.05),
)
OPTIONS: dict[str, dict[str, Any]] = {"balance": {"gamma": 5.0}, "clipping": {"f": 2}}
LARGE = replace(
    PLAIN, attack=attacks.create("label-flip"), attackers_in_graph=True, topology=RandomNeighbours(k=11), peers=20
)


def main() -> None:
    """Print the digests."""
    print(json.dumps(dict(found())))


def found() -> Iterator[tuple[str, Any]]:
    """Yield the results of all worlds by name."""
    data = samples()
    places = {"numpy": data, "torch": on_device(data, "cpu")}
    if torch.cuda.is_available():
        places["cuda"] = on_device(data, "cuda")
    for place, values in places.items():
        for name in rules.names():
            yield from ordinary(f"rule {name}, {place}", replace(PLAIN, rule=made(name)), values)
    for step in rules.steps():
        chained = rules.chain(made(step), rules.create("trimmed-mean", f=2))
        yield from ordinary(f"step {step}", replace(PLAIN, rule=chained), data)
    for name in of_heads(attacks.names):
        for rule in ("fedavg", "bristle"):
            scenario = replace(PLAIN, attack=attacks.create(name), rule=rules.create(rule))
            yield from ordinary(f"attack {name}, {rule}", scenario, data)
    for place, values in places.items():
        for name in of_heads(rules.names):
            for scenario in (LARGE, replace(LARGE, topology=Ring(reach=6))):
                shape = type(scenario.topology).__name__
                yield from large(f"large, rule {name}, {shape}, {place}", replace(scenario, rule=made(name)), values)


def of_heads(names: Callable[..., tuple[str, ...]]) -> tuple[str, ...]:
    """Return the names of rules or attacks whose peers exchange heads. Earlier versions have no others."""
    try:
        return names(shares="heads")
    except TypeError:
        return tuple(names())


def made(name: str) -> Any:
    """Return a rule or a step with its defaults, or with the options that it needs to have an effect here."""
    is_step = name in rules.steps() and hasattr(rules, "create_step")  # Earlier versions have one function for both.
    return (rules.create_step if is_step else rules.create)(name, **OPTIONS.get(name, {}))


def ordinary(name: str, scenario: Scenario, data: FeatureData) -> Iterator[tuple[str, str]]:
    """Yield digests of heads, and of the weights and reasons of the last decisions."""
    world = World(scenario, data)
    latest = world.advance()
    for _ in range(ITERATIONS - 1):
        latest = world.advance()
    yield f"{name}: heads", digest(world.heads)
    yield f"{name}: weights", digest(latest.decision.weights)
    yield f"{name}: reasons", digest(latest.decision.reasons)


def large(name: str, scenario: Scenario, data: FeatureData) -> Iterator[tuple[str, str]]:
    """Yield the digest of the heads of a large world; nothing with NumPy, or where a version refuses the world."""
    if isinstance(data.train, np.ndarray):
        return
    try:
        world = LargeWorld(scenario, data)
    except ValueError:
        return
    for _ in range(ITERATIONS):
        world.advance(weigh=False)
    yield f"{name}: heads", digest(world.heads)


def samples() -> FeatureData:
    """Return separable classes of random features, the same in both versions."""
    rng = np.random.default_rng(15)
    centres = rng.normal(size=(CLASSES, FEATURES))
    train, test = np.arange(600) % CLASSES, np.arange(100) % CLASSES
    return FeatureData(
        train=(centres[train] + rng.normal(size=(600, FEATURES))).astype(np.float32),
        train_labels=train,
        test=(centres[test] + rng.normal(size=(100, FEATURES))).astype(np.float32),
        test_labels=test,
        classes=tuple("0123456789"),
    )


def digest(values: Any) -> str:
    """Return type, shape and SHA-256 of an array, shortened."""
    array = np.ascontiguousarray(values.cpu().numpy() if isinstance(values, torch.Tensor) else values)
    return f"{array.dtype} {list(array.shape)} {sha256(array.tobytes()).hexdigest()[:16]}"


if __name__ == "__main__":
    main()
