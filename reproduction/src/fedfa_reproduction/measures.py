"""Measures of a run that the reproduction needs in addition to the run's own."""

import math
from dataclasses import replace

import polars as pl

from fedfa.runs.run import Run
from fedfa.runs.stop import Stop

STEADY_OVER = 3
"""An accuracy is steady when the mean of this many evaluations in a row reaches it."""
GIVEN_UP = {"diverged", "hopeless"}
"""The endings of runs that would end in the same way under any other limits."""


def given_up(run: Run) -> bool:
    return run.ending.kind in GIVEN_UP


def steady_time_to(run: Run, accuracy: float, over: int = STEADY_OVER) -> float | None:
    """Virtual seconds until the mean of this many evaluations in a row first reached this accuracy.

    A single evaluation may be lucky, which favours rules whose accuracy jumps up and down.
    """
    means = run.evaluations["accuracy"].rolling_mean(over)
    hits = run.evaluations["seconds"].filter(means >= accuracy)
    return hits[0] if len(hits) else None


def mean_accuracy(run: Run, span: float, by: float = math.inf) -> float:
    """Mean over the evaluations in a span before a time, or before the end; if there is none, the last one before."""
    until = min(by, run.seconds)
    seconds, accuracy = run.evaluations["seconds"], run.evaluations["accuracy"]
    known = accuracy.filter(seconds <= until)
    recent = accuracy.filter((seconds <= until) & (seconds > until - span))
    last = recent if len(recent) else known.tail(1)
    return float(last.mean()) if len(last) else math.nan  # pyright: ignore[reportArgumentType]


def mean_change(run: Run, over: int = 20) -> float:
    """The mean change of accuracy between two evaluations, up or down, over the last ones."""
    steps = run.evaluations["accuracy"].diff().drop_nulls().abs().tail(over)
    return float(steps.mean()) if len(steps) else math.nan  # pyright: ignore[reportArgumentType]


def end_under(run: Run, stop: Stop) -> tuple[float, str] | None:
    """When and at which of other limits the run would have ended; None if it did not go that far."""
    accepted, target = run.accepted["seconds"], stop.accuracy and run.time_to(stop.accuracy)
    ends: list[tuple[float, str]] = [] if target is None else [(target, "accuracy")]
    if stop.updates is not None and len(accepted) >= stop.updates:
        ends.append((accepted[stop.updates - 1], "updates"))
    if stop.seconds is not None and run.seconds >= stop.seconds:
        ends.append((stop.seconds, "seconds"))
    return min(ends, default=None)


def cut(run: Run, stop: Stop) -> Run | None:
    """The run cut at other limits; None if it did not go that far.

    A run that was given up would have been given up under them, too. Its last evaluation is the last before its end.
    """
    end = end_under(run, stop)
    if end is None:
        return run if given_up(run) else None
    seconds, ended = end
    updates, evaluations = (rows.filter(pl.col("seconds") <= seconds) for rows in (run.updates, run.evaluations))
    facts = {"stop": stop.limits, "ended": ended, "seconds": seconds, "version": evaluations["version"][-1]}
    return replace(run, updates=updates, evaluations=evaluations, manifest=run.manifest | facts, model=None)


# Smoothed curves -----------------------------------------------------------------------------------------------------


def with_accuracy(run: Run, accuracy: pl.Expr | pl.Series) -> Run:
    return replace(run, evaluations=run.evaluations.with_columns(accuracy.alias("accuracy")))


def best_so_far(run: Run) -> Run:
    return with_accuracy(run, pl.col("accuracy").cum_max())


def rolling_mean(run: Run, over: int) -> Run:
    return with_accuracy(run, pl.col("accuracy").rolling_mean(over, min_samples=1))


def mean_over(run: Run, span: float) -> Run:
    """At each evaluation the mean over a span of seconds before it."""
    smooth = [mean_accuracy(run, span, by) for by in run.evaluations["seconds"]]
    return with_accuracy(run, pl.Series(smooth, dtype=pl.Float64))
