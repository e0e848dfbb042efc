"""Rows of results as a report."""

from __future__ import annotations

import math
from typing import Any

import pytest

from bristle.report import LineKind, Source, report_of

Row = dict[str, Any]


def rows(rule: str, values: list[float], **given: Any) -> list[Row]:
    about = {"figure": "mine", "rule": rule, "attack": "alie", "peers": 6, "attackers": 2, "classes_per_peer": 4}
    about |= {"samples_per_class": 2, "seed": 0, "accuracy_min": 0.1, "bytes_sent": 2_000_000, "weight_malicious": 0.25}
    return [about | {"iteration": 10 * at, "accuracy_mean": value} | given for at, value in enumerate(values, start=1)]


def test_mean_and_band_over_seeds() -> None:
    made = [*rows("krum", [0.1, 0.50], seed=3), *rows("krum", [0.3, 0.52], seed=1), *rows("krum", [0.2, 0.6], seed=2)]
    report = report_of([*made, {**made[-1], "seeds": [1, 2, 3], "accuracy_mean": 0.54}])
    (line,) = report.sections[0].panels[0].lines
    assert (line.label, list(line.x)) == ("krum", [10, 20])
    assert line.y == pytest.approx([0.2, 0.54])
    # Student's t with two degrees of freedom is 4.3027; the standard deviations are 0.1 and 0.05292.
    assert line.low == pytest.approx([0, 0.54 - 4.3027 * 0.05292 / 3**0.5], abs=1e-4)
    assert line.high == pytest.approx([0.2 + 4.3027 * 0.1 / 3**0.5, 0.54 + 4.3027 * 0.05292 / 3**0.5], abs=1e-4)
    assert ("Seeds", "1, 2, 3") in report.facts
    assert "3 runs of 1 rule in 1 setting, with 3 seeds." in report.summary
    assert "bands their 95 % confidence intervals" in report.sections[0].text
    details = report.sections[0].tables[0]
    assert details.rows[0][details.columns.index("95 % interval")] == "0.409 to 0.671"


def test_seeds_share_a_panel_where_a_partition_draws_what_peers_hold() -> None:
    drawn = {"settings": {"partition.name": "dirichlet"}}
    report = report_of(
        [
            *rows("krum", [0.1], seed=1, classes_per_peer=7.2, samples_per_class=3.31, **drawn),
            *rows("krum", [0.1], seed=2, classes_per_peer=6.8, samples_per_class=3.33, **drawn),
            *rows("median", [0.2], seed=1, classes_per_peer=7.2, samples_per_class=3.31, **drawn),
            *rows("median", [0.2], seed=2, classes_per_peer=6.8, samples_per_class=3.33, **drawn),
        ]
    )
    (panel,) = report.sections[0].panels
    assert [line.label for line in panel.lines] == ["median", "krum"]
    assert "7.0 classes a peer, 3.3 samples a class" in panel.title


def test_one_seed_has_no_band() -> None:
    section = report_of(rows("krum", [0.1])).sections[0]
    assert section.panels[0].lines[0].low is None
    assert "band" not in section.text


def test_panels_are_named_by_what_differs() -> None:
    report = report_of(
        [*rows("krum", [0.1]), *rows("krum", [0.2], attack="none", attackers=0), *rows("krum", [0.2], attackers=1)]
    )
    section = report.sections[0]
    titles = [panel.title for panel in section.panels]
    assert titles == ["alie attack, 2 attackers", "no attack, 0 attackers", "alie attack, 1 attacker"]
    assert section.text.startswith("Everywhere here: 6 peers, 4 classes a peer, 2 samples a class.")
    alone = report_of(rows("krum", [0.1], classes_per_peer=1)).sections[0].panels[0]
    assert alone.title == "alie attack, 6 peers, 2 attackers, 1 class a peer, 2 samples a class"


def test_figures_become_sections_with_names_for_files() -> None:
    made = [
        *rows("krum", [0.1], figure="Non IID!"),
        *rows("krum", [0.1], figure="non iid"),
        *rows("krum", [0.1], figure="../.."),
    ]
    sections = report_of(made).sections
    assert [section.name for section in sections] == ["non-iid", "non-iid-2", "figure"]
    assert [section.title for section in sections] == ["Non IID!", "non iid", "../.."]


def test_references_and_who_wins() -> None:
    made = [*rows("local", [0.99]), *rows("median", [0.9]), *rows("bristle", [0.8])]
    report = report_of(made)
    section = report.sections[0]
    kinds = {line.label: line.kind for line in section.panels[0].lines}
    assert kinds == {"bristle": LineKind.RULE, "median": LineKind.RULE, "local": LineKind.REFERENCE}
    assert "Bristle ends highest of the rules in 0 of 1 setting." in report.summary
    (finding,) = section.findings
    assert finding.source is Source.OBSERVATION
    assert finding.claim.startswith("median ends above bristle")
    assert finding.measured == "median 0.900; bristle 0.800"
    won = report_of([*rows("median", [0.7]), *rows("bristle", [0.8])])
    assert not won.sections[0].findings
    assert "in 1 of 1 setting" in won.summary


def test_table_of_what_else_is_known() -> None:
    made = [*rows("krum", [0.1, 0.4]), *rows("krum", [0.3, 0.8], seed=1, accuracy_min=0.3, weight_malicious=None)]
    table = report_of(made).sections[0].tables[0]
    assert table.columns[:6] == ("Rule", "Setting", "Iteration", "Accuracy", "95 % interval", "Worst peer")
    (row,) = table.rows
    assert row[2] == 20
    assert (row[3], *row[5:7]) == pytest.approx((0.6, 0.2, 2.0))
    assert (row[4], *row[7:]) == ("0.000 to 1.000", "-", 0.25)


def test_seeds_that_stopped_early() -> None:
    section = report_of([*rows("krum", [0.1, 0.2, 0.3]), *rows("krum", [0.5, 0.6], seed=1)]).sections[0]
    assert list(section.panels[0].lines[0].x) == [10, 20]
    assert "Not every seed went equally far" in section.text
    with pytest.raises(ValueError, match="no iteration in common: 0, 1"):
        report_of([*rows("krum", [0.1]), *rows("krum", [0.1], seed=1, iteration=7)])


def test_only_what_is_needed_is_enough() -> None:
    report = report_of([{"rule": "krum", "iteration": 1, "accuracy_mean": 1}])
    assert report.sections[0].name == "results"
    assert report.sections[0].panels[0].title == "results"


def test_the_same_row_twice_is_one_and_another_is_an_error() -> None:
    once = rows("krum", [0.1])
    assert report_of(once + once).sections == report_of(once).sections
    with pytest.raises(ValueError, match=r"iteration 10 of 'krum'.*world.figure"):
        report_of(once + rows("krum", [0.2]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rule": 3}, "rule must be a name"),
        ({"iteration": 1.5}, "iteration must be a whole number, and is 1.5"),
        ({"iteration": True}, "whole number"),
        ({"seed": "a"}, "seed must be a whole number"),
        ({"accuracy_mean": None}, "accuracy_mean must be a number"),
        ({"accuracy_mean": math.nan}, "accuracy_mean must be a number, and is nan"),
        ({"bytes_sent": "many"}, "bytes_sent must be a number"),
        ({"attack": ["a"]}, "attack must be a number or a name"),
    ],
)
def test_rows_that_say_nothing(change: Row, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        report_of([rows("krum", [0.1])[0] | change])


def test_missing_columns_and_no_rows() -> None:
    with pytest.raises(ValueError, match="lacks rule, accuracy_mean"):
        report_of([{"iteration": 1}])
    with pytest.raises(ValueError, match="no rows"):
        report_of([])


def test_peers_that_learned_alone_are_named() -> None:
    nothing = {"weight_benign": 0.0, "weight_malicious": 0.0, "settings": {"partition.held_out": "5"}}
    alone, other = rows("bristle", [0.1, 0.2], **nothing), rows("local", [0.1, 0.2], **nothing)
    (finding,) = report_of([*alone, *other]).sections[0].findings
    assert finding.claim.startswith("Peers with bristle learned alone")
    assert "needs 10 held-out samples of a class to test them, and partition.held_out is 5" in finding.measured
    assert not report_of(rows("bristle", [0.1], **{**nothing, "weight_benign": 0.1})).sections[0].findings
