"""What tests of the reproduction share: short settings, runs made by hand, and the command itself."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from fedfa.experiments.config import from_table
from fedfa.runs.recorder import ACCEPTED, EVALUATION_COLUMNS
from fedfa.runs.run import Run
from fedfa_reproduction.base import Comparison, Contender, Results
from fedfa_reproduction.plan import plan
from fedfa_reproduction.queue import carry_out
from fedfa_reproduction.study import Study, no_progress
from fedfa_reproduction.workloads import DIGITS

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
