"""The cells of the tables: a formatted number, or a word that says why there is none."""

from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from fedfa.report.shapes import number
from fedfa.report.tables import StrategyRow, accuracy_cell
from fedfa.runs.run import Run
from fedfa_reproduction.base import Comparison, Contender
from fedfa_reproduction.measures import given_up, steady_time_to
from fedfa_reproduction.study import Study

FAILED = "failed"
NOT_RUN, NOT_TO_ITS_END = "not run", "not to its end"


def least(values: Any) -> float | None:
    known = [value for value in values if isinstance(value, int | float)]
    return min(known) if known else None


def times_best(value: Any, best: float | None) -> str:
    return f"{value / best:.1f}×" if isinstance(value, int | float) and best else "–"


def to_target(runs: Sequence[Run], row: StrategyRow | None, measure: str) -> str:
    """The ``time`` or the ``rounds`` of a row to its target; if there is none, the reason."""
    if row is None:
        return NOT_RUN
    value, sd = getattr(row, f"{measure}_mean"), row.time_sd if measure == "time" else None
    if value is None or not row.complete:
        early = {run.ending.kind for run in runs if run.label == row.label and given_up(run)}
        return f"{FAILED} ({', '.join(sorted(early))})" if early else FAILED
    return number(value) + ("" if sd is None else f" ± {number(sd, value)}")


def more_than(begun: Sequence[Run], measure: str) -> str:
    """A lower limit of the ``time`` or the ``rounds`` to a target from runs that did not reach it, and their best."""
    least = min(begun, key=lambda run: run.seconds)
    best = accuracy_cell(fmean(run.best_accuracy for run in begun))
    return f"> {number(least.seconds if measure == 'time' else least.rounds)} (best {best} %)"


def steady_cell(runs: Sequence[Run], row: StrategyRow | None, accuracy: float) -> str:
    """When the mean of three evaluations in a row reached it, if it did for every seed."""
    times = [steady_time_to(run, accuracy) for run in runs if row is not None and run.label == row.label]
    known = [time for time in times if time is not None]
    return number(fmean(known)) if known and len(known) == len(times) else "–"


def best_cell(row: StrategyRow | None) -> str:
    return NOT_RUN if row is None else accuracy_cell(row.best_mean, row.best_sd)


def final_cell(row: StrategyRow | None) -> str:
    return "–" if row is None else accuracy_cell(row.final_mean, row.final_sd)


def seeds_cell(study: Study, row: StrategyRow | None, target: float | None = None) -> str:
    """The number of a row's seeds (with a target: how many of them reached it), and of missing seeds."""
    if row is None:
        return NOT_RUN
    lacking = len(study.seeds) - row.seeds
    counted = str(row.seeds) if target is None else f"{row.reached} of {row.seeds}"
    return f"{counted} ({lacking} {NOT_RUN})" if lacking > 0 else counted


def reported_cell(value: Any) -> str:
    return "–" if value is None else value if isinstance(value, str) else number(value)


def value_of(
    comparison: Comparison, contender: Contender, row: StrategyRow | None, reported: Any = None
) -> dict[str, Any]:
    about = {"comparison": comparison.name, "spec": contender.spec, "target": comparison.target, "paper": reported}
    return about | (asdict(row) if row else {"label": contender.title, "seeds": 0})
