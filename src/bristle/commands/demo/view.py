"""The demo on the terminal."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

from rich import box
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bristle._core.extras import to_install
from bristle._core.files import write_atomically
from bristle.commands.dashboard import dashboard, stay
from bristle.commands.dashboard.demo import DemoBoard
from bristle.commands.demo import SIMULATED, Demo, Row, digits, references
from bristle.commands.demo.run import DemoProcesses, running
from bristle.commands.demo.tally import Standing, Tally
from bristle.commands.jsonl import write_rows
from bristle.commands.progress import patient_bar, terminal
from bristle.commands.report import RUN
from bristle.report.live_page import recorded_page
from bristle.report.snapshot import RunState, Snapshot

BAR = 12
MOST_LINES = 20
ROWS = "rows.jsonl"


def show(demo: Demo, *, out: Path, json: Path | None = None, page: tuple[str, int] | None = None) -> None:
    """Run the demo with live progress, then print the results and where the report is.

    `page` is where to serve a live page.
    """
    demo.check()
    with dashboard(page) as feed:
        board = DemoBoard(demo, feed)
        board.show(RunState.STARTING)
        try:
            _play(demo, board, out=out, json=json)
        except BaseException:
            board.show(RunState.INTERRUPTED)
            raise
        stay(feed)


def _play(demo: Demo, board: DemoBoard, *, out: Path, json: Path | None) -> None:
    screen = terminal(stderr=True)
    with patient_bar("Extracting features (once)", console=screen) as watch:
        digits(watch)
    screen.print(_about(demo))
    live = Live(console=screen, refresh_per_second=5, transient=True) if screen.is_terminal else None
    rows: list[Row] = []
    compared: list[Row] = []
    interrupted = False
    with running(demo) as network:
        # While the processes start. Once the peers learn, they get both cores.
        ends = references(demo, row=compared.append)
        met = network.meet()
        screen.print(_found(network, met))
        samples = demo.scenario(demo.rule).samples_per_class
        began = network.began if demo.evidence else None
        tally = Tally(demo, network.members, samples_per_class=samples, began=began)
        board.follow(tally, ends=ends, compared=compared)

        def learning() -> Iterator[Row]:
            for event in network.learn():
                row = tally.take(event)
                board.look()
                if live is not None:
                    live.update(_live(tally))
                if row is not None:
                    rows.append(row)
                    if live is None and not demo.evidence:
                        screen.print(_line(row), soft_wrap=True)
                    last = demo.evidence or row["iteration"] == demo.iterations
                    yield {**row, "snapshot": board.snapshot(RunState.ENDED).to_dict()} if last else row

        try:
            with live or nullcontext():
                if json is None:
                    deque(learning(), maxlen=0)
                else:
                    write_rows(json, learning())
            if demo.evidence and rows:
                screen.print(f"{_learnt(rows[-1])} Now counting what they send when there is nothing new to say ...")
                board.show(RunState.RUNNING)
                tally.rest = network.rest()
        except KeyboardInterrupt:
            interrupted = True
            screen.print("\nStopping the peers ...")
    state = RunState.INTERRUPTED if interrupted else RunState.ENDED
    board.show(state)
    _end(demo, board.snapshot(state), tally, rows, compared, ends, out=out, json=json)
    if interrupted:
        raise KeyboardInterrupt


def _about(demo: Demo) -> str:
    lost = f", behind a relay that loses {demo.impairment.loss:.0%} of all datagrams" if demo.impairment else ""
    return (
        f"{demo.peers} peers hold {demo.classes_per_peer} of the 10 digits each, with 2 samples per class to train and "
        f"10 to test; {demo.attackers} attackers ({demo.attack}) are members of the same group. Each has its own "
        f"identity and UDP socket{lost}. Accuracy is on all 10,000 test images of MNIST."
    )


def _found(network: DemoProcesses, met: dict[int, int]) -> str:
    demo, ports = network.demo, sorted(port for _, port in network.addresses.values())
    most = demo.members - 1
    said = "everybody found everybody" if min(met.values()) == most else f"each found {min(met.values())} of {most}"
    how = "a relay's addresses" if demo.impairment else "one address"
    shown = ", ".join(map(str, ports[:MOST_LINES])) + (" ..." if len(ports) > MOST_LINES else "")
    return f"From {how}, {said}. {demo.members} UDP sockets on 127.0.0.1, ports {shown}."


def _learnt(row: Row) -> str:
    return (
        f"{row['seconds']:.1f} s after the first socket was opened: accuracy {row['accuracy_mean']:.1%}, worst peer "
        f"{row['accuracy_min']:.1%}."
    )


def _line(row: Row) -> str:
    return (
        f"iteration {row['iteration']:>4}: accuracy {row['accuracy_mean']:.1%}, worst peer {row['accuracy_min']:.1%}, "
        f"attackers' weight {row['attacker_weight']:.1%}, {row['bytes_sent'] / 1e6:.1f} MB sent by a peer, "
        f"{1 / row['round_seconds']:.2f} rounds/s"
    )


def _live(tally: Tally) -> Table:
    demo = tally.demo
    rate = tally.rounds / tally.seconds if tally.seconds > 0 else 0.0
    rounds = "" if demo.evidence else f"{rate:.2f} rounds/s, "
    sent = sum(peer.bytes_out for peer in tally.peers)
    table = Table(
        title=f"{demo.peers} peers and {demo.attackers} attackers on a real network: {demo.rule}",
        caption=f"{tally.seconds:.1f} s, {rounds}{sent / 1e6:.1f} MB sent, attackers' weight "
        f"{'' if demo.evidence else 'since the start '}{tally.whole.attackers:.2%}",
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for name in (
        "",
        "digits",
        "decision" if demo.evidence else "iteration",
        "accuracy",
        "",
        "heard",
        "attackers",
        "sent",
    ):
        table.add_column(name, justify="left" if name in ("", "digits") else "right", no_wrap=True)
    for number, peer in enumerate(tally.peers[:MOST_LINES]):
        table.add_row(*_cells(tally, number, peer))
    if demo.peers > MOST_LINES:
        table.add_row(f"and {demo.peers - MOST_LINES} more")
    return table


def _cells(tally: Tally, number: int, peer: Standing) -> list[str | Text]:
    lately = peer.lately
    return [
        f"peer {number}",
        tally.demo.holds(number),
        str(peer.iteration),
        "" if peer.accuracy is None else f"{peer.accuracy:.1%}",
        _bar(peer.accuracy or 0.0),
        f"{len(peer.heard)} of {tally.demo.members - 1}" if tally.demo.evidence else f"{tally.heard_share(lately):.0%}",
        Text(f"{lately.attackers:.1%}", style="red" if lately.attackers > 0.02 else "green"),
        _size(peer.bytes_out),
    ]


def _size(count: float) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.0f} KB"


def _bar(value: float) -> Text:
    length = round(BAR * value)
    style = "green" if value > 0.9 else "yellow" if value > 0.5 else "red"
    return Text("█" * length + "·" * (BAR - length), style=style)


def _end(
    demo: Demo,
    snapshot: Snapshot,
    tally: Tally,
    rows: list[Row],
    compared: list[Row],
    ends: dict[str, float],
    *,
    out: Path,
    json: Path | None,
) -> None:
    """Print the results and the paths of the report."""
    screen = terminal()
    if not rows:
        screen.print("No peer finished enough iterations for a row: there is nothing to report.")
        return
    screen.print(_final_table(demo, tally, rows, compared, ends))
    screen.print(
        "attackers: their share of all weight given to what others sent. sent: by one peer. Simulated rules had the "
        "same samples and attackers; "
        f"those that exchange heads ran for {demo.scenario('fedavg').iterations} iterations.",
        style="dim",
    )
    screen.print(_decisions(tally))
    screen.print(_statements_in_words(tally, rows[-1]) if demo.evidence else _rounds_in_words(tally, rows[-1]))
    screen.print(_report(demo, snapshot, rows, compared, ends, out), soft_wrap=True)
    if json is not None:
        screen.print(f"Rows: {json}", soft_wrap=True)
    sys.stdout.flush()


def _statements_in_words(tally: Tally, last: Row) -> str:
    neighbours = tally.demo.members - 1
    each = last["bytes_sent"] / max(neighbours, 1)
    rest = "" if tally.rest is None else f" From then on a peer sends {_size(tally.rest)} a minute, signs of life."
    return (
        f"{_learnt(last)} Until then a peer had sent {_size(last['bytes_sent'])}, {_size(each)} to each of "
        f"{neighbours} neighbours.{rest}"
    )


def _rounds_in_words(tally: Tally, last: Row) -> str:
    loss = f", {tally.retransmissions} datagrams sent again" if tally.retransmissions else ""
    return (
        f"{last['iteration']} iterations in {last['seconds']:.1f} s: {last['seconds'] / last['iteration']:.2f} s each. "
        f"In an iteration a peer had {tally.heard:.0%} of the other benign peers' newest heads. "
        f"A peer sent {_size(last['bytes_sent'])}{loss}."
    )


def _final_table(demo: Demo, tally: Tally, rows: list[Row], compared: list[Row], ends: dict[str, float]) -> Table:
    last = rows[-1]
    after = f"{last['seconds']:.1f} s" if demo.evidence else f"{last['iteration']} iterations"
    table = Table(
        title=f"Accuracy of the benign peers after {after}",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),  # Fits into 80 columns.
    )
    for name in ("", "accuracy", "worst peer", "attackers", "sent", ""):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    table.add_row(
        Text(f"{demo.rule} (network)", style="bold"),
        f"{last['accuracy_mean']:.1%}",
        f"{last['accuracy_min']:.1%}",
        f"{tally.whole.attackers:.2%}",
        _size(last["bytes_sent"]),
        _bar(last["accuracy_mean"]),
    )
    for rule in SIMULATED:
        found = [row for row in _comparable(demo, compared, last) if row["rule"] == rule]
        if found:
            row = found[-1]
            weight = row["weight_malicious"] / ((row["weight_benign"] + row["weight_malicious"]) or 1)
            values = f"{row['accuracy_mean']:.1%}", f"{row['accuracy_min']:.1%}", f"{weight:.2%}"
            alone = rule == "local"
            name = "local only (simulated)" if alone else f"{rule} (simulated)"
            table.add_row(name, *values, "" if alone else _size(row["bytes_sent"]), _bar(row["accuracy_mean"]))
    table.add_row("oracle (samples pooled)", f"{ends['oracle']:.1%}", "", "", "", _bar(ends["oracle"]))
    return table


def _comparable(demo: Demo, compared: list[Row], last: Row) -> list[Row]:
    """Return the rows of simulated rules as far as the network came; evidence is compared with their ends."""
    return compared if demo.evidence else [row for row in compared if row["iteration"] <= last["iteration"]]


def _decisions(tally: Tally) -> Table:
    table = Table(title="What peer 0 made of the others", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("from")
    table.add_column("decision")
    for one in sorted(tally.peers[0].heard, key=tally.number):
        table.add_row(tally.name(one.sender), Text(tally.named(one.words), style="" if one.reason == "kept" else "dim"))
    return table


def _report(
    demo: Demo, snapshot: Snapshot, rows: list[Row], compared: list[Row], ends: dict[str, float], out: Path
) -> str:
    """Write rows and, if matplotlib is installed, the report; return a line that says where."""
    from bristle.report import report_of, write  # noqa: PLC0415

    others = _comparable(demo, compared, rows[-1])
    reached = sorted({row["iteration"] for row in (*rows, *others)})
    oracle = [
        {**rows[-1], "rule": "oracle", "engine": "oracle", "iteration": at, "accuracy_mean": ends["oracle"],
         "accuracy_min": None, "bytes_sent": None, "weight_benign": None, "weight_malicious": None}
        for at in reached
    ]  # fmt: skip
    ended = {**rows[-1], "snapshot": snapshot.to_dict()}
    everything = [*rows[:-1], ended, *others, *oracle]
    write_rows(out / ROWS, everything)
    facts = [
        ("The network", f"{demo.members} members with a UDP socket and an identity each, on this machine"),
        (
            "Compared with",
            "simulated rules on the same samples under the same attack, peers that learn alone, the oracle",
        ),
        ("Processes", str(demo.processes)),
        ("Datagrams lost by a relay", f"{demo.impairment.loss if demo.impairment else 0:.0%}"),
        ("Seconds", f"{rows[-1]['seconds']:.1f}"),
    ]
    write_atomically(out / RUN, [recorded_page([snapshot], title="Bristle: the demo").encode()])
    try:
        written = write(report_of(everything, title="Bristle: the demo", facts=facts), out)
    except ModuleNotFoundError:
        return (
            f"Every decision and its reason: {out / RUN}. Rows: {out / ROWS}. "
            f"For a report with curves, {to_install('plots')} and run "
            f"bristle report {out / ROWS} --out {out}"
        )
    return f"Report: {written[0]}; {RUN}, with every decision and its reason, rows and figures are beside it."
