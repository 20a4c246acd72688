"""Makes the missing runs, one after the other, and continues interrupted ones."""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from fedfa.experiments.points import jobs_for
from fedfa.experiments.processes import run_points
from fedfa_reproduction.base import Comparison, Results
from fedfa_reproduction.matching import PlannedRun
from fedfa_reproduction.plan import plan, with_titles
from fedfa_reproduction.study import Study

Progress = Callable[[int], AbstractContextManager[Callable[[str], None]]]


def carry_out(
    study: Study,
    comparisons: Sequence[Comparison],
    *,
    progress: Progress,
    command: str = "",
    jobs: int | None = None,
    until: float = math.inf,
) -> Results:
    """Make the missing runs, while there is time, and give each comparison its existing runs."""
    planned = plan(study, comparisons)
    runs = {one.name: study.answers.take(one) for one in planned}
    missing = [one for one in planned if runs[one.name] is None and not one.retired]
    if not study.only_show:
        try:
            _make(study, missing, progress, command, jobs, until)
        finally:
            study.records.fold()
        runs |= {one.name: study.answers.take(one) for one in missing}
    there = {name: run for name, run in runs.items() if run is not None}
    return [(comparison, with_titles(study, comparison, there)) for comparison in comparisons]


def _make(
    study: Study, missing: Sequence[PlannedRun], progress: Progress, command: str, jobs: int | None, until: float
) -> None:
    if not missing:
        return
    by_folder = {one.point.folder: one for one in missing}

    def over() -> bool:
        return time.time() >= until

    still_missing = (one.point for one in missing if not over() and one not in study.answers)
    jobs = jobs or jobs_for(one.point for one in missing)
    with progress(len(missing)) as advance:
        for run in run_points(still_missing, jobs=jobs, command=command, resume=True, interrupted=over):
            if run.folder is not None:
                study.answers.made(by_folder[run.folder], run)
            advance(f"{run.label}, seed {run.seed}: best accuracy {run.best_accuracy:.3f}")


def how_many(study: Study, comparisons: Sequence[Comparison]) -> tuple[int, int]:
    """The number of existing runs, where longer ones count for shorter ones, and the number of all requested runs."""
    planned = [one for one in plan(study, comparisons) if not one.retired]
    return sum(one in study.answers for one in planned), len(planned)
