"""Accuracy of the strategies after the same time, as means over a span, because single evaluations jump."""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from fedfa.report.curves import accuracy_figure
from fedfa.report.grid import Grid
from fedfa.report.shapes import Figure, number
from fedfa.report.tables import accuracy_cell, deviation, percent, summarise
from fedfa.runs.run import Run
from fedfa_reproduction.base import Comparison, Results, Section
from fedfa_reproduction.cells import best_cell, seeds_cell, steady_cell, value_of
from fedfa_reproduction.descriptions import describe, scale_note
from fedfa_reproduction.measures import mean_accuracy, mean_change, mean_over, steady_time_to
from fedfa_reproduction.study import Study

MEAN_OVER = 0.15
"""Share of the whole time for a mean: the same for runs that evaluate more often."""
SHARES = (0.2, 0.4, 0.7, 1.0)
"""Shares of the time at which the mean is shown."""
AROUND_TARGET = (-0.2, -0.15, -0.1, -0.05, 0.0, 0.05, 0.1)
"""Accuracies whose times are shown: the highest MOST_GOALS that a strategy reached."""
MOST_GOALS = 3
STEADY_IS = (
    "At an accuracy: virtual seconds until the mean of three evaluations in a row was there. Jumps: the mean change of "
    "accuracy between two evaluations, up or down, in points, over the last twenty."
)
MEAN_IS = f"At a time: the mean of the evaluations in {MEAN_OVER:.0%} of the whole time up to it, in per cent."


def same_time(study: Study, results: Results) -> Section:
    """The results of each strategy in the same time."""
    grids = [mean_grid(study, comparison, runs) for comparison, runs in results]
    values = [
        value_of(comparison, contender, row)
        | {"mean": fmean(means_of(comparison, runs, contender.title)) if row else None}
        for comparison, runs in results
        for rows in [{row.label: row for row in summarise(runs, comparison.target)}]
        for contender in comparison.contenders
        for row in [rows.get(contender.title)]
    ]
    figures = [mean_figure(comparison, runs) for comparison, runs in results if runs]
    text = [
        f"The same virtual time for every strategy, on the way to the paper's target. {MEAN_IS} The curves are such "
        f"means, too. {STEADY_IS}",
        scale_note(study, results),
    ]
    return Section("same-time", "The hard split in the same time", text, grids, figures, {"cells": values})


def mean_grid(study: Study, comparison: Comparison, runs: Sequence[Run], first: str = "Strategy") -> Grid:
    """Means during the run and at the end, and the times to accuracies that a strategy reached steadily."""
    rows = {row.label: row for row in summarise(runs, comparison.target)}
    time = comparison.experiment.stop.seconds
    times = [share * time for share in SHARES] if time else [math.inf]
    around = [comparison.target + by for by in AROUND_TARGET]
    goals = [goal for goal in around if any(steady_time_to(run, goal) is not None for run in runs)][-MOST_GOALS:]
    cells = []
    for contender in comparison.contenders:
        row, title = rows.get(contender.title), contender.title
        found = [means_of(comparison, runs, title, by) for by in times]
        on_the_way = [accuracy_cell(fmean(means)) if means else "–" for means in found[:-1]]
        in_the_end = accuracy_cell(fmean(found[-1]), deviation(found[-1])) if found[-1] else "–"
        steady = [steady_cell(runs, row, goal) for goal in goals]
        jumps = [mean_change(run) for run in runs if run.label == title]
        jumping = f"{100 * fmean(jumps):.1f}" if jumps else "–"
        cells.append((title, best_cell(row), *on_the_way, in_the_end, *steady, jumping, seeds_cell(study, row)))
    told = [f"{number(by)} s" for by in times] if time else ["in the end"]
    headers = (first, "Best (%)", *told, *(f"{percent(goal)} (s)" for goal in goals), "Jumps", "Seeds")
    return Grid(comparison.title, headers, cells, describe(comparison, runs))


def mean_figure(comparison: Comparison, runs: Sequence[Run]) -> Figure:
    figure = accuracy_figure([mean_over(run, _span(comparison, runs)) for run in runs], "seconds", comparison.target)
    caption = f"{figure.caption} At each time the mean over {MEAN_OVER:.0%} of the whole time before it."
    return replace(figure, name=comparison.name, title=f"{figure.title}: {comparison.title}", caption=caption)


def means_of(comparison: Comparison, runs: Sequence[Run], label: str, by: float = math.inf) -> list[float]:
    """Of each seed."""
    span = _span(comparison, runs)
    return [mean_accuracy(run, span, by) for run in runs if run.label == label]


def _span(comparison: Comparison, runs: Sequence[Run]) -> float:
    return MEAN_OVER * (comparison.experiment.stop.seconds or max((run.seconds for run in runs), default=0.0))
