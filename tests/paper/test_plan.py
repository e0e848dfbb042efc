"""What must be run: each world once, whoever shows it."""

from __future__ import annotations

from bristle import rules
from bristle.paper import Entry, Wanted, entries, figures, rows, tasks
from bristle.paper.declaration import PAPER, full


def wanted(*names: str, **options: object) -> Wanted:
    found = {figure.name: figure for figure in figures()}
    return Wanted(figures=tuple(found[name] for name in names), **options)  # type: ignore[arg-type]


def labels(lines: list[Entry]) -> set[str]:
    return {line.label for line in lines}


def test_the_papers_six_and_two_reference_lines_are_compared() -> None:
    lines = entries(wanted("byzantine-non-iid"))
    assert labels(lines) >= {"fedavg", "median", "krum", "bridge", "mozi", "bristle", "fedavg-tuned", "local", "oracle"}
    assert {line.seed for line in lines} == {0, 1, 2}


def test_rules_are_as_in_the_paper() -> None:
    found = {contender.label: contender for contender in PAPER}
    assert dict(found["krum"].options) == {"f": 4}
    assert (found["bridge"].rule, dict(found["bridge"].options)) == ("trimmed-mean", {"f": 4})
    assert dict(found["mozi"].options) == {"rho": 0.5}
    assert dict(found["bristle"].options) == {}


def test_the_full_set_has_every_registered_rule_and_the_five_scores() -> None:
    assert {contender.rule for contender in full()} == set(rules.names())
    scores = {contender.options.get("score", "split") for contender in full() if contender.rule == "bristle"}
    assert scores == {"split", "literal", "leave-out", "author", "cubic"}
    assert len({contender.label for contender in full()}) == len(full())


def test_a_world_that_two_figures_show_is_run_once() -> None:
    one, other = entries(wanted("attackers")), entries(wanted("degree"))
    both = entries(wanted("attackers", "degree"))
    assert len(both) == len(one) + len(other)
    shared = {line.task.text for line in one} & {line.task.text for line in other}
    assert len(tasks(both)) == len(tasks(one)) + len(tasks(other)) - len(shared)
    assert len(shared) >= len(PAPER) * 3


def test_local_and_oracle_are_run_once_for_all_attacks() -> None:
    lines = entries(wanted("byzantine-non-iid"))
    for label in ("local", "oracle"):
        assert len({line.task.text for line in lines if line.label == label}) == 3


def test_long_tasks_come_first() -> None:
    costs = [task.cost for task in tasks(entries(wanted("connection-ratio", "intro", "sybil")))]
    assert costs == sorted(costs, reverse=True)


def test_rows_keep_the_plans_order_and_say_where_they_belong() -> None:
    lines = entries(wanted("attackers", "degree", seeds=1))
    results = {
        task.text: [{"rule": "?", "attack": "none", "attackers": 0, "bytes_sent": 9, "iteration": 10}]
        for task in reversed(tasks(lines))
    }
    found = rows(lines, results)
    assert [(row["figure"], row["panel"], row["rule"]) for row in found] == [
        (line.figure.name, line.panel.name if line.panel else "", line.label) for line in lines
    ]
    local = next(row for row in found if row["rule"] == "local" and row["panel"] == "10+24")
    assert (local["attack"], local["attackers"], local["bytes_sent"]) == ("label-flip", 24, 0)


def test_what_was_not_run_has_no_rows() -> None:
    assert rows(entries(wanted("intro")), {}) == []


def test_regular_learning_belongs_to_the_full_set() -> None:
    assert "regular" not in {line.task.kind for line in entries(wanted("regular-vs-transfer"))}
    lines = [line for line in entries(wanted("regular-vs-transfer", full=True)) if line.task.kind == "regular"]
    assert labels(lines) == {"fedavg", "median", "krum", "bridge"}


def test_figures_name_rules_that_there_are() -> None:
    for figure in figures():
        found = wanted(figure.name, full=figure.when != "always").contenders(figure)
        assert {contender.label for contender in found} >= set(figure.only)
