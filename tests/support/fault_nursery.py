"""Peers at a fifth of the price: a process that has loaded Bristle, and forks one that runs `bristle peer` on request.

Every peer is a process of its own, with memory, files and sockets of its own, and dies of a signal like any other; only
loading Python and the libraries (a second of a processor) is paid once for all. Requests and answers are lines of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

_STATEMENT = "from tests.support.fault_nursery import serve; serve()"


class Nursery:
    """Starts processes of `bristle`, each forked from one that has everything loaded.

    Parameters
    ----------
    environment : mapping of str to str
        Theirs.
    """

    def __init__(self, *, environment: Mapping[str, str]) -> None:
        self.environment = environment
        root = str(Path(__file__).parents[2])
        paths = os.pathsep.join([root, *filter(None, [environment.get("PYTHONPATH", "")])])
        self._process = subprocess.Popen(
            [sys.executable, "-c", _STATEMENT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**environment, "PYTHONPATH": paths},
            text=True,
        )
        self._lock = threading.Lock()

    def start(self, words: Sequence[str], log: Path) -> int:
        """Run `bristle` with these words, its output appended to a file; return the process's number."""
        return int(self._ask({"start": list(words), "log": str(log)}))

    def ended(self, pid: int, *, wait: bool = False) -> int | None:
        """Return the exit code of a process, negative for a signal; None while it runs, unless one waits."""
        code = self._ask({"ended": pid, "wait": wait})
        return None if code is None else int(code)

    def close(self) -> None:
        """End the nursery, and what it has started."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process.wait(timeout=120)

    def _ask(self, request: dict[str, Any]) -> Any:
        with self._lock:
            asked, answered = self._process.stdin, self._process.stdout
            assert asked is not None
            assert answered is not None
            asked.write(json.dumps(request) + "\n")
            asked.flush()
            line = answered.readline()
            if not line:
                raise RuntimeError("the process that starts peers has ended")
            return json.loads(line)


def serve() -> None:
    """Fork a process for each request to start one, until there are no more requests."""
    import onnxruntime  # noqa: F401, PLC0415
    from typer.testing import CliRunner  # noqa: PLC0415

    import bristle.backbones.backbone  # noqa: PLC0415
    import bristle.commands.peer  # noqa: PLC0415
    import bristle.peer.http  # noqa: F401, PLC0415
    from bristle.cli import app  # noqa: PLC0415

    CliRunner().invoke(app, ["status", "no such folder"])  # Loads what the command line needs.
    started: list[int] = []
    ended: dict[int, int] = {}
    # Read byte by byte, as it were: what Python has read ahead would be read again by every child.
    requests: IO[bytes] = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115
    while line := requests.readline():
        request = json.loads(line)
        if "start" in request:
            pid = os.fork()
            if pid == 0:
                _become(request["start"], request["log"])
            started.append(pid)
            answer: int | None = pid
        else:
            pid = request["ended"]
            if pid not in ended:
                found, status = os.waitpid(pid, 0 if request["wait"] else os.WNOHANG)
                if found:
                    ended[pid] = os.waitstatus_to_exitcode(status)
            answer = ended.get(pid)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    for pid in started:
        if pid not in ended:
            os.kill(pid, signal.SIGKILL)


def _become(words: list[str], log: str) -> None:
    """Be a process that runs `bristle` from now on."""
    from bristle.cli import main  # noqa: PLC0415

    os.setpgid(0, 0)  # Ctrl-C is for who started all this.
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    sys.argv = ["bristle", *words]
    code: object = 1
    try:
        main()
        code = 0
    except SystemExit as stopped:
        code = 0 if stopped.code is None else stopped.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)
