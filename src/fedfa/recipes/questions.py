"""What the paper leaves open, each as a recipe: the readings of FedFa-Delta, what refill, window and step each give,
and how FedAsync has to mix. The runs are short and meet a target that is early on the way to the paper's."""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import geometric_mean
from typing import Any

from fedfa.experiment import Experiment
from fedfa.recipes.contenders import Contender, at_pace, by_agreement
from fedfa.recipes.contests import WINDOWS, window_of
from fedfa.recipes.figures import curves
from fedfa.recipes.lab import Contest, Lab, Results, Section, describe
from fedfa.recipes.tables import best_cell, final_cell, scale_note, seeds_cell, to_target, value_of
from fedfa.recipes.workloads import Split
from fedfa.report.grid import Grid
from fedfa.report.shapes import number
from fedfa.report.tables import Row, percent, summarise

FASTER = "× FedFa-Param"
GROUP_NORM_LR = 5.0
"""GroupNorm is tried with this times the local step of BatchNorm."""
RECALIBRATE = 2000
"""Training examples on which BatchNorm's statistics are measured anew, to tell what averaging them costs."""
MILD = {"kind": "lognormal", "median": 7.5, "sigma": 0.35}
HEAVY = {"kind": "pareto", "scale": 3.0, "shape": 1.5, "cap": 120.0}
WEATHERS: Mapping[str, tuple[str, Any]] = {
    "": ("paper weather, 3 s + Exp(5 s)", "paper"),
    "phones": ("real phones and their links", "phones"),
    "mild": ("milder tail: lognormal, median 7.5 s, sigma 0.35", {"speed": MILD}),
    "heavy": ("heavier tail: Pareto from 3 s, shape 1.5, at most 120 s", {"speed": HEAVY}),
}


def searched(split: Split, what: str = "") -> str:
    """The folder of short runs: those of one setting are shared by all questions."""
    return f"{split.name}-search{what and '-'}{what}"


# FedFa-Delta ---------------------------------------------------------------------------------------------------------


def deltas(lab: Lab) -> list[Contest]:
    """Differences against the model a client started from or the current one, anchors, staleness weights, GroupNorm."""
    found = []
    for workload, split in lab.last_splits():
        usual = lab.experiment(workload, split, workload.search)
        k, title = window_of(usual), workload.titled(split)
        param = Contender(f"fedfa-param:window={k}", "FedFa-Param", "fedfa-param")
        base, current, bases = steps(usual, k, "base"), steps(usual, k, "current"), from_bases(k)
        weighed = tuple(
            Contender(f"{step.spec}:staleness={s}", f"{step.title}, {s}", "fedfa-delta", 1 + step.turn)
            for step in base[:2]
            for s in ("polynomial", "hinge")
        )
        name = searched(split)
        found += [
            Contest(name, f"{title}: from the model started from", usual, (param, *base), "delta"),
            Contest(name, f"{title}: from the bases of the window", usual, (param, base[0], *bases), "delta"),
            Contest(name, f"{title}: from the current model", usual, (param, base[0], *current), "delta"),
            Contest(name, f"{title}: staleness weights", usual, (param, *base[:2], *weighed), "delta"),
        ]
        if usual.model.name == "resnet18":
            lr = GROUP_NORM_LR * usual.local.lr
            anew = lab.experiment(workload, split, workload.search, model__recalibrate=RECALIBRATE)
            some = (param, base[0], *bases)
            found.append(Contest(searched(split, "anew"), f"{title}: statistics measured anew", anew, some, "delta"))
            group = lab.experiment(workload, split, workload.search, model__norm="group", local__lr=lr)
            found.append(Contest(searched(split, "group"), f"{title}: GroupNorm", group, some, "delta"))
    return found


def steps(experiment: Experiment, k: int, origin: str) -> tuple[Contender, ...]:
    """FedFa-Delta with the server steps 1/M_c, 1/K, 1/2 and 1; those that moved the model too far come last."""
    sizes = {"1/M_c": 1 / experiment.strategy["concurrency"], "1/K": 1 / k, "1/2": 0.5, "1": 1.0}
    different = {f"{size:g}": title for title, size in reversed(sizes.items())}
    return tuple(
        Contender(
            f"fedfa-delta:window={k}:origin={origin}:server_lr={size}",
            f"Delta {title}" + (", current" if origin == "current" else ""),
            "fedfa-delta",
            2 * turn,
        )
        for turn, (size, title) in enumerate(sorted(different.items(), key=lambda item: float(item[0])))
    )


def from_bases(k: int) -> tuple[Contender, ...]:
    """FedFa-Delta from the mean of the models its clients started from, where a step of 1 is FedFa-Param."""
    fixed = (
        Contender(f"fedfa-delta:window={k}:anchor=bases:server_lr={size}", f"Delta {size} from bases", "fedfa-delta")
        for size in (1.2, 1.5, 2.0)
    )
    return (by_agreement(k, "Delta by agreement"), *fixed)


def delta(lab: Lab, results: Results) -> Section:
    text = [
        "FedFa-Delta with the server step eta_g as named: from the current model or from the mean of the models that "
        "the window's clients started from (where a step of 1 is FedFa-Param), differences against the model a client "
        "started from or against the current one, and less weight for stale ones; FedFa-Param beside it."
    ]
    return _answer(lab, results, "delta", "Which reading of FedFa-Delta does what", text)


# The window and the step ---------------------------------------------------------------------------------------------


def windows_at_pace(lab: Lab) -> list[Contest]:
    """FedFa-Param with windows from small to large, the step that makes up for each, and that by agreement."""
    found = []
    for workload, split in lab.last_splits():
        experiment = lab.experiment(workload, split, workload.search)
        for k in WINDOWS:
            param = Contender(f"fedfa-param:window={k}", "FedFa-Param", "fedfa-param", 2)
            paced = at_pace(k, experiment.strategy["concurrency"], "FedFa-Delta at FedAvg's pace", 2)
            compared = (param, paced, by_agreement(k, "FedFa-Delta by agreement", 2))
            found.append(Contest(searched(split), f"{workload.titled(split)}: K = {k}", experiment, compared, "delta"))
    return found


def pace(lab: Lab, results: Results) -> Section:
    text = [
        "The models in a window started from versions that lie M_c + (K - 1) / 2 arrivals back on average, so while "
        "M_c updates come in, FedFa-Param moves the model by M_c / (M_c + (K - 1) / 2) of a FedAvg round. The step of "
        "1 + (K - 1) / (2 M_c) from the bases makes up for it: expect so many times FedFa-Param's speed. By agreement: "
        "the step that FedFa-Delta takes by default, between 1 and 2."
    ]
    return _answer(lab, results, "pace", "What a window costs, and the step that makes up for it", text)


# Refill, window, step ------------------------------------------------------------------------------------------------


def refills(lab: Lab) -> list[Contest]:
    """From FedBuff to FedFa one change at a time, once for differences and once for models, under four weathers."""
    found = []
    for workload, split in lab.last_splits():
        for suffix, (weather_title, weather) in WEATHERS.items():
            experiment = lab.experiment(workload, split, workload.search, weather=weather)
            name, title = searched(split, suffix), f"{workload.titled(split)}: {weather_title}"
            found.append(Contest(name, title, experiment, one_by_one(experiment), "refill"))
    return found


def one_by_one(experiment: Experiment) -> tuple[Contender, ...]:
    k = window_of(experiment)
    mean, buffer = f"fedbuff:buffer={k}:origin=current", f"fedbuff:buffer={k}"
    same_weight = f"{buffer}:server_lr={k / experiment.strategy['concurrency']:g}"
    return (
        Contender("fedavg", "FedAvg", "fedavg"),
        Contender(same_weight, "differences: buffer, batch", "fedbuff"),
        Contender(f"{same_weight}:refill=immediate", "differences: buffer, at once", "fedbuff"),
        Contender(steps(experiment, k, "base")[0].spec, "differences: window, at once (FedFa-Delta)", "fedfa-delta"),
        Contender(f"{buffer}:refill=immediate", "differences: buffer, at once, eta_g = 1", "fedbuff"),
        Contender(mean, "models: buffer, batch", "fedbuff"),
        Contender(f"{mean}:refill=immediate", "models: buffer, at once", "fedbuff"),
        Contender(f"fedfa-param:window={k}", "models: window, at once (FedFa-Param)", "fedfa-param"),
    )


def refill(lab: Lab, results: Results) -> Section:
    text = [
        "One change at a time. Differences: each counts 1/M_c in all, but for eta_g = 1, where it counts 1/K. Models: "
        "the plain mean of K. Buffer or sliding window; new work in a batch after an aggregation, or at once."
    ]
    return _answer(lab, results, "refill", "How much is refill, how much the window, how much the step", text)


# FedAsync ------------------------------------------------------------------------------------------------------------


def mixings(lab: Lab) -> list[Contest]:
    """FedAsync with mixing weights from 0.1 to 0.9, fixed and falling with staleness."""
    found = []
    for workload, split in lab.last_splits():
        experiment = lab.experiment(workload, split, workload.search)
        param = Contender(f"fedfa-param:window={window_of(experiment)}", "FedFa-Param", "fedfa-param")
        for staleness in ("polynomial", "constant", "hinge"):
            mixed = (
                Contender(f"fedasync:beta={beta}:staleness={staleness}", f"beta = {beta}", "fedasync")
                for beta in (0.1, 0.3, 0.6, 0.9)
            )
            title = f"{workload.titled(split)}: {staleness}"
            found.append(Contest(searched(split), title, experiment, (param, *mixed), "mixing"))
    return found


def mixing(lab: Lab, results: Results) -> Section:
    text = ["FedAsync mixes an arriving model in with the weight beta s(staleness)."]
    return _answer(lab, results, "mixing", "How FedAsync has to mix", text)


# What all show -------------------------------------------------------------------------------------------------------


def _answer(lab: Lab, results: Results, name: str, title: str, text: Sequence[str]) -> Section:
    """Each contest as a table with FedFa-Param to compare with, and as curves."""
    grids, figures, values = [], [], []
    shown: Counter[str] = Counter()  # by contest, so that a figure's name does not depend on what else is shown
    for contest, runs in results:
        rows = {row.label: row for row in summarise(runs, contest.target)}
        param = next(c.title for c in contest.contenders if c.row == "fedfa-param")
        cells = []
        for contender in contest.contenders:
            row = rows.get(contender.title)
            cells.append(
                (
                    contender.title,
                    best_cell(row),
                    final_cell(row),
                    to_target(runs, row, "time"),
                    number(row.updates_mean) if row and row.complete and row.updates_mean else "–",
                    faster_cell(row, rows.get(param)),
                    seeds_cell(lab, row, contest.target),
                )
            )
            values.append(value_of(contest, contender, row))
        goal = percent(contest.target)
        headers = ("Strategy", "Best (%)", "Final (%)", f"Time to {goal} (s)", f"Updates to {goal}", FASTER, "Seeds")
        grids.append(Grid(contest.title, headers, cells, describe(contest, runs)))
        if runs:
            figures.append(curves(contest, runs, f"{name}{shown[contest.name]}"))
        shown[contest.name] += 1
    paired = (
        f"“{FASTER}”: FedFa-Param's time to the target over the row's, seed by seed: their geometric mean, and the "
        "least and the most. Seeds differ more in difficulty than strategies do, which ± shows and this does not."
    )
    return Section(name, title, [*text, paired, scale_note(lab, results)], grids, figures, {"cells": values})


def faster_cell(row: Row | None, param: Row | None) -> str:
    """How much sooner than FedFa-Param it reached the target; a dash unless both did with every seed there is."""
    ratios = param.times_over(row) if row and param and row is not param else []
    if row is None or not ratios or len(ratios) < row.seeds:
        return "–"
    spread = f" ({min(ratios):.2f} to {max(ratios):.2f})" if len(ratios) > 1 else ""
    return f"{geometric_mean(ratios):.2f}{spread}"
