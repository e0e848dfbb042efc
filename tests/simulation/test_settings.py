"""What rows say of a run's settings."""

from __future__ import annotations

from bristle.simulation.config import LONGEST, read, settings_of


def test_what_is_said_beyond_the_defaults() -> None:
    assert settings_of(read({})) == {}
    said = {
        "world": {"peers": 10, "seed": 3, "figure": "mine", "share_noise": 0.5},
        "rule": {"name": "bristle", "alpha": 0.2, "before": ["bucketing"]},
        "topology": {"name": "ring"},
    }
    assert settings_of(read(said)) == {
        "world.share_noise": "0.5",
        "rule.alpha": "0.2",
        "rule.before": '["bucketing"]',
        "topology.name": "ring",
    }


def test_long_values_are_short_and_still_differ() -> None:
    graphs = [[[0, node] for node in range(1, count)] for count in (99, 100)]
    texts = [settings_of(read({"topology": {"name": "edges", "edges": edges}}))["topology.edges"] for edges in graphs]
    assert texts[0] != texts[1]
    assert texts[0].startswith("[[0, 1], [0, 2]")
    assert all(len(text) <= LONGEST for text in texts)
    assert settings_of(read({"world": {"device": "\udcff" * 99}}))["world.device"]
