"""What tests of the reproduction share: short settings, runs made by hand, and the command itself."""

import json
import math
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import polars as pl

from fedfa.experiments.config import from_table
from fedfa.report.shapes import number
from fedfa.runs.recorder import ACCEPTED, EVALUATION_COLUMNS
from fedfa.runs.run import Run
from fedfa_reproduction.base import Comparison, Contender, Results, Section
from fedfa_reproduction.measures import mean_accuracy, steady_time_to
from fedfa_reproduction.plan import plan
from fedfa_reproduction.queue import carry_out
from fedfa_reproduction.same_time import MEAN_OVER
from fedfa_reproduction.selection import Selection
from fedfa_reproduction.study import Study, no_progress
from fedfa_reproduction.workloads import DIGITS

ROOT = Path(__file__).parents[2]
TABLES = ROOT / "reproduction" / "tables.md"
PAGE = ROOT / "docs" / "reproduction.md"
SHORT = ("stop.seconds=16", "model.hidden=8", "data.clients=20", "local.epochs=2")
SLOW, FAST = 2.0, 1.0
"""Seconds between two updates, of FedAvg and of the others."""


def study(
    folder: Path, scale: str = "smoke", overrides: Sequence[str] = SHORT, seeds: Sequence[int] = (0,), **more: Any
) -> Study:
    """On the embedded digits."""
    return Study(scale, (DIGITS,), tuple(seeds), folder, tuple(overrides), **more)  # pyright: ignore[reportArgumentType]


def comparison(name: str, *titles_and_rows: tuple[str, str], target: float = 0.7) -> Comparison:
    """Strategies, or specs of strategies, under the default experiment."""
    experiment = from_table({"strategy": {"concurrency": 10, "window": 5}, "compare": {"target": target}})
    chosen = (Contender(spec, spec, title, spec.partition(":")[0]) for title, spec in titles_and_rows)
    return Comparison(name, "a title", experiment, tuple(chosen))


def with_stop(one: Comparison, **limits: Any) -> Comparison:
    experiment = one.experiment
    return replace(one, experiment=replace(experiment, stop=replace(experiment.stop, **limits)))


def made(here: Study, *comparisons: Comparison) -> Results:
    return carry_out(here, comparisons, progress=no_progress, jobs=1)


def shown(here: Study, *comparisons: Comparison) -> Results:
    """From the records alone, read anew."""
    return carry_out(replace(here, only_show=True), comparisons, progress=no_progress)


def there(here: Study, *comparisons: Comparison) -> int:
    return sum(planned in here.answers for planned in plan(here, comparisons))


def make_run(label: str, accuracies: Sequence[float], *, seed: int = 1, synchronous: bool = False) -> Run:
    """Evaluated after every second update; with seed s the clock runs (1 + s) / 2 as fast."""
    step = (1 + seed) / 2 * (SLOW if synchronous else FAST)
    count = 2 * len(accuracies)
    updates = pl.DataFrame({"seconds": [step * (n + 1) for n in range(count)], "staleness": [0] * count}).with_columns(
        outcome=pl.lit(ACCEPTED)
    )
    rows = [(2 * n, 2 * n * step, n, accuracy, 1.0, float("nan")) for n, accuracy in enumerate((0.1, *accuracies))]
    evaluations = pl.DataFrame(rows, schema=list(EVALUATION_COLUMNS), orient="row")
    manifest = {
        "label": label, "strategy": {"name": label}, "task": "toy/mlp", "seed": seed, "synchronous": synchronous,
        "round_size": 2, "refill": "batch" if synchronous else "immediate", "update_weight": None, "concurrency": 2,
        "num_clients": 2, "ended": "updates", "seconds": count * step, "version": count, "wall_seconds": 1.0,
        "stop": {"updates": count}, "machine": {"python": "3.11"},
    }  # fmt: skip
    return Run(updates=updates, evaluations=evaluations, manifest=manifest)


def call(*words: str, cwd: Path, ok: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "fedfa.cli", *words], cwd=cwd, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == ok, done.stdout + done.stderr
    return done


def last_json(done: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(done.stdout.strip().splitlines()[-1])


def first_cells(table: Any, here: Study, *comparisons: Comparison) -> list[str]:
    """The first numbers of a table's rows, as the records show them."""
    only_show = replace(here, only_show=True)
    return [row[1] for row in table(only_show, shown(here, *comparisons)).grids[0].rows]


# What the records say ------------------------------------------------------------------------------------------------


MILD, HARD, SENT140 = "cifar10-iid", "cifar10-noniid-same-time", "sent140-noniid"
CNN, CNN_HARD = "cifar10-cnn-iid", "cifar10-cnn-noniid-windows"
PARAM, DELTA, AGREE = "FedFa-Param", "FedFa-Delta 1/M_c", "FedFa-Agree"
"""Comparisons and strategies of which pages tell most."""


class Shown(NamedTuple):
    """A command, and what it shows of the records, as a page would put it."""

    command: str
    selection: Selection
    sections: list[Section]
    results: Results

    def section(self, name: str) -> Section:
        return next(section for section in self.sections if section.name == name)

    def runs(self, comparison: str, title: str) -> dict[int, Run]:
        """By seed."""
        found = ([run for run in runs if run.label == title] for one, runs in self.results if one.name == comparison)
        return {run.seed: run for run in next(runs for runs in found if runs)}

    def record(self, name: str) -> Run:
        return self.selection.study.records.run(name)

    def seeds(self, comparison: str, *titles: str) -> str:
        """How many a number stands for: the same for each of the strategies, or one after the other."""
        counts = [len(self.runs(comparison, title)) for title in titles]
        return str(counts[0]) if len(set(counts)) == 1 else ", ".join(map(str, counts))

    def steady(self, comparison: str, title: str, accuracy: float) -> str:
        return number(fmean(steadily(accuracy)(run) for run in self.runs(comparison, title).values()))

    def first(self, comparison: str, title: str, accuracy: float) -> str:
        return number(fmean(first_at(accuracy)(run) for run in self.runs(comparison, title).values()))

    def best(self, comparison: str, title: str) -> str:
        return points(fmean(run.best_accuracy for run in self.runs(comparison, title).values()))

    def level(self, comparison: str, title: str, by: float) -> str:
        return points(fmean(mean_accuracy(run, MEAN_OVER * by, by) for run in self.runs(comparison, title).values()))

    def ratios(self, comparison: str, slow: str, fast: str, measure: Callable[[Run], float]) -> list[float]:
        """How many times as fast, seed by seed, the least first; every seed must be there."""
        these, those = self.runs(comparison, slow), self.runs(comparison, fast)
        assert these.keys() == those.keys()
        return sorted(measure(these[seed]) / measure(those[seed]) for seed in these)


def points(accuracy: float) -> str:
    return f"{100 * accuracy:.1f}"


def steadily(accuracy: float) -> Callable[[Run], float]:
    """Fails where a run did not get there."""
    return lambda run: known(steady_time_to(run, accuracy))


def first_at(accuracy: float) -> Callable[[Run], float]:
    return lambda run: known(run.time_to(accuracy))


def known(time: float | None) -> float:
    assert time is not None
    assert math.isfinite(time)
    return time


def seeds(recorded: Shown, *found: tuple[str, ...]) -> str:
    """How many seeds stand behind the strategies of some comparisons: as many everywhere."""
    counts = {recorded.seeds(name, title) for name, *titles in found for title in titles}
    assert len(counts) == 1
    return counts.pop()


def least_and_most(ratios: list[float]) -> str:
    return f"{ratios[0]:.1f} {'and' if len(ratios) == 2 else 'to'} {ratios[-1]:.1f}"


def times(theirs: Mapping[str, float], slow: str, fast: str) -> str:
    return f"{theirs[slow] / theirs[fast]:.1f} times"


# What a page says ----------------------------------------------------------------------------------------------------


def flowing(text: str) -> str:
    return " ".join(text.split())


def table_after(text: str, words: str) -> list[list[str]]:
    """The cells of the first table after these words."""
    lines = text[text.index(words) :].splitlines()
    start = next(position for position, line in enumerate(lines) if line.startswith("|"))
    rows = takewhile(lambda line: line.startswith("|"), lines[start + 2 :])
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in rows]
