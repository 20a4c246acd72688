"""Where strategies stand after the same time, by means over a while: near a target accuracy jumps."""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import polars as pl

from fedfa.recipes.lab import Contest, Lab, Results, Section, describe
from fedfa.recipes.tables import best_cell, scale_note, seeds_cell, steady_cell, value_of
from fedfa.record import Run
from fedfa.report.figures import accuracy_figure
from fedfa.report.grid import Grid
from fedfa.report.shapes import Figure, number
from fedfa.report.tables import accuracy_cell, deviation, percent, summarise

LEVEL_OVER = 0.15
"""Share of the whole time whose mean tells where a run stands: the same for those that evaluate more often."""
SHARES = (0.2, 0.4, 0.7, 1.0)
"""Of the time, after which it is told."""
AROUND_TARGET = (-0.2, -0.15, -0.1, -0.05, 0.0, 0.05, 0.1)
"""Accuracies whose times are told, as far as anybody got there: the highest MOST_GOALS of them."""
MOST_GOALS = 3
STEADY_IS = (
    "At an accuracy: virtual seconds until the mean of three evaluations in a row was there. Jumps: the mean change of "
    "accuracy between two evaluations, up or down, in points, over the last twenty."
)
LEVEL_IS = f"At a time: the mean of the evaluations in {LEVEL_OVER:.0%} of the whole time up to it, in per cent."


def same_time(lab: Lab, results: Results) -> Section:
    """What each strategy makes of the same time."""
    grids = [level_grid(lab, contest, runs) for contest, runs in results]
    values = [
        value_of(contest, contender, row) | {"level": fmean(levels(contest, runs, contender.title)) if row else None}
        for contest, runs in results
        for rows in [{row.label: row for row in summarise(runs, contest.target)}]
        for contender in contest.contenders
        for row in [rows.get(contender.title)]
    ]
    figures = [level_figure(contest, runs) for contest, runs in results if runs]
    text = [
        f"The same virtual time for every strategy, on the way to the paper's target. {LEVEL_IS} The curves are such "
        f"means, too. {STEADY_IS}",
        scale_note(lab, results),
    ]
    return Section("same-time", "The hard split in the same time", text, grids, figures, {"cells": values})


def level_grid(lab: Lab, contest: Contest, runs: Sequence[Run], first: str = "Strategy") -> Grid:
    """Levels on the way and in the end, and when each was steadily at accuracies that somebody reached."""
    rows = {row.label: row for row in summarise(runs, contest.target)}
    time = contest.experiment.stop.seconds
    times = [share * time for share in SHARES] if time else [math.inf]
    around = [contest.target + by for by in AROUND_TARGET]
    goals = [goal for goal in around if any(run.steady_time_to(goal) is not None for run in runs)][-MOST_GOALS:]
    cells = []
    for contender in contest.contenders:
        row, title = rows.get(contender.title), contender.title
        found = [levels(contest, runs, title, by) for by in times]
        on_the_way = [accuracy_cell(fmean(level)) if level else "–" for level in found[:-1]]
        in_the_end = accuracy_cell(fmean(found[-1]), deviation(found[-1])) if found[-1] else "–"
        steady = [steady_cell(runs, row, goal) for goal in goals]
        jumps = [run.jumps() for run in runs if run.label == title]
        jumping = f"{100 * fmean(jumps):.1f}" if jumps else "–"
        cells.append((title, best_cell(row), *on_the_way, in_the_end, *steady, jumping, seeds_cell(lab, row)))
    told = [f"{number(by)} s" for by in times] if time else ["in the end"]
    headers = (first, "Best (%)", *told, *(f"{percent(goal)} (s)" for goal in goals), "Jumps", "Seeds")
    return Grid(contest.title, headers, cells, describe(contest, runs))


def level_figure(contest: Contest, runs: Sequence[Run]) -> Figure:
    figure = accuracy_figure([running_level(run, _span(contest, runs)) for run in runs], "seconds", contest.target)
    caption = f"{figure.caption} At each time the mean over {LEVEL_OVER:.0%} of the whole time before it."
    return replace(figure, name=contest.name, title=f"{figure.title}: {contest.title}", caption=caption)


def levels(contest: Contest, runs: Sequence[Run], label: str, by: float = math.inf) -> list[float]:
    """Of each seed."""
    span = _span(contest, runs)
    return [run.level(span, by) for run in runs if run.label == label]


def _span(contest: Contest, runs: Sequence[Run]) -> float:
    return LEVEL_OVER * (contest.experiment.stop.seconds or max((run.seconds for run in runs), default=0.0))


def running_level(run: Run, span: float) -> Run:
    smooth = [run.level(span, by) for by in run.evaluations["seconds"]]
    return replace(run, evaluations=run.evaluations.with_columns(accuracy=pl.Series(smooth, dtype=pl.Float64)))


def running_mean(run: Run, over: int) -> Run:
    smooth = pl.col("accuracy").rolling_mean(over, min_samples=1)
    return replace(run, evaluations=run.evaluations.with_columns(smooth))
