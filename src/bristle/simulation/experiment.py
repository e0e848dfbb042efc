"""Run the experiment that a configuration describes: `bristle.simulate`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bristle._core.validation import check_count
from bristle.backbones import Backbone, Head, load_head
from bristle.backbones.features import array_digest
from bristle.data import Dataset
from bristle.learning.baselines import ITERATIONS
from bristle.rules import Local
from bristle.simulation.build import config_notes, make_data, scenario_of
from bristle.simulation.config import RuleSection, SimulationConfig, read, settings_of
from bristle.simulation.large.device import on_device, torch_device
from bristle.simulation.large.memory import check_memory, check_ordinary_memory
from bristle.simulation.population import FeatureData, oracle_accuracy, populate, prepare
from bristle.simulation.results import ABOUT, Results
from bristle.simulation.run import NOBODY, Watch, run, why_ordinary
from bristle.simulation.scenario import Scenario
from bristle.simulation.world import World

ConfigSource = str | Path | Mapping[str, Any] | SimulationConfig


@dataclass(frozen=True)
class Experiment:
    """A configuration, and the world that it describes."""

    config: SimulationConfig
    scenario: Scenario
    data: FeatureData
    replaced: Mapping[str, str] = field(default_factory=dict)
    """Settings that objects replace, as text by key."""
    notes: tuple[str, ...] = ()
    """Notes for the user."""

    def run(self, *, checkpoint: Path | None = None, resume: bool = False, watch: Watch = NOBODY) -> Results:
        """Run the world and return its rows, each with the configuration's settings."""
        settings, on_row = {**settings_of(self.config), **self.replaced}, watch.row
        if on_row is not None:
            watch = replace(watch, row=lambda row: on_row({**row, "settings": settings}))
        for note in self.notes:
            watch.note(note)
        results = run(
            self.scenario,
            self.data,
            figure=self.config.world.figure,
            every=self.config.world.evaluate_every,
            checkpoint=checkpoint,
            resume=resume,
            evaluate_peers=self.config.world.evaluate_peers,
            watch=watch,
        )
        return Results([{**row, "settings": settings} for row in results.rows])

    def with_seeds(self, count: int) -> Iterator[Experiment]:
        """Yield the experiment with each of `count` seeds, from the configuration's on."""
        for seed in range(self.config.world.seed, self.config.world.seed + count):
            world = self.config.world.model_copy(update={"seed": seed})
            config = self.config.model_copy(update={"world": world})
            yield replace(self, config=config, scenario=replace(self.scenario, seed=seed))

    def run_baselines(self, watch: Watch = NOBODY) -> Results:
        """Run the baselines `local` and `oracle` with the same samples and seed, and return their rows.

        Peers with the rule `local` learn alone. The oracle is one head trained on the samples of all benign peers, in
        as many steps as there are iterations, at least 300.
        """
        config = self.config.model_copy(update={"rule": RuleSection(name="local")})
        is_local = isinstance(self.scenario.rule, Local)  # Then the run itself is one of them.
        quiet = Watch(row=None if is_local else watch.row, stop=watch.stop, note=lambda note: None)
        alone = replace(self, config=config, scenario=replace(self.scenario, rule=Local())).run(watch=quiet)
        accuracy = oracle_accuracy(
            populate(self.scenario, self.data).held,
            self.data,
            steps=max(ITERATIONS, self.scenario.iterations),
            settings=self.scenario.training,
        )
        oracle = [
            {**{column: row[column] for column in ABOUT}, "rule": "oracle", "accuracy_mean": accuracy,
             "accuracy_min": accuracy, "bytes_sent": 0, "settings": _but_the_rule(row["settings"])}
            for row in alone.rows
        ]  # fmt: skip
        if watch.row is not None:
            for row in oracle:
                watch.row(row)
        return Results(oracle if is_local else [*alone.rows, *oracle])


def _but_the_rule(settings: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in settings.items() if not key.startswith("rule.")}


def simulate(
    config: ConfigSource,
    *,
    overrides: Iterable[str] = (),
    seeds: int = 1,
    baselines: bool = False,
    checkpoint: Path | None = None,
    resume: bool = False,
    data: Dataset | None = None,
    backbone: Backbone | None = None,
    head: Head | None = None,
    watch: Watch = NOBODY,
    progress: Callable[[int, int], None] | None = None,
) -> Results:
    """Run the experiment that a configuration describes, and return its rows.

    Parameters
    ----------
    config
        A TOML file, a mapping of the same form, or a `SimulationConfig`.
    overrides
        Settings that replace the configuration's: `["world.peers=20", "rule.name=krum"]`.
    seeds
        Number of seeds, from the configuration's `world.seed` on; `Results.over_seeds` has means and confidence
        intervals.
    baselines
        Also run, with the same samples, peers that learn alone (`local`) and one head trained on all of their samples
        (`oracle`).
    checkpoint, resume
        Path of a checkpoint of a run with one seed, and whether to continue from it, to the same bits.
    data, backbone, head
        Used in place of the configuration's `data.dataset`, `data.backbone` and `world.head`.
    watch : Watch
        Callbacks for rows, iterations and decisions as they come.
    progress
        Called with (done, all) while features are extracted for the first time.
    """
    watches = {"checkpoint": checkpoint is not None, "decisions": watch.decisions is not None}
    experiment = prepare_experiment(
        config, overrides, data=data, backbone=backbone, head=head, progress=progress, **watches
    )
    return Results(
        [
            row
            for results in run_seeds(
                experiment, seeds=seeds, baselines=baselines, checkpoint=checkpoint, resume=resume, watch=watch
            )
            for row in results.rows
        ]
    )


def run_seeds(
    experiment: Experiment,
    *,
    seeds: int = 1,
    baselines: bool = False,
    checkpoint: Path | None = None,
    resume: bool = False,
    watch: Watch = NOBODY,
) -> Iterator[Results]:
    """Yield the results of each seed, after those of its baselines. Notes that repeat are passed on once."""
    check_count("seeds", seeds, least=1)
    if checkpoint is not None and seeds > 1:
        raise ValueError(
            f"a checkpoint holds one run, not {seeds} seeds: leave out the checkpoint, or run seeds one by one with "
            "world.seed, each with its own checkpoint"
        )
    noted: set[str] = set()
    pass_on = watch.note

    def note(sentence: str) -> None:
        if sentence not in noted:
            noted.add(sentence)
            pass_on(sentence)

    watch = replace(watch, note=note)
    for one in experiment.with_seeds(seeds):
        if baselines:
            yield one.run_baselines(watch)
        yield one.run(checkpoint=checkpoint, resume=resume, watch=watch)


def prepare_experiment(
    config: ConfigSource,
    overrides: Iterable[str] = (),
    *,
    checkpoint: bool = False,
    decisions: bool = False,
    data: Dataset | None = None,
    backbone: Backbone | None = None,
    head: Head | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Experiment:
    """Read a configuration and extract the features of its data.

    Errors, and worlds that do not fit into memory, are found before features are extracted. `checkpoint` and
    `decisions` say whether the run will keep a checkpoint or use decisions, which large worlds cannot. `data`,
    `backbone` and `head` are used in place of the configuration's.
    """
    for name, key, value in (("data", "data.dataset", data), ("backbone", "data.backbone", backbone)):
        if isinstance(value, str):
            raise ValueError(f"{name} takes an object, not a name: put {key} = {value!r} into the configuration")
    checked = read(config, overrides)
    scenario_of(checked)  # raises before anything is loaded
    section, device = checked.data, checked.world.device
    where = None if device is None else torch_device(device)
    replaced: dict[str, str] = {}
    if data is not None:
        replaced["data.dataset"] = data.name
    if backbone is not None:
        replaced["data.backbone"] = f"{backbone.name} {backbone.digest[:8]}"
    dataset, backbone = make_data(section, data=data, backbone=backbone)
    scenario = scenario_of(checked, classes=len(dataset.classes))
    if head is not None:
        replaced["world.head"] = array_digest(head.weights)[:8]
    elif checked.world.head is not None:
        head = load_head(checked.world.head)
    if head is not None:
        scenario = replace(scenario, head=head.weights_for(backbone, dataset.classes, backbone.features))
        scenario.check()
    samples = len(dataset.x_train) + len(dataset.x_test)
    sizes = {"classes": len(dataset.classes), "features": backbone.features, "samples": samples}
    if why_ordinary(scenario, tensors=where is not None, checkpoint=checkpoint, decisions=decisions) is None:
        check_memory(scenario, device=where, **sizes)
    else:
        if where is not None:
            check_ordinary_memory(scenario, device=where, **sizes)
        labels_only = FeatureData.labels_only(dataset.y_train, dataset.classes, user=dataset.user)
        World(replace(scenario, user_shift=0.0, head=None), labels_only)
    features = prepare(dataset, backbone, test_samples=section.test_samples, progress=progress)
    notes = tuple(config_notes(checked, dataset))
    return Experiment(checked, scenario, features if device is None else on_device(features, device), replaced, notes)
