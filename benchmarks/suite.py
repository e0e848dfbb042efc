"""All benchmarks by one command, and one page of what they gave.

    make bench            (or: python benchmarks/suite.py [--quick] [--only rounds,field] [--page docs/benchmarks.md])

Every part is a script of its own, run one after another; what it prints goes between the markers of the page, with the
command that made it. A part that fails is named, and the others go on. Results are kept in a folder, so that some
parts can be run again while the page shows the others as they were.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent
START, END = "<!-- results: written by benchmarks/suite.py -->", "<!-- end of results -->"
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Part:
    """One benchmark: its script, further words, the title of its section and what is said under it."""

    script: str
    title: str
    about: str
    words: tuple[str, ...] = ()
    page: str = ""
    threads: str = "1"

    @property
    def name(self) -> str:
        """What the part is called."""
        return self.script.removesuffix(".py")

    @property
    def command(self) -> str:
        """The command that makes its results again."""
        page = f" --out {self.page}" if self.page else ""
        alone = [f"OMP_NUM_THREADS={self.threads}"] if self.threads else []
        return " ".join([*alone, f"python benchmarks/{self.script}", *self.words]) + page


PARTS = (
    Part(script="rules.py", title="Rules, one receiver", page="docs/benchmarks-rules.md", threads="1", about="Every "
         "rule that ByzFL or ByzPy has as well, on equal numbers, with equal results."),
    Part(script="receivers.py", title="Rules, ten receivers at once", page="docs/benchmarks-receivers.md",
         about="Ten peers that hear each other, against a loop over receivers that calls ByzFL."),
    Part(script="training.py", title="Training", page="docs/training-speed.md", about="A batch of peers in one call."),
    Part(script="rounds.py", title="Simulated rounds", about="10 honest peers, 5 attackers, milliseconds of processor "
         "a round. In ours and in ByzPy's every peer has a model of its own and aggregates for itself, ten times a "
         "round; ByzFL has one model and a server that aggregates once. ByzPy's runner sleeps 0.1 s a round and 0.1 s "
         "for each attacker, and does not use what it aggregates; its nodes, called without it, do. Accuracy is that "
         "after 101 rounds (21 of the runner's), of rules and optimisers that differ: it shows that all learn, not who "
         "learns best."),
    Part(script="connected.py", title="Time of an iteration against connected peers", words=("--figure",
         "docs/connected-peers.png"), about="Milliseconds of processor for one iteration of one peer: integrate, "
         "then train."),
    Part(script="field.py", title="A round over real sockets", about="One mini-batch a round at each peer, loopback. "
         "Ours sends to everybody, signed and with neighbours that proved who they are; Flower's clients talk to a "
         "server, and p2pfl's peers to each other, both unencrypted and unsigned here (p2pfl's package holds no "
         "certificates). Bytes are all that crossed the loopback device, divided by the peers; memory is "
         "of all processes, without what they share. p2pfl is asked for 10 rounds, and its nodes may stall before. "
         "Ours is tested every 5 rounds, so that its round of 90 % is a multiple of 5."),
    Part(script="footprint.py", title="What it takes to have it", about="Sizes of installed files with all "
         "requirements, without pip and setuptools; processor time of an import in a new process, less that of an "
         "empty one; peak memory of 20 simulated rounds of 10 peers and 5 attackers."),
)  # fmt: skip


def machine() -> str:
    """Describe the machine."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists() and (found := re.search(r"model name\s*:\s*(.+)", cpuinfo.read_text(encoding="utf-8"))):
        model = found[1]
    memory = psutil.virtual_memory().total / 2**30
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "torch"))
    return (
        f"{os.cpu_count()} processors ({model}), {memory:.0f} GiB of memory, {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}, {versions}"
    )


def run(part: Part, keep: Path, quick: bool) -> str:
    """Run a part and keep what it gave; return what went wrong."""
    rows, result = keep / f"{part.name}.rows.json", keep / f"{part.name}.json"
    result.unlink(missing_ok=True)
    words = [sys.executable, str(ROOT / "benchmarks" / part.script), *(["--quick"] if quick else [])]
    if part.page:
        words += ["--out", str(keep / f"{part.name}.md" if quick else ROOT / part.page)]
    else:
        words += ["--json", str(rows)]
        words += [str(keep / Path(word).name) if quick and word.startswith("docs/") else word for word in part.words]
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    if part.threads:
        environment["OMP_NUM_THREADS"] = part.threads
    before, began = os.getloadavg()[0], time.monotonic()
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False, cwd=ROOT, env=environment)
    if done.returncode:
        return f"{part.script} ended with {done.returncode}"
    found = {
        "text": done.stdout.strip(),
        "rows": json.loads(rows.read_text(encoding="utf-8")) if rows.exists() else [],
        "load": [before, os.getloadavg()[0]],
        "seconds": time.monotonic() - began,
    }
    rows.unlink(missing_ok=True)
    result.write_text(json.dumps(found), encoding="utf-8")
    return ""


def of_rules(text: str) -> list[str]:
    """Sum up what `rules.py` printed: for every size the middle ratio, and where ours is behind."""
    found, size, column = list[str](), "", 0
    ratios: dict[str, dict[str, float]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("## "):
            size = line[3:]
        elif "best of all / Bristle" in cells:
            column = cells.index("best of all / Bristle")
            ratios[size] = {}
        elif size in ratios and len(cells) > column and re.fullmatch(r"[\d.]+", cells[column]):
            ratios[size][cells[0]] = float(cells[column])
    for name, some in ratios.items():
        found.append(_line(f"rule latency, {name}", "quickest of ByzFL and ByzPy", some))
    return found


def of_receivers(text: str) -> list[str]:
    """Sum up what `receivers.py` printed."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    some = {cells[0]: float(cells[4]) for cells in rows if len(cells) > 5 and re.fullmatch(r"[\d.]+", cells[4])}
    return [_line("ten receivers at once, 15 heads of 10 x 800", "a loop of ByzFL's", some)] if some else []


def of_rounds(rows: list[Row]) -> list[str]:
    """Sum up simulated rounds: for each network, ours against each of the others."""
    found = []
    for network in dict.fromkeys(row["network"] for row in rows):
        for other in ("ByzFL", "ByzPy nodes", "ByzPy runner"):
            some = {
                row["rule"]: row["found"][other]["milliseconds"] / row["found"]["Bristle"]["milliseconds"]
                for row in rows
                if row["network"] == network and other in row["found"]
            }
            if some:
                found.append(_line(f"simulated round, {network}", other, some))
    return found


def of_field(rows: list[Row]) -> list[str]:
    """Sum up rounds over sockets: ours with bristle against each of the others."""
    found = []
    measures = {"seconds": "time of a round", "bytes": "bytes of a round and peer", "memory": "peak memory",
                "good_bytes": "bytes of a peer to 90 %"}  # fmt: skip
    for peers in dict.fromkeys(row["peers"] for row in rows):
        some = [row for row in rows if row["peers"] == peers and "failed" not in row]
        ours = [row for row in some if row["system"] == "Bristle, bristle"]
        for other in dict.fromkeys(row["system"] for row in some if not row["system"].startswith("Bristle")):
            theirs = [row for row in some if row["system"] == other]
            for measure, told in measures.items():
                values = [[row[measure] for row in both if row[measure] is not None] for both in (ours, theirs)]
                if all(values):
                    ratio = median(values[1]) / median(values[0])
                    found.append(_line(f"{told}, {peers} peers over sockets", other, {"": ratio}))
    return found


def of_footprint(rows: list[Row]) -> list[str]:
    """Sum up sizes and imports."""
    found = []
    for row in rows[2:]:
        if row["bytes"] and rows[0]["bytes"]:
            found.append(_line("installed size", row["package"], {"": row["bytes"] / rows[0]["bytes"]}))
        imports = [each["import_s"] / each["numpy_s"] for each in (rows[1], row)]
        found.append(_line("import of what is used, against NumPy's", row["package"], {"": imports[1] / imports[0]}))
    return found


def of_connected(rows: list[Row]) -> list[str]:
    """Say how much an iteration that hears the most costs against one that hears beta."""
    last = max(row["connected"] for row in rows)
    found = {(row["rule"], row["connected"]): row["milliseconds"] for row in rows}
    base = min({row["connected"] for row in rows}, key=lambda count: abs(count - 30))
    mine = found["bristle", last] / found["bristle", base]
    some = {
        rule: found[rule, last] / found[rule, base] / mine
        for rule, count in found
        if count == last and not rule.startswith("bristle") and rule != "local" and (rule, base) in found
    }
    return [_line(f"growth of an iteration from {base} to {last:,} connected peers (bristle {mine:.1f})",
                  "our other rules", some)]  # fmt: skip


def _line(what: str, other: str, ratios: dict[str, float]) -> str:
    """Return a row of the summary: the middle ratio, its range, and where theirs is ahead."""
    values, behind = sorted(ratios.values()), [name for name, ratio in ratios.items() if ratio < 0.995]
    middle = f"{median(values):.1f}" if median(values) >= 1 else f"{median(values):.2f}"
    spread = f" ({values[0]:.2g} to {values[-1]:.2g})" if len(values) > 1 else ""
    told = "ours" if not behind else "**theirs**" if len(behind) == len(values) else f"theirs in {', '.join(behind)}"
    return f"| {what} | {other} | {middle}{spread} | {told} |"


SUMMARIES = {
    "rounds": of_rounds, "connected": of_connected, "field": of_field, "footprint": of_footprint,
}  # fmt: skip


def write(page: Path, text: str) -> None:
    """Put the text between the page's markers, whole or not at all."""
    whole = page.read_text(encoding="utf-8") if page.exists() else f"# Benchmarks\n\n{START}\n{END}\n"
    before, _, rest = whole.partition(START)
    after = rest.partition(END)[2]
    new = page.with_suffix(".new")
    new.write_text(f"{before}{START}\n\n{text}\n\n{END}{after}", encoding="utf-8")
    new.replace(page)


def report(keep: Path) -> str:
    """Return what is kept as Markdown: one table of ratios, then the parts."""
    sections, summary = list[str](), list[str]()
    for part in PARTS:
        result = keep / f"{part.name}.json"
        if not result.exists():
            continue
        found = json.loads(result.read_text(encoding="utf-8"))
        text, rows = found["text"], found["rows"]
        if part.name == "rules":
            summary += of_rules(text)
        elif part.name == "receivers":
            summary += of_receivers(text)
        elif rows:
            summary += SUMMARIES[part.name](rows)
        before, after = found["load"]
        sections += [f"### {part.title}", "", part.about, ""]
        sections += [f"[The tables]({Path(part.page).name}).", ""] if part.page else [text, ""]
        if part.words:
            sections += [f"![{part.title}]({Path(part.words[-1]).name})", ""]
        sections += [
            f"Made by `{part.command}`, in {found['seconds']:.0f} s; the system's load was {before:.1f} before and "
            f"{after:.1f} after (2 would be a busy machine).",
            "",
        ]
    head = [
        f"{machine()}. Made by `make bench`, which runs the commands below one after another.",
        "",
        "| what | compared with | theirs / ours: middle (range) | ahead |",
        "|---|---|---|---|",
        *summary,
        "",
    ]
    return "\n".join([*head, *sections]).strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="as small as it goes, to see that it works")
    parser.add_argument("--only", default="", help=f"some parts: {','.join(part.name for part in PARTS)}")
    parser.add_argument("--page", type=Path, help="put the results between this page's markers")
    parser.add_argument("--keep", type=Path, default=ROOT / "out" / "benchmarks", help="where results are kept")
    parser.add_argument("--tables", action="store_true", help="measure nothing; make the page of what is kept")
    options = parser.parse_args()
    wanted = [name for name in options.only.split(",") if name]
    if unknown := set(wanted) - {part.name for part in PARTS}:
        parser.error(f"there is no part {', '.join(unknown)}; choose from {', '.join(part.name for part in PARTS)}")
    options.keep.mkdir(parents=True, exist_ok=True)
    failed = []
    for part in PARTS:
        if options.tables or (wanted and part.name not in wanted):
            continue
        print(f"{part.title} ({part.script}) ...", file=sys.stderr, flush=True)
        if wrong := run(part, options.keep, options.quick):
            print(f"  {wrong}", file=sys.stderr, flush=True)
            failed.append(wrong)
    text = report(options.keep)
    print(text)
    if options.page:
        write(options.page, text)
    if failed:
        sys.exit("; ".join(failed))


if __name__ == "__main__":
    main()
