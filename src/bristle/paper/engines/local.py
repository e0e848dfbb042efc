"""Processes on this machine, one task at a time each. They exchange texts."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import tempfile
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

from bristle.paper.engines import ATTEMPTS, ONE_THREAD, Listener, environment, failed, find_work
from bristle.paper.store import load_features, save_features
from bristle.simulation import FeatureData


@dataclass
class _Worker:
    process: SpawnProcess
    pipe: Connection
    task: int | None = None


class LocalEngine:
    """Processes on this machine.

    Parameters
    ----------
    work : str
        `module:function` of what does a task.
    data : FeatureData
        What it is given besides; mapped into the processes' memory from one file.
    processes : int, optional
        How many; as many as there are cores unless given.
    """

    name = "local"

    def __init__(self, work: str, data: FeatureData, *, processes: int | None = None) -> None:
        self._work = work
        self._data = data
        self._processes = processes or os.cpu_count() or 1

    def run(self, tasks: Sequence[str], listener: Listener) -> None:
        """Run all tasks."""
        if not tasks:
            return
        with tempfile.TemporaryDirectory(prefix="bristle-") as folder:
            save_features(self._data, Path(folder))
            count = min(self._processes, len(tasks))
            workers = [self._start(folder) for _ in range(count)]
            try:
                self._serve(tasks, workers, folder, listener)
            finally:
                for worker in workers:
                    _stop(worker)

    def _serve(self, tasks: Sequence[str], workers: list[_Worker], folder: str, listener: Listener) -> None:
        waiting = deque(range(len(tasks)))
        attempts = [0] * len(tasks)
        given_up: dict[int, str] = {}

        def hand_out(worker: _Worker) -> None:
            worker.task = waiting.popleft() if waiting else None
            if worker.task is not None:
                attempts[worker.task] += 1
                worker.pipe.send_bytes(tasks[worker.task].encode())

        def again(task: int, reason: str) -> None:
            if attempts[task] < ATTEMPTS:
                waiting.append(task)
            else:
                given_up[task] = reason

        for worker in workers:
            hand_out(worker)
        while any(worker.task is not None for worker in workers):
            busy = {worker.pipe: worker for worker in workers if worker.task is not None}
            for pipe in wait(list(busy)):
                assert isinstance(pipe, Connection)
                worker = busy[pipe]
                assert worker.task is not None
                task = worker.task
                try:
                    message = json.loads(pipe.recv_bytes())
                except (EOFError, OSError):  # The process died, and the pipe with it.
                    worker.process.join()
                    again(task, f"its process ended with exit code {worker.process.exitcode}")
                    _stop(worker)
                    fresh = self._start(folder)
                    worker.process, worker.pipe = fresh.process, fresh.pipe
                    hand_out(worker)
                    continue
                if "iteration" in message:
                    listener.tick(task, message["iteration"])
                    continue
                if "error" in message:
                    again(task, message["error"])
                hand_out(worker)  # Before the listener writes the result to disk, so that the worker does not wait.
                if "result" in message:
                    listener.done(task, message["result"])
            for worker in workers:
                if worker.task is None and waiting:  # What failed elsewhere is tried by who has nothing to do.
                    hand_out(worker)
        if given_up:
            raise failed(tasks, given_up)

    def _start(self, folder: str) -> _Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        with environment(**ONE_THREAD):
            process = context.Process(target=_work, args=(theirs, self._work, folder), daemon=True)
            process.start()
        theirs.close()
        return _Worker(process, ours)


def _stop(worker: _Worker) -> None:
    worker.pipe.close()
    worker.process.terminate()
    worker.process.join()
    worker.process.close()


def _work(pipe: Connection, path: str, folder: str) -> None:
    """Run tasks as they arrive, until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer.
    work, data = find_work(path), load_features(Path(folder))

    def tick(iteration: int) -> None:
        pipe.send_bytes(json.dumps({"iteration": iteration}).encode())

    while True:
        try:
            task = pipe.recv_bytes().decode()
        except EOFError:
            return
        try:
            message = {"result": work(task, data, tick)}
        except Exception as error:  # The parent gets any error, and retries or reports it.
            message = {"error": f"{type(error).__name__}: {error}"}
        pipe.send_bytes(json.dumps(message).encode())
