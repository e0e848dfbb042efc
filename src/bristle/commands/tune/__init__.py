"""The paper's advice, automated: search for parameters on a related dataset, in the simulator."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from bristle._core.extras import to_install
from bristle.commands.tune.space import Range, chosen_parameters, ranges, values_of, with_values
from bristle.simulation import Watch
from bristle.simulation import run as run_world
from bristle.simulation.build import scenario_of
from bristle.simulation.config import SimulationConfig
from bristle.simulation.experiment import Experiment
from bristle.simulation.run import fingerprint
from bristle.simulation.world import World

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

STUDY, LOCK = "study.sqlite", "running.lock"
BEFORE_PRUNING = 5  # trials that are run to the end, so that the others can be compared with their median


@dataclass(frozen=True, kw_only=True)
class Search:
    """Parameters, ranges and world of a search: `trials` trials, each with `seeds` seeds from the world's on."""

    experiment: Experiment
    parameters: tuple[str, ...]
    ranges: tuple[Range, ...]
    trials: int
    seeds: int
    seed: int

    @property
    def config(self) -> SimulationConfig:
        """The configuration as it was given."""
        return self.experiment.config

    def identity(self) -> str:
        """Return the identity of this search: everything but the number of trials."""
        world = World(self.experiment.scenario, self.experiment.data)
        said = (fingerprint(world, every=1, figure=""), self.ranges, self.seeds, self.seed)
        return hashlib.sha256(repr(said).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A finished trial: its configuration, and the accuracy with each seed that was run."""

    number: int
    config: SimulationConfig
    accuracies: tuple[float, ...]
    pruned: bool

    @property
    def accuracy(self) -> float:
        """The mean over the seeds that were run."""
        return float(np.mean(self.accuracies))


@dataclass(frozen=True, kw_only=True)
class TuningProgress:
    """Callbacks for the trials that exist already, each iteration, and each finished trial."""

    begin: Callable[[list[Trial]], None] = lambda trials: None
    iteration: Callable[[], None] = lambda: None
    trial: Callable[[Trial], None] = lambda trial: None


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """Results of a search.

    `checked` holds the accuracy of `given` and of `best` with new seeds: that of the best of many trials is biased.
    """

    given: Trial
    best: Trial
    trials: list[Trial]
    checked: tuple[float, float]


def search_of(
    experiment: Experiment, *, parameters: Iterable[str] = (), trials: int = 50, seeds: int = 3, seed: int = 0
) -> Search:
    """Return the search, or raise if it is impossible, before anything is run."""
    for name, value in (("--trials", trials), ("--seeds", seeds)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, not {value}")
    if seed < 0:
        raise ValueError(f"--seed must be 0 or more, not {seed}")
    names = chosen_parameters(parameters, experiment.config)
    found = ranges(names, experiment.config, classes=len(experiment.data.classes))
    if all(one.low == one.high for one in found):
        raise ValueError(f"nothing to search: in this world {', '.join(names)} can have one value only")
    return Search(experiment=experiment, parameters=names, ranges=found, trials=trials, seeds=seeds, seed=seed)


def tune(search: Search, out: Path, *, progress: TuningProgress | None = None) -> Tuned:
    """Search until `search.trials` trials are done, and return them and the best.

    The first trial is the configuration unchanged. The study is kept in `out`: after an interruption the same call
    continues, to the same result. A trial below the median of earlier ones, seed by seed, is pruned.

    Parameters
    ----------
    search : Search
        What to search for, from `search_of`.
    out : Path
        The folder of the study.
    progress : TuningProgress
        Callbacks for progress.
    """
    optuna, watch = import_optuna(), progress or TuningProgress()
    with _alone_in(out), _study(optuna, search, out / STUDY) as study:
        states = optuna.trial.TrialState
        finished = study.get_trials(deepcopy=False, states=(states.COMPLETE, states.PRUNED))
        done = [_read(study, search, number, trial) for number, trial in enumerate(finished)]
        watch.begin(done)
        while len(done) < search.trials:
            done.append(_one_more(optuna, study, search, len(done), watch))
            watch.trial(done[-1])
        best = best_of(done)
        checked = [_checked(study, search, trial, watch) for trial in (done[0], best)]
    return Tuned(given=done[0], best=best, trials=done, checked=(checked[0], checked[1]))


def best_of(trials: Sequence[Trial]) -> Trial:
    """Return the best trial that was run to the end; of equals the first."""
    return max((trial for trial in trials if not trial.pruned), key=lambda trial: trial.accuracy)


def import_optuna() -> ModuleType:
    """Import Optuna, from the extra `tune`."""
    try:
        import optuna  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"bristle tune needs Optuna: {to_install('tune')}") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _one_more(optuna: ModuleType, study: Study, search: Search, number: int, watch: TuningProgress) -> Trial:
    """Run a trial. An interrupted one draws the same values again, and continues with the next seed."""
    if number == 0:
        study.enqueue_trial({one.name: one.now for one in search.ranges})
    # A sampler of its own for each trial: what it draws depends on the finished trials, not on when it was started.
    seed = int(np.random.SeedSequence([search.seed, number]).generate_state(1)[0])
    study.sampler = optuna.samplers.TPESampler(seed=seed)
    trial = study.ask()
    values = {one.name: _suggested(trial, one) for one in search.ranges}
    config = _config(search, number, values)
    for step, mean in enumerate(_means(study, search, config, key=_of_trial(number), watch=watch)):
        trial.report(mean, step)
        if number > 0 and step + 1 < search.seeds and trial.should_prune():
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            break
    else:
        study.tell(trial, mean)
    return _read(study, search, number, study.trials[trial.number])


def _means(
    study: Study, search: Search, config: SimulationConfig, *, key: str, watch: TuningProgress, new_seeds: bool = False
) -> Iterator[float]:
    """Yield the mean accuracy over the first seed, the first two and so on; accuracies are kept under `key`."""
    accuracies: list[float] = list(study.user_attrs.get(key, ()))
    first = search.config.world.seed + (search.seeds if new_seeds else 0)
    for step in range(search.seeds):
        if step == len(accuracies):
            accuracies.append(_run(search, config, first + step, watch))
            study.set_user_attr(key, accuracies)
        yield float(np.mean(accuracies[: step + 1]))


def _checked(study: Study, search: Search, trial: Trial, watch: TuningProgress) -> float:
    """Return the mean accuracy of a trial over as many seeds as it was chosen by, all new."""
    key = f"accuracies of trial {trial.number} with new seeds"
    return list(_means(study, search, trial.config, key=key, watch=watch, new_seeds=True))[-1]


def _run(search: Search, config: SimulationConfig, seed: int, watch: TuningProgress) -> float:
    """Return the mean accuracy of the benign peers after the last iteration of one world."""
    data = search.experiment.data
    scenario = replace(scenario_of(config, classes=len(data.classes)), seed=seed)
    callbacks = Watch(iteration=lambda done: watch.iteration())
    return float(run_world(scenario, data, every=scenario.iterations, watch=callbacks).last()["accuracy_mean"])


def _suggested(trial: Any, one: Range) -> float:
    if one.whole:
        whole: int = trial.suggest_int(one.name, int(one.low), int(one.high), log=one.log)
        return whole
    value: float = trial.suggest_float(one.name, one.low, one.high, log=one.log)
    return value


def _config(search: Search, number: int, values: Mapping[str, float]) -> SimulationConfig:
    return search.config if number == 0 else with_values(search.config, values)


def _of_trial(number: int) -> str:
    return f"accuracies of trial {number}"


def _read(study: Study, search: Search, number: int, trial: FrozenTrial) -> Trial:
    """Return a finished trial from the study; `number` counts these only."""
    return Trial(
        number=number,
        config=_config(search, number, trial.params),
        accuracies=tuple(study.user_attrs[_of_trial(number)]),
        pruned=trial.state.name == "PRUNED",
    )


@contextmanager
def _study(optuna: ModuleType, search: Search, path: Path) -> Iterator[Study]:
    """Open or create the study in a file; refuse that of another search."""
    from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415

    try:
        storage = optuna.storages.RDBStorage(f"sqlite:///{path.resolve()}")
        names = [summary.study_name for summary in optuna.study.get_all_study_summaries(storage)]
    except (SQLAlchemyError, RuntimeError) as error:
        raise ValueError(
            f"{path} is not a study, or is damaged: choose another --out, or delete it to start over"
        ) from error
    try:
        identity = search.identity()
        if names and names != [identity]:
            raise ValueError(
                f"{path} is a search with another world, other data, parameters or seeds: choose another --out, "
                "or delete it to start over"
            )
        study: Study = optuna.create_study(
            storage=storage,
            study_name=identity,
            load_if_exists=True,
            direction="maximize",
            pruner=optuna.pruners.MedianPruner(n_startup_trials=BEFORE_PRUNING),
        )
        states = optuna.trial.TrialState
        for left in study.get_trials(deepcopy=False, states=(states.RUNNING, states.WAITING)):
            study.tell(left.number, state=states.FAIL)
        yield study
    finally:
        storage.remove_session()
        storage.engine.dispose()


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Lock the folder while this process runs; a killed process releases it."""
    folder.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(folder / LOCK, timeout=0.2, isolation_level=None)) as lock:
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            raise ValueError(
                f"a search is already running in {folder}: wait for it, or choose another --out"
            ) from error
        yield


def row_of(trial: Trial, parameters: Iterable[str]) -> dict[str, object]:
    """Return a trial as a row of results."""
    return {
        "trial": trial.number,
        **values_of(trial.config, parameters),
        "accuracy_mean": trial.accuracy,
        "accuracies": list(trial.accuracies),
        "pruned": trial.pruned,
    }
