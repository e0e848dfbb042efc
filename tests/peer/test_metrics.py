from __future__ import annotations

import re
from dataclasses import replace

from bristle.peer.http import render
from bristle.peer.record import Heard, HeardClass, Iteration
from bristle.peer.status import ClassCount, NeighbourStatus, Status

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(rf'({NAME})(?:\{{((?:{NAME}="(?:[^"\\\n]|\\[\\"n])*",?)*)\}})? (-?[0-9.e+-]+)')


def status() -> Status:
    heard = tuple(
        Heard(sender="ab" * 20, iteration=1, share=share, reason=reason, words=reason)
        for share, reason in ((0.25, "kept"), (0.125, "kept"), (0.0, "uncertain"))
    )
    return Status(
        running=True,
        key_id="cd" * 20,
        application="digits",
        iteration=12,
        samples=(ClassCount(name='a "b"\\\n', training=4, held_out=2),),
        counters={"bytes_in": 10**10, "heads_in": 3, "refused.wrong group": 5},
        bytes_last_day=99,
        last=Iteration(iteration=12, at=1000.25, seconds=0.004, heard=heard),
        accuracy=0.9,
        neighbours=(
            NeighbourStatus(key_id="ab" * 20, address="192.0.2.1:1", silent=0.1),
            NeighbourStatus(key_id="cd" * 20, address=None, silent=0.2, reached="forwarded", forwarder="ab" * 20),
        ),
    )


def test_every_line_is_of_the_text_format() -> None:
    text = render(status())
    assert text.endswith("\n")
    kinds: dict[str, str] = {}
    values: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in kinds
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            found = SAMPLE.fullmatch(line)
            assert found, line
            assert found[1] in kinds
            assert found[1].startswith("bristle_")
            assert (kinds[found[1]] == "counter") == found[1].endswith("_total")
            values[f"{found[1]}{{{found[2] or ''}}}"] = float(found[3])
    assert values["bristle_iteration{}"] == 12
    assert values["bristle_bytes_in_total{}"] == 10**10
    assert values['bristle_refused_total{reason="wrong group"}'] == 5
    assert values['bristle_last_heard{reason="kept"}'] == 2
    assert values["bristle_last_share{}"] == 0.375
    assert values['bristle_samples{class="a \\"b\\"\\\\\\n",use="training"}'] == 4
    assert values["bristle_last_iteration_timestamp_seconds{}"] == 1000.25
    assert values["bristle_neighbours{}"] == 2
    assert [values[f'bristle_neighbours_reached{{way="{way}"}}'] for way in ("directly", "locally", "forwarded")] == [
        *(1, 0, 1)
    ]


def test_statements_are_counted_by_what_became_of_them_and_of_their_means() -> None:
    means = tuple(
        HeardClass(label=label, count=12, share=0.2, reason=reason, words=reason)
        for label, reason in ((0, "kept"), (1, "kept"), (2, "dissents"))
    )
    heard = Heard(sender="ab" * 20, number=7, expires=9, share=0.2, reason="kept", words="kept", classes=means)
    told = replace(status(), decided=Iteration(iteration=3, at=1.0, seconds=0.1, heard=(heard,)))
    text = render(told)
    assert 'bristle_statements{reason="kept"} 1\n' in text
    assert 'bristle_statement_means{reason="dissents"} 1\n' in text
    assert 'bristle_statement_means{reason="kept"} 2\n' in text
    assert "bristle_statement" not in render(status()).replace("bristle_statements_in", "").replace(
        "bristle_statements_out", ""
    )
    assert Status.from_dict(told.to_dict()) == told


def test_a_status_comes_back_from_json() -> None:
    assert Status.from_dict(status().to_dict()) == status()


def test_what_is_not_known_yet_is_left_out() -> None:
    text = render(replace(status(), last=None, accuracy=None))
    assert "bristle_iteration 12" in text
    assert "bristle_last" not in text
    assert "bristle_accuracy" not in text
