"""What a run was told beyond the defaults, for its rows: so that reports can tell runs of one rule apart."""

from __future__ import annotations

import hashlib
from typing import Any

from bristle.apps.simulate_config import SimulationConfig
from bristle.apps.toml_writing import value_of

HAVE_COLUMNS = frozenset({"world.figure", "world.seed", "world.peers", "world.attackers"})
HAVE_NO_EFFECT = frozenset({"world.iterations", "world.evaluate_every", "world.receivers_at_once"})
LONGEST = 40


def settings_of(config: SimulationConfig) -> dict[str, str]:
    """Return what a configuration says beyond the defaults, as text by key: `{"rule.alpha": "0.2"}`."""
    said = {
        f"{table}.{key}": value
        for table, content in config.model_dump(exclude_defaults=True).items()
        for key, value in content.items()
    }
    return {key: _text(value) for key, value in said.items() if key not in HAVE_COLUMNS | HAVE_NO_EFFECT}


def _text(value: Any) -> str:
    """Return a value as text; of a long one, such as the edges of a graph, the beginning and a digest."""
    text = value if isinstance(value, str) else value_of(value)
    digest = hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:8]
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 12]}... {digest}"
