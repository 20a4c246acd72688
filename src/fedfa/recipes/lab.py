"""Where recipes are carried out: which runs they need, made once each, and continued where they were left."""

import math
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import polars as pl

from fedfa.checkpoint import hashed
from fedfa.comparison import Point, in_order, points, run_points
from fedfa.errors import ConfigError, require
from fedfa.experiment import Experiment, from_table
from fedfa.recipes.agenda import rank
from fedfa.recipes.contenders import Contender
from fedfa.recipes.shelf import Shelf, recorded, settings
from fedfa.recipes.workloads import EMBEDDED, THE_PAPERS, Scale, Split, Workload
from fedfa.record import Run, atomic, read_run
from fedfa.report.grid import Grid
from fedfa.report.page import travelling
from fedfa.report.shapes import Figure
from fedfa.settings import override, parse_override


@cache
def paper() -> dict[str, dict[str, dict[str, Any]]]:
    """The numbers that the paper prints, by table, column and strategy."""
    return tomllib.loads((files("fedfa") / "recipes" / "paper.toml").read_text())


@dataclass(frozen=True)
class Contest:
    """Strategies side by side under one setting."""

    name: str
    """Its folder; contests of the same name share their runs."""
    title: str
    experiment: Experiment
    contenders: tuple[Contender, ...]
    stage: str = "mild split"
    """Its place in the agenda."""
    ends_at_target: bool = False
    """Nothing is asked of its runs after the target: at full scale they end there."""
    most_updates: Mapping[bool, int] = field(default_factory=dict)
    """Updates after which a run ends at the latest, for synchronous strategies (True) and for the others (False)."""

    @property
    def target(self) -> float:
        return self.experiment.compare.target


def no_progress(total: int) -> AbstractContextManager[Callable[[str], None]]:
    return nullcontext(lambda text: None)


Results = Sequence[tuple[Contest, Sequence[Run]]]


@dataclass(frozen=True)
class Section:
    """What a recipe shows."""

    name: str
    title: str
    text: Sequence[str] = ()
    grids: Sequence[Grid] = ()
    figures: Sequence[Figure] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    """The same numbers for programs, JSON-ready."""
    seeds: Sequence[int] = ()
    """Of the runs behind it; empty where it needs none."""


@dataclass(frozen=True)
class Recipe:
    """One table or figure: the contests it needs, and what it makes of them."""

    name: str
    title: str
    tasks: tuple[str, ...]
    """The workloads that the paper has in it."""
    contests: Callable[["Lab"], Sequence[Contest]]
    show: Callable[["Lab", Results], Section]


@dataclass(frozen=True)
class Lab:
    """The setting that recipes are carried out in."""

    scale: Scale
    workloads: tuple[Workload, ...]
    seeds: tuple[int, ...]
    """Of which there should be runs."""
    folder: Path
    overrides: tuple[str, ...] = ()
    only_show: bool = False
    """Nothing is run, and nothing but the records need be there."""

    @property
    def data(self) -> str:
        """The folder with data sets and weights; empty where none was named."""
        return self.given("data.folder") or os.environ.get("FEDFA_DATA", "")

    def given(self, key: str) -> str:
        """What the user has set this key to; empty where nothing."""
        found = [value for path, value in map(parse_override, self.overrides) if ".".join(path) == key]
        return str(found[-1]) if found else ""

    def weights(self, workload: Workload) -> str:
        """The pretrained weights to take: the first of the workload's that are there, else the one it would like."""
        names = workload.smoke_weights if self.scale == "smoke" else workload.weights
        there = [name for name in names if self.data and (Path(self.data).expanduser() / name).is_dir()]
        return (there or [*names, ""])[0]

    def stand_ins(self, results: Results) -> list[str]:
        """What is not as in the paper, a sentence each; the runs themselves say what they were made with."""
        from fedfa.data import sent140

        found = []
        for workload in self.workloads:
            runs = [run for contest, own in results if contest.experiment.data.dataset == workload.name for run in own]
            if workload.weights:
                used = {Path(run.config["model"]["weights"]).name for run in runs}
                for weights in sorted(used - {workload.weights[0]}):
                    found.append(f"{workload.name}: the weights {weights} stand in for {workload.weights[0]}.")
            if workload.name == "sent140" and runs:
                held = max(int(run.clients["examples"].sum()) for run in runs)
                if not self.data:
                    found.append(f"sent140: {held:,} training examples; the public data set has 1.6 million.")
                elif not sent140.is_public(Path(self.data).expanduser()):
                    found.append("sent140: a part of the data, with clients by the hour of posting instead of users.")
            if workload.name not in THE_PAPERS:
                found.append(f"{workload.name}: not in the paper.")
        return found

    def splits(self) -> list[tuple[Workload, Split]]:
        return [(workload, split) for workload in self.workloads for split in workload.splits]

    def last_splits(self) -> list[tuple[Workload, Split]]:
        """The mildest split of each workload: for what the paper shows on one split without saying which."""
        return [(workload, workload.splits[-1]) for workload in self.workloads]

    def experiment(
        self, workload: Workload, split: Split, budget: Mapping[str, Any] | None = None, **changes: Any
    ) -> Experiment:
        """The experiment of a split; changes are dotted keys with __ for the dot, and win over the user's overrides.

        ``budget`` holds settings for the full scale, by dotted key, which the user may override.
        """
        table = workload.table(split, self.scale)
        for key, value in (budget or {}).items() if self.scale == "full" else ():
            override(table, key.split("."), value)
        if weights := self.weights(workload):
            override(table, ["model", "weights"], weights)
        for text in self.overrides:
            path, value = parse_override(text)
            name = ".".join(path)
            varied = (
                {key.replace("__", ".") for key in changes} | split.settings.keys() | {"seed", "name", "data.dataset"}
            )
            require(
                name not in varied - ADJUSTABLE and not (name.startswith("weather.") and "weather" in varied),
                f"--set {text}: {'use --seeds' if name == 'seed' else 'this recipe sets it itself; leave it out'}",
            )
            if not (workload is EMBEDDED and name == "data.folder"):
                override(table, path, value)
        for key, value in changes.items():
            override(table, key.split("__"), value)
        try:
            return from_table(table, f"recipe {split.name}")
        except ConfigError as error:
            raise ConfigError(f"{split.name}: {error}") from error

    def label_counts(self, experiment: Experiment) -> pl.DataFrame | None:
        """Who holds which labels: from the data, else as kept before, or from a run on it; None where nothing is there.

        What was counted is kept, so that it can be shown without the data.
        """
        wanted = settings({"seed": experiment.seed, "data": asdict(experiment.data)})
        kept = self.folder / SPLITS / f"{experiment.data.dataset}-{hashed(wanted)}.parquet"
        try:
            counts = experiment.make_task().label_counts()
        except ConfigError:
            if not self.only_show:
                raise
            if kept.exists():
                return pl.read_parquet(kept)
            recorded_runs = (read_run(path.parent) for path in sorted(self.folder.glob("*/*/manifest.json")))
            return next((run.clients for run in recorded_runs if wanted.items() <= recorded(run).items()), None)
        if not self.only_show:
            with atomic(kept) as file:
                counts.write_parquet(file)
        return counts

    @cached_property
    def shelf(self) -> Shelf:
        return Shelf(self.folder, self.only_show)

    @cached_property
    def all_seeds(self) -> tuple[int, ...]:
        """Also those of which there are runs all the same, where runs are only shown."""
        names = (path.parent.name for path in self.folder.glob("*/*/manifest.json")) if self.only_show else ()
        there = {int(found[1]) for name in names if (found := re.search(r"-seed(\d+)", name))}
        return (*self.seeds, *sorted(there - set(self.seeds)))

    # Runs --------------------------------------------------------------------------------------------------------

    def carry_out(
        self,
        contests: Sequence[Contest],
        *,
        command: str = "",
        jobs: int | None = None,
        progress: Callable[[int], AbstractContextManager[Callable[[str], None]]] = no_progress,
        until: float = math.inf,
    ) -> Results:
        """Make the runs that are missing, as far as the time allows, and give each contest those that are there."""
        plan, shelf = self.plan(contests), self.shelf
        runs = {point.folder: run for point in plan if (run := shelf.take(point)) is not None}
        todo = [point for point in plan if point.folder not in runs]
        if todo and not self.only_show:
            with progress(len(todo)) as advance:
                for run in run_points(todo, command=command, resume=True, jobs=jobs, until=until, answered=shelf):
                    runs[run.folder or self.folder] = run
                    advance(f"{run.label}, seed {run.seed}: best accuracy {run.best_accuracy:.3f}")
            for point in todo:  # by a longer run that was made meanwhile
                if point.folder not in runs and (longer := shelf.take(point)) is not None:
                    runs[point.folder] = longer
        return [(contest, self._named(contest, runs)) for contest in contests]

    def with_begun(self, results: Results) -> Results:
        """The results, and of contenders without a run what is there of theirs: shorter or interrupted ones."""
        found = []
        for contest, runs in results:
            there = {run.label for run in runs}
            lacking = {c.spec: c.title for c in contest.contenders if c.title not in there}
            begun = [
                run.labelled(lacking[point.label])
                for point in self._points(contest)
                if point.label in lacking and (run := self.shelf.begun(point)) is not None
            ]
            found.append((contest, [*runs, *begun]))
        return found

    def _named(self, contest: Contest, runs: Mapping[Path, Run]) -> list[Run]:
        titles = {contender.spec: contender.title for contender in contest.contenders}
        named = [
            run.labelled(titles[point.label])
            for point in self._points(contest)
            for run in [runs.get(full_length(point.folder)) or runs.get(point.folder)]
            if run is not None
        ]
        models = sorted({run.manifest["task"] for run in named})
        require(
            len(models) <= 1, f"{self.folder / contest.name}: holds runs of {' and '.join(models)}; keep one of them"
        )
        return named

    def plan(self, contests: Iterable[Contest]) -> list[Point]:
        """Each run once, the first to be made first.

        Where one that went on past the target is there, it also serves those that ask for the way to it.
        """
        plan: dict[Path, Point] = {}
        for contest in contests:
            whole_runs = self._points(replace(contest, ends_at_target=False))
            pairs = list(zip(self._points(contest), whole_runs, strict=True))
            further = self._further(pairs)
            for point, whole in pairs:
                if point.experiment.seed not in self.seeds and point.folder not in further:
                    continue
                if whole in self.shelf:
                    point = replace(whole, rank=point.rank)
                known = plan.setdefault(point.folder, point)
                plan[point.folder] = min(known, point, key=lambda point: point.rank)
        return in_order(list(plan.values()))

    def _further(self, pairs: Iterable[tuple[Point, Point]]) -> set[Path]:
        """Runs of seeds that were not asked for, where every strategy with any run has one: or seeds were compared."""
        if self.all_seeds == self.seeds:
            return set()
        there: dict[str, dict[int, Path]] = {}
        for point, whole in pairs:
            if any(map(self.shelf.fairly, (whole, point))):
                there.setdefault(point.label, {})[point.experiment.seed] = point.folder
        return {
            folder
            for found in there.values()
            for seed, folder in found.items()
            if all(seed in others for others in there.values())
        }

    def _points(self, contest: Contest) -> list[Point]:
        """The runs of a contest: the strategies in turn, each with every seed."""
        chosen = {c.spec: c for c in sorted(contest.contenders, key=lambda contender: contender.turn)}
        return [
            self._limited(contest, replace(point, rank=rank(contest.stage, chosen[point.label].leading, nth_seed)))
            for point in points(contest.experiment, list(chosen), self.all_seeds, self.folder / contest.name)
            for nth_seed in [self.all_seeds.index(point.experiment.seed)]
        ]

    def _limited(self, contest: Contest, point: Point) -> Point:
        """At full scale a run ends at the target if nothing more is asked; it may be limited in updates besides."""
        stop, folder = point.experiment.stop, point.folder
        if contest.most_updates:
            stop = replace(stop, updates=contest.most_updates.get(point.experiment.make_strategy().synchronous))
        if contest.ends_at_target and self.scale == "full":
            stop, folder = replace(stop, accuracy=contest.target), folder.with_name(f"{folder.name}{TO_TARGET}")
        return replace(point, experiment=replace(point.experiment, stop=stop), folder=folder)


SPLITS = "splits"
"""The folder of label counts."""
TO_TARGET = "-to-target"
ADJUSTABLE = {"stop.seconds", "stop.diverged_updates", "local.epochs", "local.lr"}
"""Settings of a recipe that a user may change all the same."""


def full_length(folder: Path) -> Path:
    return folder.with_name(folder.name.removesuffix(TO_TARGET))


def describe(contest: Contest, runs: Sequence[Run] = ()) -> str:
    """The setting of a contest in a few words, and what its runs add to it."""
    experiment = contest.experiment
    data, local, strategy, stop = experiment.data, experiment.local, experiment.strategy, experiment.stop
    clients = runs[0].manifest["num_clients"] if runs else data.clients
    model = runs[0].manifest["task"].partition("/")[2] if runs else experiment.model.label
    split = f"Dirichlet alpha = {data.alpha:g}" if data.partition.startswith("dirichlet") else data.partition
    part = "" if data.fraction == 1 else f"{100 * data.fraction:g} % of the data, "
    epochs = f"{local.least_epochs} to {local.epochs}" if local.least_epochs else str(local.epochs)
    until = f"{stop.updates:,} updates" if stop.seconds is None else f"budget {stop.seconds:,.0f} virtual s"
    if contest.most_updates:
        most = [f"{contest.most_updates[waits]:,} updates" for waits in sorted(contest.most_updates)]
        until += f", at most {' ('.join(most)}{' for strategies that wait)' if len(most) > 1 else ''}"
    return (
        f"{data.dataset}, {part}{clients} clients ({split}), {model}; "
        f"M_c = {strategy['concurrency']}, K = {strategy['window']}; E = {epochs}, batch {local.batch_size}, "
        f"lr {local.lr:g}, {local.optimizer}; {until}. {travelling(runs)}"
    ).rstrip()
