"""Tables 1 to 5 of the paper: our numbers beside the paper's."""

from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from fedfa.recipes.contenders import Contender
from fedfa.recipes.lab import Contest, Lab, Results, Section, describe, paper
from fedfa.record import Run
from fedfa.report.grid import Grid
from fedfa.report.shapes import by_label, number
from fedfa.report.tables import Row, accuracy_cell, percent, summarise

NEARLY = 0.02
"""So much below the target the mean of three evaluations is looked at: runs may end at the first that reaches it."""
THE_PAPERS_SPLIT = "cifar10-iid"
"""Tables 4 and 5 show CIFAR-10 without saying which split."""
FAILED = "failed"
NOT_RUN, NOT_TO_ITS_END = "not run", "not to its end"


# The tables ----------------------------------------------------------------------------------------------------------


def table1(lab: Lab, results: Results) -> Section:
    return _to_target(lab, results, "table1", "Table 1: time to the target accuracy", "time", "s")


def table2(lab: Lab, results: Results) -> Section:
    return _to_target(lab, results, "table2", "Table 2: rounds to the target accuracy", "rounds", "rounds")


def _to_target(lab: Lab, results: Results, name: str, title: str, measure: str, unit: str) -> Section:
    grids, values, shown = [], [], lab.with_begun(results)
    for (contest, runs), (_, known) in zip(results, shown, strict=True):
        rows = {row.label: row for row in summarise(runs, contest.target)}
        begun = by_label([run for run in known if run.label not in rows])
        theirs = paper()[name].get(contest.name, {})
        ours = {label: getattr(row, f"{measure}_mean") if row.complete else None for label, row in rows.items()}
        best, their_best = _least(ours.values()), _least(theirs.get(c.row) for c in contest.contenders)
        goal = f", paper {percent(theirs['target'])}" if theirs and theirs["target"] != contest.target else ""
        whole = not (contest.ends_at_target and lab.scale == "full")
        near = contest.target - NEARLY
        cells = []
        for contender in contest.contenders:
            row, reported = rows.get(contender.title), theirs.get(contender.row)
            shorter = begun.get(contender.title)
            cells.append(
                (
                    contender.title,
                    more_than(shorter, measure) if shorter else to_target(runs, row, measure),
                    _times(ours.get(contender.title), best),
                    _reported(reported),
                    _times(reported, their_best),
                    *([steady_cell(runs, row, near)] if measure == "time" else []),
                    NOT_TO_ITS_END if shorter else seeds_cell(lab, row, contest.target),
                    *([accuracy_cell(row.best_mean if row else None)] if whole else []),
                )
            )
            values.append(value_of(contest, contender, row, reported))
        steady = (f"Ours, mean of 3 at {percent(near)} (s)",) if measure == "time" else ()
        headers = ("Strategy", f"Ours ({unit})", "× best", f"Paper ({unit})", "× best", *steady, "Seeds")
        headers += ("Best (%)",) if whole else ()
        heading = f"{contest.title}: {percent(contest.target)}{goal}"
        grids.append(Grid(heading, headers, cells, describe(contest, known)))
    rounds_are = "A round is M_c updates for FedAvg, K updates for the others (one for FedAsync)."
    times_are = (
        "A run's time is that of the first evaluation at the target, which favours rules whose accuracy jumps; beside "
        "it, when the mean of three evaluations in a row was within two points of the target."
    )
    in_words = rounds_are if measure == "rounds" else times_are
    text = [
        f"“{FAILED}”: not every seed reached the target within the budget, or one diverged before its end; "
        f"“{NOT_RUN}”: the runs are not there; “>”: only shorter or interrupted ones are. {in_words}",
        scale_note(lab, shown),
    ]
    return Section(name, title, text, grids, values={"cells": values})


def table3(lab: Lab, results: Results) -> Section:
    grids, values = [], []
    for contest, runs in results:
        rows = {row.label: row for row in summarise(runs, contest.target)}
        theirs = paper()["table3"].get(contest.name, {})
        cells = [
            (c.title, best_cell(row), accuracy_cell(theirs.get(c.row)), final_cell(row), seeds_cell(lab, row))
            for c in contest.contenders
            for row in [rows.get(c.title)]
        ]
        values += [value_of(contest, c, rows.get(c.title), theirs.get(c.row)) for c in contest.contenders]
        headers = ("Strategy", "Best, ours (%)", "Best, paper (%)", "Final, ours (%)", "Seeds")
        grids.append(Grid(contest.title, headers, cells, describe(contest, runs)))
    text = [
        "Best test accuracy within the budget of virtual time; the paper fixes a number of rounds without naming it.",
        scale_note(lab, results),
    ]
    return Section("table3", "Table 3: best accuracy", text, grids, values={"cells": values})


def table4(lab: Lab, results: Results) -> Section:
    grids, values = [], []
    by_split: dict[str, list[tuple[Contest, Sequence[Run]]]] = {}
    for contest, runs in results:
        by_split.setdefault(contest.experiment.name, []).append((contest, runs))
    for split, found in by_split.items():
        titles = [c.title for contest, _ in found for c in contest.contenders]
        cells = {title: ["–"] * 2 * len(found) for title in titles}
        for place, (contest, runs) in enumerate(found):
            concurrency = contest.experiment.strategy["concurrency"]
            theirs = paper()["table4"].get(str(concurrency), {}) if split == THE_PAPERS_SPLIT else {}
            rows = {row.label: row for row in summarise(runs, None)}
            for c in contest.contenders:
                row = rows.get(c.title)
                some = f" ({row.seeds} of {len(lab.seeds)} seeds)" if row and row.seeds < len(lab.seeds) else ""
                cells[c.title][2 * place : 2 * place + 2] = best_cell(row) + some, accuracy_cell(theirs.get(c.row))
                values.append(value_of(contest, c, row, theirs.get(c.row)) | {"concurrency": concurrency})
        first = found[0][0]
        headers = ["Strategy"]
        for contest, _ in found:
            headers += [f"M_c = {contest.experiment.strategy['concurrency']}", "paper"]
        title = first.title.rsplit(",", 1)[0]
        captions = "K = min(usual K, M_c), for a buffer larger than what is in flight would never fill. "
        rest = describe(*found[-1])
        grids.append(Grid(title, tuple(headers), [(t, *c) for t, c in cells.items()], captions + rest))
    text = ["Best accuracy (%) within the same virtual time, by concurrency M_c.", scale_note(lab, results)]
    return Section("table4", "Table 4: concurrency", text, grids, values={"cells": values})


def table5(lab: Lab, results: Results) -> Section:
    grids, values = [], []
    for contest, runs in results:
        rows = {row.label: row for row in summarise(runs, contest.target)}
        known = paper()["table5"] if contest.experiment.name == THE_PAPERS_SPLIT else {"rounds": {}, "seconds": {}}
        whole = not (contest.ends_at_target and lab.scale == "full")
        cells = []
        for c in contest.contenders:
            row = rows.get(c.title)
            cells.append(
                (
                    c.title,
                    to_target(runs, row, "time"),
                    _reported(known["seconds"].get(c.row)),
                    to_target(runs, row, "rounds"),
                    _reported(known["rounds"].get(c.row)),
                    seeds_cell(lab, row, contest.target),
                    *([accuracy_cell(row.best_mean if row else None)] if whole else []),
                )
            )
            values.append(
                value_of(contest, c, row, known["seconds"].get(c.row)) | {"paper_rounds": known["rounds"].get(c.row)}
            )
        headers = ("Strategy", "Ours (s)", "Paper (s)", "Ours (rounds)", "Paper (rounds)", "Seeds")
        headers += ("Best (%)",) if whole else ()
        grids.append(Grid(f"{contest.title}: {percent(contest.target)}", headers, cells, describe(contest, runs)))
    text = [
        "Each client draws its number of local epochs once, so that clients do unequal work; with equal work FedNova "
        "is FedAvg. How long a client takes does not depend on it. With FedFa: FedFa-Delta, by agreement from the "
        "bases (its default) or with 1/M_c from the model, which FedNova always has.",
        scale_note(lab, results),
    ]
    return Section(
        "table5", "Table 5: FedNova and FedProx, with and without FedFa", text, grids, values={"cells": values}
    )


# Cells ---------------------------------------------------------------------------------------------------------------


def _least(values: Any) -> float | None:
    known = [value for value in values if isinstance(value, int | float)]
    return min(known) if known else None


def _times(value: Any, best: float | None) -> str:
    return f"{value / best:.1f}×" if isinstance(value, int | float) and best else "–"


def to_target(runs: Sequence[Run], row: Row | None, measure: str) -> str:
    """The ``time`` or the ``rounds`` that a row took to its target; where there is none, why."""
    if row is None:
        return NOT_RUN
    value, sd = getattr(row, f"{measure}_mean"), row.time_sd if measure == "time" else None
    if value is None or not row.complete:
        own = (run for run in runs if run.label == row.label)
        early = {ended.split(":")[0] for run in own if ":" in (ended := run.manifest["ended"])}
        return f"{FAILED} ({', '.join(sorted(early))})" if early else FAILED
    return number(value) + ("" if sd is None else f" ± {number(sd, value)}")


def more_than(begun: Sequence[Run], measure: str) -> str:
    """What shorter runs say of the ``time`` or the ``rounds`` to a target that they did not get to, and how near."""
    least = min(begun, key=lambda run: run.seconds)
    best = accuracy_cell(fmean(run.best_accuracy for run in begun))
    return f"> {number(least.seconds if measure == 'time' else least.rounds)} (best {best} %)"


def steady_cell(runs: Sequence[Run], row: Row | None, accuracy: float) -> str:
    """When the mean of three evaluations in a row was there, if it was for every seed."""
    times = [run.steady_time_to(accuracy) for run in runs if row is not None and run.label == row.label]
    known = [time for time in times if time is not None]
    return number(fmean(known)) if known and len(known) == len(times) else "–"


def best_cell(row: Row | None) -> str:
    return NOT_RUN if row is None else accuracy_cell(row.best_mean, row.best_sd)


def final_cell(row: Row | None) -> str:
    return "–" if row is None else accuracy_cell(row.final_mean, row.final_sd)


def seeds_cell(lab: Lab, row: Row | None, target: float | None = None) -> str:
    """How many seeds a row stands for (with a target: how many of them reached it), and how many it lacks."""
    if row is None:
        return NOT_RUN
    lacking = len(lab.seeds) - row.seeds
    counted = str(row.seeds) if target is None else f"{row.reached} of {row.seeds}"
    return f"{counted} ({lacking} {NOT_RUN})" if lacking > 0 else counted


def _reported(value: Any) -> str:
    return "–" if value is None else value if isinstance(value, str) else number(value)


def value_of(contest: Contest, contender: Contender, row: Row | None, reported: Any = None) -> dict[str, Any]:
    about = {"contest": contest.name, "spec": contender.spec, "target": contest.target, "paper": reported}
    return about | (asdict(row) if row else {"label": contender.title, "seeds": 0})


def scale_note(lab: Lab, results: Results) -> str:
    changed = [text for text in lab.overrides if not text.startswith("data.folder=")]
    more = f" Changed by --set: {', '.join(changed)}." if changed else ""
    if lab.scale == "full":
        return f"{' '.join(['The sizes that the paper names.', *lab.stand_ins(results)])}{more}"
    return (
        "Smoke scale: less data, a smaller model, an easier target. It shows that everything works and gives a first "
        f"idea of the order; only --scale full may be held against the paper's numbers.{more}"
    )
