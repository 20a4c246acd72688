"""Runs that were made twice: how far apart the same run comes out."""

from collections.abc import Iterator

import polars as pl

from fedfa.errors import ConfigError
from fedfa.report.grid import Grid
from fedfa.report.shapes import number
from fedfa.report.tables import percent
from fedfa.runs.run import Run
from fedfa_reproduction.base import Results, Section
from fedfa_reproduction.matching import recorded_experiment, what_decides
from fedfa_reproduction.measures import mean_accuracy, steady_time_to
from fedfa_reproduction.records import NAME
from fedfa_reproduction.same_time import MEAN_OVER
from fedfa_reproduction.study import Study

GOALS = [step / 20 for step in range(4, 20)]
"""Accuracies whose times are compared: from 20 % on in steps of five points."""


def reruns(study: Study, results: Results) -> Section:
    pairs = list(_pairs(study))
    different = [(one, other) for one, other in pairs if _largest(one, other) > 0]
    cells, values = [], []
    for one, other in different:
        ends = levels(one, other)
        moved, goal, *times = max(_moved(one, other), default=(0.0, 0.0, 0.0, 0.0))
        cells.append(
            (
                one.manifest[NAME],
                other.manifest[NAME],
                f"{100 * _largest(one, other):.1f}",
                " / ".join(f"{100 * level:.1f}" for level in ends),
                f"{percent(goal)}: {' / '.join(map(number, times))}" if moved else "–",
            )
        )
        values.append({
            "runs": [run.manifest[NAME] for run in (one, other)], "levels": ends, "moved": moved, "goal": goal,
            "times": times,
        })  # fmt: skip
    text = [
        f"{len(pairs)} pairs of records hold the same run, with the same settings, seed, data and initial model; "
        f"{len(pairs) - len(different)} of them are equal in every evaluation that both have. The others have the same "
        "arrivals at the same times, and differ by rounding as far as the records tell. A difference between two "
        "strategies that is not larger means nothing.",
    ]
    headers = ("Run", "The same run", "Largest difference (points)", "Level (%)", "Steady (s)")
    caption = (
        f"Level: the mean of the evaluations in the last {MEAN_OVER:.0%} of the time that both have. Steady: when the "
        "mean of three evaluations in a row was at an accuracy: the one, in steps of five points, where it moved most."
    )
    grids = [Grid("Pairs that differ", headers, cells, caption)] if cells else []
    values = {"pairs": len(pairs), "different": values}
    return Section("reruns", "Runs that were made twice", text, grids, values=values)


def _pairs(study: Study) -> Iterator[tuple[Run, Run]]:
    """The first record of a run with each other one."""
    workloads = {workload.name for workload in study.workloads}
    groups: dict[tuple[str, str], list[str]] = {}
    for name, record in study.records.by_name.items():
        if record.workload not in workloads:
            continue
        try:
            experiment, retired = recorded_experiment(record)
            key = what_decides(experiment, retired, only_show=True)
        except ConfigError:
            continue
        groups.setdefault((key, record.manifest["digest"]), []).append(name)
    for names in groups.values():
        first, *others = map(study.records.run, names)
        yield from ((first, other) for other in others)


def levels(one: Run, other: Run) -> tuple[float, float]:
    until = min(one.seconds, other.seconds)
    first, second = (mean_accuracy(run, MEAN_OVER * until, by=until) for run in (one, other))
    return first, second


def _largest(one: Run, other: Run) -> float:
    """Between two evaluations after the same updates."""
    both = one.evaluations.join(other.evaluations, on="updates", suffix="_other")
    largest = both.select((pl.col("accuracy") - pl.col("accuracy_other")).abs().max()).item()
    return 0.0 if largest is None else float(largest)


def _moved(one: Run, other: Run) -> Iterator[tuple[float, float, float, float]]:
    """By how much each accuracy's time moved, the accuracy, and the two times."""
    until = min(one.seconds, other.seconds)
    for goal in GOALS:
        first, second = (steady_time_to(run, goal) for run in (one, other))
        if first is not None and second is not None and max(first, second) <= until:
            yield abs(first - second), goal, first, second
