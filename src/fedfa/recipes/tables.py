"""Tables 1 to 5 of the paper: for each, the runs it needs, and our numbers beside the paper's."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from fedfa.recipes.contenders import Contender, contenders, extended, some
from fedfa.recipes.lab import Contest, Lab, Results, Section, describe, paper
from fedfa.record import Run
from fedfa.report.grid import Grid
from fedfa.report.shapes import number
from fedfa.report.tables import Row, accuracy_cell, percent, summarise

FAILED = "failed"
BASIC = ("fedavg", "fedbuff", "fedfa-param", "fedfa-delta")


# The runs ------------------------------------------------------------------------------------------------------------


def everyone(lab: Lab, ends_at_target: bool = False) -> list[Contest]:
    """Every strategy on every split."""
    return [
        Contest(split.name, workload.titled(split), experiment, contenders(_window(experiment)), ends_at_target)
        for workload, split in lab.splits()
        for experiment in [lab.experiment(workload, split)]
    ]


def everyone_to_target(lab: Lab) -> list[Contest]:
    return everyone(lab, ends_at_target=True)


def basic(lab: Lab) -> list[Contest]:
    """The four methods of Table 3 on every split."""
    return [
        Contest(split.name, workload.titled(split), experiment, some(_window(experiment), *BASIC))
        for workload, split in lab.splits()
        for experiment in [lab.experiment(workload, split)]
    ]


def concurrencies(lab: Lab) -> list[Contest]:
    """M_c = 2, 5, 10, 20; a buffer cannot be larger than what is in flight, so K goes down with M_c."""
    found = []
    for workload, split in lab.last_splits():
        usual = lab.experiment(workload, split)
        for concurrency in (2, 5, 10, 20):
            if concurrency > usual.data.clients > 0:
                continue
            window = min(_window(usual), concurrency)
            changes = {"strategy__concurrency": concurrency, "strategy__window": window}
            found.append(
                Contest(
                    f"{split.name}-mc{concurrency}",
                    f"{workload.titled(split)}, M_c = {concurrency}",
                    lab.experiment(workload, split, **changes),
                    some(window, "fedavg", "fedbuff", "fedfa-delta"),
                )
            )
    return found


def unequal_work(lab: Lab, ends_at_target: bool = False) -> list[Contest]:
    """FedNova and FedProx with and without FedFa; each client draws its local epochs, or FedNova would be FedAvg."""
    return [
        Contest(
            f"{split.name}-unequal",
            f"{workload.titled(split)}, unequal work",
            experiment,
            extended(_window(experiment)),
            ends_at_target,
        )
        for workload, split in lab.last_splits()
        for epochs in [max(2, lab.experiment(workload, split).local.epochs)]
        for experiment in [lab.experiment(workload, split, local__least_epochs=1, local__epochs=epochs)]
    ]


def unequal_work_to_target(lab: Lab) -> list[Contest]:
    return unequal_work(lab, ends_at_target=True)


def _window(experiment: Any) -> int:
    return experiment.strategy["window"]


# The tables ----------------------------------------------------------------------------------------------------------


def table1(lab: Lab, results: Results) -> Section:
    return _to_target(lab, results, "table1", "Table 1: time to the target accuracy", "time", "s")


def table2(lab: Lab, results: Results) -> Section:
    return _to_target(lab, results, "table2", "Table 2: rounds to the target accuracy", "rounds", "rounds")


def _to_target(lab: Lab, results: Results, name: str, title: str, measure: str, unit: str) -> Section:
    grids, values = [], []
    for contest, runs in results:
        rows = {row.label: row for row in summarise(runs, contest.target)}
        theirs = paper()[name].get(contest.name, {})
        ours = {label: getattr(row, f"{measure}_mean") if row.complete else None for label, row in rows.items()}
        best, their_best = _least(ours.values()), _least(theirs.get(c.row) for c in contest.contenders)
        goal = f", paper {percent(theirs['target'])}" if theirs and theirs["target"] != contest.target else ""
        whole = not (contest.ends_at_target and lab.scale == "full")
        cells = []
        for contender in contest.contenders:
            row, reported = rows[contender.title], theirs.get(contender.row)
            sd = row.time_sd if measure == "time" else None
            cells.append(
                (
                    contender.title,
                    _reached(ours[contender.title], sd),
                    _times(ours[contender.title], best),
                    _reported(reported),
                    _times(reported, their_best),
                    f"{row.reached} of {row.seeds}",
                    *([f"{100 * (row.best_mean or 0.0):.1f}"] if whole else []),
                )
            )
            values.append(_value(contest, contender, row, reported))
        headers = ("Strategy", f"Ours ({unit})", "× best", f"Paper ({unit})", "× best", "Seeds")
        headers += ("Best (%)",) if whole else ()
        grids.append(
            Grid(
                f"{contest.title}: {percent(contest.target)}{goal}", headers, cells, describe(contest.experiment, runs)
            )
        )
    round_is = "A round is M_c updates for FedAvg, K updates for the others (one for FedAsync)."
    text = [
        f"“{FAILED}”: not every seed reached the target within the budget. {round_is if measure == 'rounds' else ''}",
        _scale_note(lab),
    ]
    return Section(name, title, text, grids, values={"cells": values})


def table3(lab: Lab, results: Results) -> Section:
    grids, values = [], []
    for contest, runs in results:
        rows = {row.label: row for row in summarise(runs, contest.target)}
        theirs = paper()["table3"].get(contest.name, {})
        cells = [
            (c.title, accuracy_cell(rows[c.title].best_mean, rows[c.title].best_sd), accuracy_cell(theirs.get(c.row)),
             accuracy_cell(rows[c.title].final_mean, rows[c.title].final_sd))
            for c in contest.contenders
        ]  # fmt: skip
        values += [_value(contest, c, rows[c.title], theirs.get(c.row)) for c in contest.contenders]
        headers = ("Strategy", "Best, ours (%)", "Best, paper (%)", "Final, ours (%)")
        grids.append(Grid(contest.title, headers, cells, describe(contest.experiment, runs)))
    text = [
        "Best test accuracy within the budget of virtual time; the paper fixes a number of rounds without naming it.",
        _scale_note(lab),
    ]
    return Section("table3", "Table 3: best accuracy", text, grids, values={"cells": values})


def table4(lab: Lab, results: Results) -> Section:
    grids, values = [], []
    by_workload: dict[str, list[tuple[Contest, Sequence[Run]]]] = {}
    for contest, runs in results:
        by_workload.setdefault(contest.experiment.data.dataset, []).append((contest, runs))
    for found in by_workload.values():
        cells: dict[str, list[str]] = {}
        for contest, runs in found:
            concurrency = contest.experiment.strategy["concurrency"]
            theirs = paper()["table4"].get(str(concurrency), {}) if contest.experiment.data.dataset == "cifar10" else {}
            rows = {row.label: row for row in summarise(runs, None)}
            for c in contest.contenders:
                row = rows[c.title]
                cells.setdefault(c.title, []).extend(
                    (accuracy_cell(row.best_mean, row.best_sd), accuracy_cell(theirs.get(c.row)))
                )
                values.append(_value(contest, c, row, theirs.get(c.row)) | {"concurrency": concurrency})
        first = found[0][0]
        headers = ["Strategy"]
        for contest, _ in found:
            headers += [f"M_c = {contest.experiment.strategy['concurrency']}", "paper"]
        title = first.title.rsplit(",", 1)[0]
        captions = "K = min(usual K, M_c), for a buffer larger than what is in flight would never fill. "
        rest = describe(found[-1][0].experiment, found[-1][1])
        grids.append(Grid(title, tuple(headers), [(t, *c) for t, c in cells.items()], captions + rest))
    text = ["Best accuracy (%) within the same virtual time, by concurrency M_c.", _scale_note(lab)]
    return Section("table4", "Table 4: concurrency", text, grids, values={"cells": values})


def table5(lab: Lab, results: Results) -> Section:
    grids, values = [], []
    for contest, runs in results:
        rows = {row.label: row for row in summarise(runs, contest.target)}
        known = paper()["table5"] if contest.experiment.data.dataset == "cifar10" else {"rounds": {}, "seconds": {}}
        whole = not (contest.ends_at_target and lab.scale == "full")
        cells = []
        for c in contest.contenders:
            row = rows[c.title]
            done = row.complete
            cells.append(
                (
                    c.title,
                    _reached(row.time_mean if done else None, row.time_sd),
                    _reported(known["seconds"].get(c.row)),
                    _reached(row.rounds_mean if done else None),
                    _reported(known["rounds"].get(c.row)),
                    *([f"{100 * (row.best_mean or 0.0):.1f}"] if whole else []),
                )
            )
            values.append(
                _value(contest, c, row, known["seconds"].get(c.row)) | {"paper_rounds": known["rounds"].get(c.row)}
            )
        headers = ("Strategy", "Ours (s)", "Paper (s)", "Ours (rounds)", "Paper (rounds)")
        headers += ("Best (%)",) if whole else ()
        grids.append(
            Grid(f"{contest.title}: {percent(contest.target)}", headers, cells, describe(contest.experiment, runs))
        )
    text = [
        "Each client draws its number of local epochs once, so that clients do unequal work; with equal work FedNova "
        "is FedAvg. How long a client takes does not depend on it. With FedFa: the Delta form, eta_g = 1/M_c.",
        _scale_note(lab),
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


def _reached(value: float | None, sd: float | None = None) -> str:
    if value is None:
        return FAILED
    return number(value) + ("" if sd is None else f" ± {number(sd, value)}")


def _reported(value: Any) -> str:
    return "–" if value is None else value if isinstance(value, str) else number(value)


def _value(contest: Contest, contender: Contender, row: Row, reported: Any) -> dict[str, Any]:
    about = {"contest": contest.name, "spec": contender.spec, "target": contest.target, "paper": reported}
    return about | asdict(row)


def _scale_note(lab: Lab) -> str:
    changed = [text for text in lab.overrides if not text.startswith("data.folder=")]
    more = f" Changed by --set: {', '.join(changed)}." if changed else ""
    if lab.scale == "full":
        return f"{' '.join(['The sizes that the paper names.', *lab.stand_ins()])}{more}"
    return (
        "Smoke scale: less data, a smaller model, an easier target. It shows that everything works and gives a first "
        f"idea of the order; only --scale full may be held against the paper's numbers.{more}"
    )
