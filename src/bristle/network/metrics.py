"""A peer's figures for Prometheus, in its text format (version 0.0.4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bristle.peer.status import Status

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Metric:
    """One figure: its name, what it means, its kind, and a value for each set of labels."""

    name: str
    help: str
    kind: str
    values: tuple[tuple[Labels, float], ...]

    def lines(self) -> Iterable[str]:
        """Yield the metric as lines of text."""
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} {self.kind}"
        for labels, value in self.values:
            told = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
            yield f"{self.name}{{{told}}} {_number(value)}" if told else f"{self.name} {_number(value)}"


def render(status: Status) -> str:
    """Return everything that is measured of a peer."""
    return "".join(f"{line}\n" for metric in _metrics(status) for line in metric.lines())


def _metrics(status: Status) -> Iterable[Metric]:
    last, counters = status.last, status.counters
    yield _gauge("bristle_iteration", "Iterations that the peer has done.", status.iteration)
    yield _gauge("bristle_neighbours", "Peers of the group that are in touch now.", len(status.neighbours))
    yield _gauge("bristle_waiting", "1 while a condition or a cap holds the peer back.", status.waiting is not None)
    yield _gauge("bristle_bytes_sent_last_day", "UDP payload sent in the last 24 hours.", status.bytes_last_day)
    for name, words in (
        ("bytes_in", "UDP payload received."),
        ("bytes_out", "UDP payload sent."),
        ("heads_in", "Heads received whole and found well signed."),
        ("heads_out", "Heads that a neighbour acknowledged."),
        ("heads_given_up", "Heads that no acknowledgement came for."),
        ("retransmissions", "Chunks that were sent again."),
    ):
        yield Metric(f"bristle_{name}_total", words, "counter", (({}, counters.get(name, 0)),))
    refused = {name.removeprefix("refused."): count for name, count in counters.items() if name.startswith("refused.")}
    yield Metric(
        "bristle_refused_total",
        "What came from outside and was not taken, by reason.",
        "counter",
        tuple(({"reason": kind}, count) for kind, count in sorted(refused.items())),
    )
    yield Metric(
        "bristle_samples",
        "Samples that the peer holds, by class and use.",
        "gauge",
        tuple(
            ({"class": one.name, "use": use}, count)
            for one in status.samples
            for use, count in (("training", one.training), ("held-out", one.held_out))
        ),
    )
    if last is not None:
        yield _gauge("bristle_last_iteration_timestamp_seconds", "When the last iteration ended.", last.at)
        yield _gauge("bristle_last_iteration_seconds", "How long integrating and training took.", last.seconds)
        reasons = sorted({one.reason for one in last.heard})
        yield Metric(
            "bristle_last_heard",
            "Heads received before the last iteration, by what became of them.",
            "gauge",
            tuple(({"reason": reason}, sum(one.reason == reason for one in last.heard)) for reason in reasons),
        )
        yield _gauge("bristle_last_share", "Share of the head that came from others.", sum(o.share for o in last.heard))
    if status.accuracy is not None:
        yield _gauge("bristle_accuracy", "Accuracy on the test set that the peer was given.", status.accuracy)


def _gauge(name: str, words: str, value: float) -> Metric:
    return Metric(name, words, "gauge", (({}, float(value)),))


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
