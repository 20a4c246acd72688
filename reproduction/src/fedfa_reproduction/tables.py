"""Tables 1 to 5 of the paper: our numbers beside the paper's."""

from collections.abc import Sequence

from fedfa.report.grid import Grid
from fedfa.report.shapes import by_label
from fedfa.report.tables import accuracy_cell, percent, summarise
from fedfa.runs.run import Run
from fedfa_reproduction.base import Comparison, Results, Section
from fedfa_reproduction.cells import (
    FAILED,
    NOT_RUN,
    NOT_TO_ITS_END,
    best_cell,
    final_cell,
    least,
    more_than,
    reported_cell,
    seeds_cell,
    steady_cell,
    times_best,
    to_target,
    value_of,
)
from fedfa_reproduction.descriptions import describe, scale_note
from fedfa_reproduction.plan import with_begun
from fedfa_reproduction.published import paper
from fedfa_reproduction.study import Study

NEARLY = 0.02
"""How far below the target the mean of three evaluations is measured: runs may end when they first reach it."""
THE_PAPERS_SPLIT = "cifar10-iid"
"""Tables 4 and 5 show CIFAR-10 without saying which split."""


def table1(study: Study, results: Results) -> Section:
    return _to_target(study, results, "table1", "Table 1: time to the target accuracy", "time", "s")


def table2(study: Study, results: Results) -> Section:
    return _to_target(study, results, "table2", "Table 2: rounds to the target accuracy", "rounds", "rounds")


def _to_target(study: Study, results: Results, name: str, title: str, measure: str, unit: str) -> Section:
    grids, values, shown = [], [], with_begun(study, results)
    for (comparison, runs), (_, known) in zip(results, shown, strict=True):
        rows = {row.label: row for row in summarise(runs, comparison.target)}
        begun = by_label([run for run in known if run.label not in rows])
        theirs = paper()[name].get(comparison.name, {})
        ours = {label: getattr(row, f"{measure}_mean") if row.complete else None for label, row in rows.items()}
        best, their_best = least(ours.values()), least(theirs.get(c.row) for c in comparison.contenders)
        goal = f", paper {percent(theirs['target'])}" if theirs and theirs["target"] != comparison.target else ""
        whole = not study.ends_at_target(comparison)
        near = comparison.target - NEARLY
        cells = []
        for contender in comparison.contenders:
            row, reported = rows.get(contender.title), theirs.get(contender.row)
            shorter = begun.get(contender.title)
            cells.append(
                (
                    contender.title,
                    more_than(shorter, measure) if shorter else to_target(runs, row, measure),
                    times_best(ours.get(contender.title), best),
                    reported_cell(reported),
                    times_best(reported, their_best),
                    *([steady_cell(runs, row, near)] if measure == "time" else []),
                    NOT_TO_ITS_END if shorter else seeds_cell(study, row, comparison.target),
                    *([accuracy_cell(row.best_mean if row else None)] if whole else []),
                )
            )
            values.append(value_of(comparison, contender, row, reported))
        steady = (f"Ours, mean of 3 at {percent(near)} (s)",) if measure == "time" else ()
        headers = ("Strategy", f"Ours ({unit})", "× best", f"Paper ({unit})", "× best", *steady, "Seeds")
        headers += ("Best (%)",) if whole else ()
        heading = f"{comparison.title}: {percent(comparison.target)}{goal}"
        grids.append(Grid(heading, headers, cells, describe(comparison, known)))
    rounds_are = "A round is M_c updates for FedAvg, K updates for the others (one for FedAsync)."
    times_are = (
        "A run's time is that of the first evaluation at the target, which favours rules whose accuracy jumps; beside "
        "it, when the mean of three evaluations in a row was within two points of the target."
    )
    in_words = rounds_are if measure == "rounds" else times_are
    text = [
        f"“{FAILED}”: not every seed reached the target within the budget, or one diverged before its end; "
        f"“{NOT_RUN}”: the runs are not there; “>”: only shorter or interrupted ones are. {in_words}",
        scale_note(study, shown),
    ]
    return Section(name, title, text, grids, values={"cells": values})


def table3(study: Study, results: Results) -> Section:
    grids, values = [], []
    for comparison, runs in results:
        rows = {row.label: row for row in summarise(runs, comparison.target)}
        theirs = paper()["table3"].get(comparison.name, {})
        cells = [
            (c.title, best_cell(row), accuracy_cell(theirs.get(c.row)), final_cell(row), seeds_cell(study, row))
            for c in comparison.contenders
            for row in [rows.get(c.title)]
        ]
        values += [value_of(comparison, c, rows.get(c.title), theirs.get(c.row)) for c in comparison.contenders]
        headers = ("Strategy", "Best, ours (%)", "Best, paper (%)", "Final, ours (%)", "Seeds")
        grids.append(Grid(comparison.title, headers, cells, describe(comparison, runs)))
    text = [
        "Best test accuracy within the budget of virtual time; the paper fixes a number of rounds without naming it.",
        scale_note(study, results),
    ]
    return Section("table3", "Table 3: best accuracy", text, grids, values={"cells": values})


def table4(study: Study, results: Results) -> Section:
    grids, values = [], []
    by_split: dict[str, list[tuple[Comparison, Sequence[Run]]]] = {}
    for comparison, runs in results:
        by_split.setdefault(comparison.experiment.name, []).append((comparison, runs))
    for split, found in by_split.items():
        titles = [c.title for comparison, _ in found for c in comparison.contenders]
        cells = {title: ["–"] * 2 * len(found) for title in titles}
        for place, (comparison, runs) in enumerate(found):
            concurrency = comparison.experiment.strategy["concurrency"]
            theirs = paper()["table4"].get(str(concurrency), {}) if split == THE_PAPERS_SPLIT else {}
            rows = {row.label: row for row in summarise(runs, None)}
            for c in comparison.contenders:
                row = rows.get(c.title)
                some = f" ({row.seeds} of {len(study.seeds)} seeds)" if row and row.seeds < len(study.seeds) else ""
                cells[c.title][2 * place : 2 * place + 2] = best_cell(row) + some, accuracy_cell(theirs.get(c.row))
                values.append(value_of(comparison, c, row, theirs.get(c.row)) | {"concurrency": concurrency})
        first = found[0][0]
        headers = ["Strategy"]
        for comparison, _ in found:
            headers += [f"M_c = {comparison.experiment.strategy['concurrency']}", "paper"]
        title = first.title.rsplit(",", 1)[0]
        captions = "K = min(usual K, M_c), for a buffer larger than what is in flight would never fill. "
        rest = describe(*found[-1])
        grids.append(Grid(title, tuple(headers), [(t, *c) for t, c in cells.items()], captions + rest))
    text = ["Best accuracy (%) within the same virtual time, by concurrency M_c.", scale_note(study, results)]
    return Section("table4", "Table 4: concurrency", text, grids, values={"cells": values})


def table5(study: Study, results: Results) -> Section:
    grids, values = [], []
    for comparison, runs in results:
        rows = {row.label: row for row in summarise(runs, comparison.target)}
        known = paper()["table5"] if comparison.experiment.name == THE_PAPERS_SPLIT else {"rounds": {}, "seconds": {}}
        whole = not study.ends_at_target(comparison)
        cells = []
        for c in comparison.contenders:
            row = rows.get(c.title)
            cells.append(
                (
                    c.title,
                    to_target(runs, row, "time"),
                    reported_cell(known["seconds"].get(c.row)),
                    to_target(runs, row, "rounds"),
                    reported_cell(known["rounds"].get(c.row)),
                    seeds_cell(study, row, comparison.target),
                    *([accuracy_cell(row.best_mean if row else None)] if whole else []),
                )
            )
            values.append(
                value_of(comparison, c, row, known["seconds"].get(c.row)) | {"paper_rounds": known["rounds"].get(c.row)}
            )
        headers = ("Strategy", "Ours (s)", "Paper (s)", "Ours (rounds)", "Paper (rounds)", "Seeds")
        headers += ("Best (%)",) if whole else ()
        grids.append(
            Grid(f"{comparison.title}: {percent(comparison.target)}", headers, cells, describe(comparison, runs))
        )
    text = [
        "Each client draws its number of local epochs once, so that clients do unequal work; with equal work FedNova "
        "is FedAvg. How long a client takes does not depend on it. With FedFa: FedFa-Delta with 1/M_c, and FedProx "
        "with FedFa-Agree, too.",
        scale_note(study, results),
    ]
    return Section(
        "table5", "Table 5: FedNova and FedProx, with and without FedFa", text, grids, values={"cells": values}
    )
