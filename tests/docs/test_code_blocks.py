"""Every command and every piece of code in the README and the documentation runs as it stands.

How a fenced block is taken, by what stands after its three backticks:

- `python`: it is run; the blocks of a page share their names.
- `sh`: bash runs it, and every command in it has to succeed.
- anything with `title="NAME"`: it is a file, which the commands and the code after it find.
- `text`: what a program prints, or a drawing. Nothing is run.
- all others, and blocks without a word, are mistakes.

The blocks of a page run in order, in one empty folder. Three comments, on the line directly above a block, change that:

- `<!-- not run: REASON -->`: it is left out, and the reader of the source sees why.
- `<!-- run with: LIBRARY, ... -->`: it runs only where these can be imported.
- `<!-- run as: COMMAND -->`: this runs in its place, e.g. a long command at its `--quick` size.

The ports of the examples are replaced by free ones. To try one page, go to an empty folder and call this file with the
page's path.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"(?P<indent> *)```(?P<info>.*)")
NOT_RUN = re.compile(r"\s*<!-- not run: \S.* -->")
RUN_WITH = re.compile(r"\s*<!-- run with: (?P<names>\w+(, \w+)*) -->")
RUN_AS = re.compile(r"\s*<!-- run as: (?P<command>\S.*) -->")
TITLE = re.compile(r'title="(?P<name>[^"]+)"')
A_COMMAND = re.compile(r"^(\$ |(bristle|make|pip|python3?|sudo|curl) [\w.-])", flags=re.MULTILINE)
EXAMPLE_PORTS = ("7700", "7701", "8080")
PATIENCE = 600


@dataclass(frozen=True)
class Block:
    """A fenced block: its text, and the line of the page on which that begins, from 1."""

    text: str
    line: int
    info: str
    above: str

    @property
    def language(self) -> str:
        return self.info.split()[0] if self.info else ""

    @property
    def file(self) -> str | None:
        title = TITLE.search(self.info)
        return title["name"] if title else None

    @property
    def command(self) -> str | None:
        """What bash runs."""
        instead = RUN_AS.fullmatch(self.above)
        return instead["command"] if instead else self.text if self.language == "sh" else None

    @property
    def left_out(self) -> bool:
        needs = RUN_WITH.fullmatch(self.above)
        if needs and any(find_spec(name) is None for name in needs["names"].split(", ")):
            return True
        return self.language == "text" or NOT_RUN.fullmatch(self.above) is not None

    def mistake(self) -> str | None:
        """Say what would keep the block from being run without anybody noticing."""
        if self.language == "text" and A_COMMAND.search(self.text) and not NOT_RUN.fullmatch(self.above):
            return "holds a command but is marked as text: make it `sh`"
        if self.left_out or self.file or self.command or self.language == "python":
            return None
        return f"is {self.language or 'nothing'!r}, which nobody runs: see the head of {Path(__file__).name}"


def blocks_of(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page."""
    lines = page.read_text(encoding="utf-8").splitlines()
    start: int | None = None
    indent = info = ""
    for number, line in enumerate(lines):
        fence = FENCE.fullmatch(line)
        if fence and start is None:
            start, indent, info = number, fence["indent"], fence["info"].strip()
        elif fence and start is not None and not fence["info"].strip():
            text = "".join(f"{each.removeprefix(indent)}\n" for each in lines[start + 1 : number])
            yield Block(text, start + 2, info, lines[start - 1] if start else "")
            start = None
    assert start is None, f"{page}:{start}: a block without end"


def run(page: Path) -> None:
    """Run the blocks of a page in the working folder."""
    names: dict[str, Any] = {"__name__": "__main__"}
    free = {port: _free_port() for port in EXAMPLE_PORTS}
    for block in blocks_of(page):
        if block.left_out:
            continue
        text = re.sub(r"\b(?:" + "|".join(free) + r")\b", lambda found: free[found[0]], block.command or block.text)
        if block.file:
            path = Path(block.file)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif block.command:
            print(f"{page.name}:{block.line}: {text.strip()}", flush=True)
            subprocess.run(["bash", "-euo", "pipefail", "-c", text], check=True)
        else:
            # As many empty lines before it as in the page: a traceback then shows the page's own line.
            exec(compile("\n" * (block.line - 1) + text, page, "exec"), names)
            sys.stdout.flush()


def _free_port() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def _runs(page: Path) -> bool:
    return any(not block.left_out for block in blocks_of(page))


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Make `bristle` and `python` those of this test run; let all pages share the features of their images."""
    commands = tmp_path_factory.mktemp("bin")
    bristle = commands / "bristle"
    main = 'from bristle.cli import main\n\nif __name__ == "__main__":\n    main()\n'
    bristle.write_text(f"#!{sys.executable}\n{main}", encoding="utf-8")
    bristle.chmod(0o755)
    return {
        **os.environ,
        "PATH": os.pathsep.join([str(commands), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "BRISTLE_CACHE": os.environ.get("BRISTLE_CACHE") or str(tmp_path_factory.mktemp("cache")),
        "OMP_NUM_THREADS": "1",
    }


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_block_is_run_or_says_why_not(page: Path) -> None:
    assert [f"line {block.line}: {mistake}" for block in blocks_of(page) if (mistake := block.mistake())] == []


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if _runs(page)], ids=_name)
def test_page_runs(page: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    folder, printed = tmp_path / "empty", tmp_path / "printed"
    folder.mkdir()
    with printed.open("wb") as output:  # No pipe: what runs in the background would keep it open.
        command = [sys.executable, "-W", "error", __file__, str(page)]
        page_run = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            page_run.wait(timeout=PATIENCE)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(page_run.pid, signal.SIGKILL)  # Peers that the page has started in the background.
    assert page_run.returncode == 0, printed.read_text(encoding="utf-8", errors="replace")


def test_the_page_of_a_mistake_is_named(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nfirst = 1\n```\n\nText.\n\n```python\nassert first == 2\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError) as error:
        run(page)
    assert (error.traceback[-1].path, error.traceback[-1].lineno) == (page, 7)


@pytest.mark.parametrize(
    ("page", "mistake"),
    [
        ("```\nanything\n```\n", True),
        ("```rust\nfn main() {}\n```\n", True),
        ("<!-- not run: of another language -->\n```rust\nfn main() {}\n```\n", False),
        ("<!-- run with: no_such_library -->\n```rust\nfn main() {}\n```\n", False),
        ("<!-- run with: json -->\n```rust\nfn main() {}\n```\n", True),
        ("<!-- not run: -->\n```rust\nfn main() {}\n```\n", True),
        ("```text\nbristle demo\n```\n", True),
        ("```text\n  bristle (network)  95%\n```\n", False),
        ('```toml title="world.toml"\npeers = 1\n```\n', False),
    ],
)
def test_blocks_that_nobody_runs_are_noticed(page: str, mistake: bool, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(page, encoding="utf-8")
    assert any(block.mistake() for block in blocks_of(tmp_path / "page.md")) == mistake


if __name__ == "__main__":
    sys.path[0] = ""  # As for a person: modules in the working folder are found.
    run(Path(sys.argv[1]))
