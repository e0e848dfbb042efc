"""Running tests against a mutant: in a fork of a process that has imported everything but the program under test."""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import _lru_cache_wrapper, cached_property, partial
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import coverage
import hypothesis
import pytest

from mutants_changes import Mutant, changed_source

LIBRARIES = ("aiohttp", "array_api_compat", "array_api_strict", "cryptography", "hypothesis", "numpy", "torch")
OPTIONS = ["-q", "-p", "no:cacheprovider", "--no-header", "--tb=no", "--hypothesis-profile=mutants"]
OPTIONS += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # Hypothesis is imported before the fork.
CPU_LIMIT, WALL_LIMIT, MEMORY_LIMIT = 60, 600, 8 << 30
NOT_PATCHED = 77  # exit status of a child that could not change the function in place
Result = tuple[str, str, float]
Todo = Sequence[tuple[Mutant, Sequence[str]]]
Tell = Callable[[Mutant, Result], None]


class Warm:
    """A process to fork from. Nothing of `bristle` is imported in it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        hypothesis.settings.register_profile(
            "mutants",
            max_examples=15,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        if "bristle" in sys.modules:
            raise ValueError("bristle must not be imported yet: mutants would not be seen")

    def measure(self, tests: Sequence[str]) -> dict[str, Any]:
        """Return which tests cover each line of `bristle`, and how many CPU seconds each test takes; all must pass."""

        def inside(into: Path) -> int:
            rooms = [str(self._root / "src" / "bristle" / room) for room in ("rules", "wire")]
            meter = coverage.Coverage(data_file=None, config_file=False, source=rooms)
            watch = _Watch(meter)
            meter.start()
            code = pytest.main([*OPTIONS, "-m", "not slow", *tests], plugins=[watch])
            meter.stop()
            data = meter.get_data()
            lines: dict[str, dict[str, list[str]]] = {}
            for file in data.measured_files():
                name = Path(file).relative_to(self._root / "src").as_posix()
                covered = data.contexts_by_lineno(file)
                lines[name] = {str(line): sorted(set(names) - {""}) for line, names in covered.items()}
            others = [name for name in sys.modules if name.split(".")[0] in LIBRARIES]
            found = {"lines": lines, "seconds": watch.seconds, "failed": watch.failed, "libraries": others}
            into.write_text(json.dumps(found))
            return int(code)

        code, text = _forked(inside, self._root, cpu=3600, wall=36_000)[:2]
        measured: dict[str, Any] = json.loads(text or "{}")
        if code not in (0, 5):  # 5: all of them are slow, or skipped
            raise ValueError(f"these tests must pass before anything is changed: {measured.get('failed', tests)}")
        return measured

    def import_libraries(self, names: Sequence[str]) -> None:
        """Import what tests import, but for the program under test: then no mutant pays for it."""
        for name in names:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)

    def run_in_place(self, todo: Todo, files: Sequence[str], tell: Tell) -> None:
        """Run mutants of function bodies: collect tests once, then fork, change the function and run some of them."""

        def inside(into: Path) -> int:
            pytest.main([*OPTIONS, *files], plugins=[_Loop(todo, tell, self._root)])
            return 0

        _forked(inside, self._root, cpu=resource.RLIM_INFINITY, wall=10**9)

    def run(self, mutant: Mutant, tests: Sequence[str]) -> Result:
        """Run any mutant: import everything anew, the changed module included, and say what came of it."""

        def inside(into: Path) -> int:
            sys.meta_path.insert(0, _Changed(mutant.module, changed_source(mutant, self._root / "src")))
            watch = _Watch(None)
            code = int(pytest.main([*OPTIONS, "-x", *tests], plugins=[watch]))
            into.write_text((watch.failed or ["while importing"])[0])
            return code

        return _result(*_forked(inside, self._root, cpu=CPU_LIMIT, wall=WALL_LIMIT))


class _Loop:
    """A plugin of pytest that takes the place of its loop: for each mutant a fork, in which the function is another."""

    def __init__(self, todo: Todo, tell: Tell, root: Path) -> None:
        self._todo, self._tell, self._root = todo, tell, root

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        for mutant, tests in self._todo:
            chosen = [items[name] for name in tests if name in items]
            found = _forked(partial(self._inside, session, mutant, chosen), self._root, cpu=CPU_LIMIT, wall=WALL_LIMIT)
            if found[0] != NOT_PATCHED:
                self._tell(mutant, _result(*found))
        return True

    def _inside(self, session: pytest.Session, mutant: Mutant, items: list[pytest.Item], into: Path) -> int:
        try:
            _change_in_place(mutant, self._root / "src")
        except (AttributeError, KeyError, ValueError):
            return NOT_PATCHED
        watch = _Watch(None)
        session.config.pluginmanager.register(watch)
        for item, following in zip(items, [*items[1:], None], strict=True):
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if watch.failed:
                into.write_text(watch.failed[0])
                return 1
        return 0


def _change_in_place(mutant: Mutant, sources: Path) -> None:
    """Give the function that was changed its new code, wherever it is known already."""
    module = importlib.import_module(mutant.module)
    whole = compile(changed_source(mutant, sources), str(sources / mutant.file), "exec", dont_inherit=True)
    found: Any = module
    for name in mutant.function.split("."):
        found = vars(found)[name]
    while not isinstance(found, FunctionType):
        if isinstance(found, property):
            found = found.fget
        elif isinstance(found, cached_property):
            found = found.func
        else:
            if isinstance(found, _lru_cache_wrapper):
                found.cache_clear()
            found = found.__wrapped__
    found.__code__ = next(code for code in _codes(whole) if code.co_qualname == mutant.function)


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _result(code: int, failed: str, seconds: float) -> Result:
    if code == 0:
        return "survived", "no test fails", seconds
    if code < 0:
        return "timeout", signal.Signals(-code).name, seconds
    return "killed", failed or "a crash", seconds


def _forked(inside: Callable[[Path], int], root: Path, *, cpu: int, wall: int) -> tuple[int, str, float]:
    """Run something in a child: return its exit status (negative: the signal), what it wrote, and its CPU seconds."""
    with tempfile.TemporaryDirectory() as folder:
        into = Path(folder) / "result"
        child = os.fork()
        if child == 0:
            code = 3
            try:
                _become(root, Path(folder), cpu=cpu)
                code = inside(into)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        status = _wait(child, wall)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return os.waitstatus_to_exitcode(status), into.read_text() if into.exists() else "", seconds


def _become(root: Path, folder: Path, *, cpu: int) -> None:
    """Make the child silent, bounded, and at home in the repository."""
    os.chdir(root)
    os.setsid()
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, hard))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(root / "src"))


def _wait(child: int, wall: int) -> int:
    deadline = time.monotonic() + wall
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
            return os.waitpid(child, 0)[1]
        time.sleep(0.02)


class _Watch:
    """A plugin of pytest: how long tests take, which fail, and for a meter of coverage which one is running."""

    def __init__(self, meter: coverage.Coverage | None) -> None:
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []
        self._meter = meter
        self._began = 0.0

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._began = time.process_time()
        if self._meter is not None:
            self._meter.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.seconds[nodeid] = round(time.process_time() - self._began, 4)


class _Changed(importlib.abc.MetaPathFinder):
    """Finds the module that was changed, and gives it the other sources."""

    def __init__(self, module: str, source: str) -> None:
        self._module, self._source = module, source

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._module:
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path)
        if found is None or found.origin is None:
            return None
        loader = _Loader(fullname, found.origin, self._source)
        return importlib.util.spec_from_file_location(
            fullname, found.origin, loader=loader, submodule_search_locations=found.submodule_search_locations
        )


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, source: str) -> None:
        super().__init__(fullname, path)
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = compile(self._source, self.path, "exec", dont_inherit=True)
        return code
