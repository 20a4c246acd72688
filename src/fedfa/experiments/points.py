"""Points of a comparison: one strategy with one seed each, under the same weather and the same data split."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedfa.errors import ConfigError, require
from fedfa.executors.cores import machine_cores
from fedfa.experiments.config import Experiment, check_size
from fedfa.learning.device import Device
from fedfa.strategies.specs import make_strategy, strategy_settings


@dataclass(frozen=True, slots=True)
class Point:
    """One strategy with one seed."""

    label: str
    experiment: Experiment
    folder: Path


def points(experiment: Experiment, specs: Sequence[str], seeds: Sequence[int], out: Path) -> list[Point]:
    """Every strategy with every seed, checked before anything runs."""
    require(len(set(seeds)) == len(seeds), f"seeds = {list(seeds)}: one is given twice")
    labelled = {spec: strategy_settings(experiment.strategy, spec) for spec in specs}
    require(len(labelled) == len(specs), f"strategies = {', '.join(specs)}: one is given twice")
    for spec, settings in labelled.items():
        try:
            strategy = make_strategy(settings, "strategy")
        except ConfigError as error:
            raise error.about(spec) from error
        if not experiment.task:
            check_size(strategy, experiment.data.clients, f"{spec}: ")
    return [
        Point(spec, replace(experiment, strategy=settings, seed=seed), out / folder_name(spec, seed))
        for spec, settings in labelled.items()
        for seed in seeds
    ]


def folder_name(spec: str, seed: int) -> str:
    return "".join(c if c.isalnum() or c in "-_.=" else "_" for c in spec) + f"-seed{seed}"


def jobs_for(todo: Iterable[Point]) -> int:
    """How many of these points to run at a time: one per core, or as many as their processes leave room for."""
    engines = {point.experiment.engine for point in todo}
    if any(engine.executor == "ray" or Device.of(engine.device, engine.precision).kind != "cpu" for engine in engines):
        return 1
    return max(
        1, machine_cores() // max(engine.workers if isinstance(engine.workers, int) else 1 for engine in engines)
    )


def in_order(todo: Sequence[Point]) -> list[Point]:
    """Points of one setting and seed together, because they share data and prepared steps."""
    first: dict[str, int] = {}
    for position, point in enumerate(todo):
        first.setdefault(ingredients(point.experiment), position)
    return sorted(todo, key=lambda point: first[ingredients(point.experiment)])


def ingredients(experiment: Experiment) -> str:
    """The settings that determine a task; a user's own task is made for every run."""
    parts = (experiment.data, experiment.model, experiment.local, experiment.seed)
    return repr(parts if not experiment.task else (experiment.task, experiment.strategy, experiment.seed))
