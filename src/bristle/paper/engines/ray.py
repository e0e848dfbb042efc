"""Ray: the same tasks on a cluster, or on a local Ray. Needs the extra `ray`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from bristle._core import to_numpy
from bristle._core.extras import to_install
from bristle.paper.engines import ATTEMPTS, ONE_THREAD, Listener, failed, find_work
from bristle.simulation import FeatureData

SECONDS_BETWEEN_LOOKS = 0.5


class RayEngine:
    """Tasks on Ray.

    Parameters
    ----------
    work : str
        `module:function` of what does a task; Bristle must be installed on every machine.
    data : FeatureData
        What it is given besides; it goes into Ray's object store once, and every process of a machine reads it there.
    address : str, optional
        Of a cluster, `auto` for the one that this machine belongs to; else a Ray is started here for the while.
    processes : int, optional
        How many cores a Ray that is started here may use.
    """

    name = "ray"

    def __init__(
        self, work: str, data: FeatureData, *, address: str | None = None, processes: int | None = None
    ) -> None:
        self._ray = _ray()
        self._work = work
        self._data = data
        self._address = address
        self._processes = processes

    def run(self, tasks: Sequence[str], listener: Listener) -> None:
        """Run all tasks."""
        if not tasks:
            return
        ray = self._ray
        here = self._address is None
        variables = {**ONE_THREAD, **({"PYTHONPATH": os.pathsep.join(filter(None, sys.path))} if here else {})}
        ray.init(
            address="local" if here else self._address,
            num_cpus=self._processes if here else None,
            include_dashboard=False if here else None,
            log_to_driver=False,
            logging_level="error",
            runtime_env={"env_vars": variables},
        )
        try:
            self._serve(ray, tasks, listener)
        finally:
            ray.shutdown()

    def _serve(self, ray: Any, tasks: Sequence[str], listener: Listener) -> None:
        data, work = self._data, self._work
        arrays = [ray.put(to_numpy(values)) for values in data.arrays]
        # Progress is a courtesy: a board that is lost is started again, and a run goes on without it meanwhile.
        board = ray.remote(num_cpus=0, max_restarts=-1)(Board).remote()
        remote = ray.remote(num_cpus=1, max_retries=ATTEMPTS - 1, retry_exceptions=True)(do)
        running = {
            remote.remote(work, number, task, board, data.classes, *arrays): number for number, task in enumerate(tasks)
        }
        given_up: dict[int, str] = {}
        while running:
            ready, _ = ray.wait(list(running), num_returns=len(running), timeout=SECONDS_BETWEEN_LOOKS)
            for number, iteration in _news(ray, board).items():
                listener.tick(number, iteration)
            for reference in ready:
                number = running.pop(reference)
                try:
                    result = ray.get(reference)
                except ray.exceptions.RayError as error:
                    given_up[number] = " ".join(str(error).split())
                else:
                    listener.done(number, result)
        if given_up:
            raise failed(tasks, given_up)


class Board:
    """Progress of all processes."""

    def __init__(self) -> None:
        self._news: dict[int, int] = {}

    def write(self, number: int, iteration: int) -> None:
        """Record the iteration that a task has reached."""
        self._news[number] = iteration

    def read(self) -> dict[int, int]:
        """Return what is new."""
        news, self._news = self._news, {}
        return news


def _news(ray: Any, board: Any) -> dict[int, int]:
    """Return the progress since the last look; none while the board is lost."""
    try:
        news: dict[int, int] = ray.get(board.read.remote(), timeout=SECONDS_BETWEEN_LOOKS)
    except ray.exceptions.RayError:
        return {}
    return news


def do(path: str, number: int, task: str, board: Any, classes: tuple[str, ...], *arrays: Any) -> str:
    """Run one task in a Ray process."""
    train, train_labels, test, test_labels = arrays
    data = FeatureData(train, train_labels, test, test_labels, classes)
    return find_work(path)(task, data, lambda iteration: board.write.remote(number, iteration))


def _ray() -> Any:
    try:
        import ray  # noqa: PLC0415 - only who asks for it needs it
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"--engine ray needs Ray: {to_install('ray')}") from error
    return ray
