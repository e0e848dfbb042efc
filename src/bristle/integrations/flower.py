"""A strategy for Flower that aggregates with any rule of Bristle, and says of every client what became of its model.

    from bristle import rules
    from bristle.integrations.flower import RuleStrategy

    strategy = RuleStrategy(rule=rules.Krum(f=3))
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=10)

Needs Flower with its message-based strategies (1.22 or newer, `pip install flwr`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from io import BytesIO
from logging import INFO
from typing import Any

import numpy as np

try:
    from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
    from flwr.common.logger import log
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import FedAvg, Result
except ImportError as error:
    raise type(error)(
        f"bristle.integrations.flower needs Flower 1.22 or newer: pip install 'flwr>=1.22' ({error})", name=error.name
    ) from None

from bristle.integrations.layout import Layout, check_rule_fits
from bristle.learning.metrics import Evaluation
from bristle.rules import Context, Decision, Reason, Rule, stack

# Reasons with which rules keep the own head for want of something: there is no answer then.
NO_ANSWER = (Reason.ABSENT, Reason.TOO_FEW_MODELS, Reason.NOT_USED, Reason.NOTHING_TO_TEST_ON)
# A header of NumPy's format takes 64 to some hundred bytes.
LONGEST_HEADER = 4096


@dataclass(frozen=True)
class Fate:
    """What became of a client's model in a round: its share of the new one, and why."""

    share: float
    why: str

    @property
    def used(self) -> bool:
        """Whether any of it is in the new model."""
        return self.share > 0


class RuleStrategy(FedAvg):  # type: ignore[misc]
    """Flower's `FedAvg` with a rule of Bristle for the aggregation.

    Rules that count all heads alike (`Rule.symmetric`: Krum, medians, MDA, ...) aggregate the clients' models alone.
    For the others, such as `bristle`, `balance` or `mozi`, the server takes the place of a peer: with the current
    global model or, with `train`, with what it makes of it on its own samples; then it takes part with every rule.
    A rule weighs models by what they are, never by the number of examples that clients state. Replies that do not fit
    are left out with a reason, and stop nothing.

    Parameters
    ----------
    rule : Rule
        How to aggregate, e.g. `rules.Krum(f=3)` or `Bristle()`.
    evaluation : Evaluation, optional
        The server's held-out samples, for rules that test: features [T, D] as the head gets them, and labels [T].
    head : tuple of str
        For rules that test: the names of the weights [C, D], and of the bias [C] if there is one. Clients send nothing
        else.
    train : callable, optional
        `train(round, arrays) -> arrays` trains the global model, an `ArrayRecord`, on the server's own samples.
    seed : int
        For rules that draw random numbers.
    **options
        Those of Flower's `FedAvg`: `fraction_train`, `min_train_nodes`, ...

    Attributes
    ----------
    fates : dict
        For each round, a `Fate` for each client by node id.
    """

    def __init__(
        self,
        *,
        rule: Rule,
        evaluation: Evaluation | None = None,
        head: tuple[str, ...] = (),
        train: Callable[[int, ArrayRecord], ArrayRecord] | None = None,
        seed: int = 0,
        **options: Any,
    ) -> None:
        check_rule_fits(rule, head=head, evaluation=evaluation, own_update=train is not None)
        super().__init__(**options)
        self.rule = rule
        self.fates: dict[int, dict[int, Fate]] = {}
        self._evaluation, self._head, self._train = evaluation, head, train
        self._rng = np.random.default_rng(seed)
        self._rounds = 1
        self._sent: ArrayRecord | None = None
        self._state: Mapping[str, Any] | None = None

    def summary(self) -> None:
        """Log the rule and the settings of the strategy."""
        log(INFO, "\t├──> Rule: %r", self.rule)
        super().summary()

    def start(self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int = 3, **options: Any) -> Result:
        """Run the rounds, as Flower's strategies do."""
        self._layout(initial_arrays)  # What does not fit is said before anybody trains.
        self._rounds = max(1, num_rounds)
        return super().start(grid, initial_arrays, num_rounds, **options)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send the model to clients, and remember it."""
        self._sent = arrays
        messages: Iterable[Message] = super().configure_train(server_round, arrays, config, grid)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate the models of a round by the rule; None for the model if there is none to go on with."""
        if self._sent is None:
            raise ValueError("aggregate_train needs the model that was sent: call configure_train or start first")
        layout, sent = self._layout(self._sent), self._sent
        received = sorted(replies, key=lambda message: message.metadata.src_node_id)
        fates, nodes, models, contents = {}, [], [], {}
        for message in received:
            node = message.metadata.src_node_id
            if message.has_error():
                fates[node] = Fate(0.0, f"no model: {message.error.reason}")
                continue
            nodes.append(node)
            contents[node] = message.content
            models.append(_head_of(message.content, self.arrayrecord_key, layout))
        arrays, found = self._aggregate(server_round, layout, sent, nodes, models)
        fates |= found
        self.fates[server_round] = fates
        for node, fate in fates.items():
            log(INFO, "\t> client %d: %s", node, fate.why)
        used = [contents[node] for node in nodes if found[node].used]
        metrics = self._metrics(used, self.train_metrics_aggr_fn) or MetricRecord()
        metrics["clients-used"] = len(used)
        metrics["clients-left-out"] = len(fates) - len(used)
        return arrays, metrics

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Average the metrics of clients; those that do not fit are left out."""
        valid, _ = self._check_and_log_replies(replies, is_train=False, validate=False)
        return self._metrics([message.content for message in valid], self.evaluate_metrics_aggr_fn)

    def _layout(self, arrays: ArrayRecord) -> Layout:
        layout = Layout.of({name: _Stated(array) for name, array in arrays.items()}, self._head)
        if self._evaluation is not None and self._head:
            layout.evaluation(self._evaluation)
        return layout

    def _aggregate(
        self, server_round: int, layout: Layout, sent: ArrayRecord, nodes: list[int], models: list[Any]
    ) -> tuple[ArrayRecord | None, dict[int, Fate]]:
        """Return the new model, if the rule has an answer, and what became of each."""
        before = layout.to_head({name: array.numpy() for name, array in sent.items()})
        received, usable, refusals = stack(before, models)
        places = np.flatnonzero(usable)
        fates = {node: Fate(0.0, Reason(int(code)).words) for node, code in zip(nodes, refusals, strict=True)}
        own, first = before, 0
        if self._train is not None:
            own = _trained(self._train(server_round, sent), layout)
        elif self.rule.symmetric:
            first = 1  # One of the clients' models stands in the place of the own one.
        # A single model is no majority of anything.
        if len(places) <= first:
            return None, fates | {nodes[i]: Fate(0.0, Reason.TOO_FEW_MODELS.words) for i in places}
        if first:
            own = received[places[0]]
        others = places[first:]
        senders = np.array([nodes[i] & (2**63 - 1) for i in others], dtype=np.int64)
        decision = self.rule(
            own,
            received[others],
            evaluation=None if self._evaluation is None or not self._head else layout.evaluation(self._evaluation),
            context=Context(
                iteration=server_round,
                total=max(self._rounds, server_round),
                previous=before if first or self._train is not None else None,
                senders=senders,
                state=self._state,
            ),
            rng=self._rng,
        )
        shares = np.asarray(decision.weights).mean(axis=-1)
        fates |= {nodes[i]: _fate(decision, place, shares) for place, i in enumerate(others)}
        if all(Reason(int(code)) in NO_ANSWER for code in decision.reasons):
            words = Reason(int(decision.reasons[0])).words
            return None, fates | {nodes[i]: Fate(0.0, words) for i in places}
        if first:
            share = max(0.0, 1 - float(shares.sum()))
            share = share if share > 1e-6 else 0.0
            words = _words(share) if share else _left_out(decision)
            fates[nodes[places[0]]] = Fate(share, words)
        self._state = decision.state
        arrays = layout.from_head(np.asarray(decision.head))
        return ArrayRecord({name: Array(np.ascontiguousarray(value)) for name, value in arrays.items()}), fates

    def _metrics(
        self, contents: list[RecordDict], aggregate: Callable[[list[RecordDict], str], MetricRecord]
    ) -> MetricRecord | None:
        """Aggregate what clients measured; without those whose numbers are not like most others', or not finite."""
        forms = [_form(content, self.weighted_by_key) for content in contents]
        form = next((form for form, _ in Counter(filter(None, forms)).most_common(1)), None)
        kept = [content for content, own in zip(contents, forms, strict=True) if own is not None and own == form]
        return aggregate(kept, self.weighted_by_key) if kept else None


@dataclass(frozen=True)
class _Stated:
    """Shape and type that Flower's array states, without reading it."""

    array: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        try:
            kind: np.dtype[Any] = np.dtype(self.array.dtype)
        except TypeError:
            raise ValueError(f"an array of type {self.array.dtype} cannot be aggregated; send it as float32") from None
        return kind


def _head_of(content: RecordDict, key: str, layout: Layout) -> Any:
    """Return a client's model as a head; what `stack` refuses with a reason, if it is not one."""
    records = content.array_records
    record = records.get(key) or (next(iter(records.values())) if len(records) == 1 else None)
    if record is None or set(record) != set(layout.shapes):
        return np.empty(0)  # Refused for its shape.
    try:
        return layout.to_head({name: _read(record[name], layout, name) for name in layout.shapes})
    except (TypeError, ValueError, UnicodeDecodeError):
        return np.empty(0)


def _read(array: Array, layout: Layout, name: str) -> Any:
    """Read an array of the expected shape and type; nothing is allocated for what a header merely claims."""
    shape, kind = layout.shapes[name], layout.types[name]
    size = math.prod(shape) * kind.itemsize
    data = bytes(array.data)
    if not size < len(data) <= size + LONGEST_HEADER:
        raise ValueError("another number of bytes")
    stream = BytesIO(data)
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    found, transposed, dtype = read(stream)
    if found != shape or dtype != kind or len(data) - stream.tell() != size:
        raise ValueError("another shape or type")
    return np.frombuffer(data, dtype, offset=stream.tell()).reshape(shape, order="F" if transposed else "C")


def _trained(arrays: ArrayRecord, layout: Layout) -> Any:
    if not isinstance(arrays, ArrayRecord) or not layout.fits({n: _Stated(a) for n, a in arrays.items()}):
        raise ValueError("train= must return an ArrayRecord with the arrays that it was given, changed in their values")
    return layout.to_head({name: array.numpy() for name, array in arrays.items()})


def _fate(decision: Decision, place: int, shares: Any) -> Fate:
    reason = Reason(int(decision.reasons[place]))
    if reason not in (Reason.KEPT, Reason.CLIPPED):
        return Fate(0.0, reason.words)
    share = float(shares[place])
    return Fate(share, _words(share, reason))


def _words(share: float, reason: Reason = Reason.KEPT) -> str:
    return f"{reason.words}: {share:.1%} of the model"


def _left_out(decision: Decision) -> str:
    """Return the words for the client in the own place: those with which the rule left out others, if any."""
    codes = [Reason(int(code)) for code in decision.reasons]
    return next((code.words for code in codes if code not in (Reason.KEPT, Reason.CLIPPED)), _words(0.0))


def _form(content: RecordDict, weight: str) -> tuple[Any, ...] | None:
    """Return names and lengths of a reply's metrics, or None if they cannot be averaged."""
    records = list(content.metric_records.values())
    if len(records) != 1:
        return None
    values = {name: np.atleast_1d(np.asarray(value, dtype=np.float64)) for name, value in records[0].items()}
    examples = records[0].get(weight)
    if isinstance(examples, list) or not examples or not (math.isfinite(examples) and examples > 0):
        return None
    if not all(np.isfinite(value).all() for value in values.values()):
        return None
    return tuple(sorted((name, isinstance(records[0][name], list), len(value)) for name, value in values.items()))
