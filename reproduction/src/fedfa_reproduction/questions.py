"""Questions that the paper leaves open, each as a recipe: FedFa-Delta's step, the separate effects of refill, window
and step, and FedAsync's mixing weight. The runs are short, with a target that is easier than the paper's."""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import geometric_mean
from typing import Any

from fedfa.experiments.config import Experiment
from fedfa.report.grid import Grid
from fedfa.report.shapes import number
from fedfa.report.tables import StrategyRow, percent, summarise
from fedfa_reproduction.base import Comparison, Contender, Results, Section, Stage
from fedfa_reproduction.cells import best_cell, final_cell, seeds_cell, to_target, value_of
from fedfa_reproduction.comparisons import WINDOWS, window_of
from fedfa_reproduction.contenders import agree, agree_as_fedavg, model_mean, param
from fedfa_reproduction.descriptions import describe, scale_note
from fedfa_reproduction.figures import curves
from fedfa_reproduction.study import Study
from fedfa_reproduction.workloads import Split

FASTER = "× FedFa-Param"
GROUP_NORM_LR = 5.0
"""GroupNorm is tried with the local step of BatchNorm times this."""
MEASURED_ANEW = {"model.recalibrate": 2000}
"""Before each evaluation BatchNorm's statistics were measured again on this many training examples."""
MILD = {"kind": "lognormal", "median": 7.5, "sigma": 0.35}
HEAVY = {"kind": "pareto", "scale": 3.0, "shape": 1.5, "cap": 120.0}
WEATHERS: Mapping[str, tuple[str, Any]] = {
    "": ("paper weather, 3 s + Exp(5 s)", "paper"),
    "phones": ("real phones and their links", "phones"),
    "mild": ("milder tail: lognormal, median 7.5 s, sigma 0.35", {"speed": MILD}),
    "heavy": ("heavier tail: Pareto from 3 s, shape 1.5, at most 120 s", {"speed": HEAVY}),
}


def searched(split: Split, what: str = "") -> str:
    """A comparison of short runs; all questions share the runs of one setting."""
    return f"{split.name}-search{what and '-'}{what}"


# FedFa-Delta and FedFa-Agree -----------------------------------------------------------------------------------------


def deltas(study: Study) -> list[Comparison]:
    """Steps, where they start, what differences are taken against, staleness weights, and GroupNorm."""
    found = []
    for workload, split in study.mild_splits():
        usual = study.experiment(workload, split, workload.search)
        k, title = window_of(usual), workload.titled(split)
        models = param(k, "FedFa-Param")
        base, current, agreeing = steps(usual, k, "base"), steps(usual, k, "current"), from_bases(k)
        weighed = tuple(
            Contender(f"{step.key}-{s}", f"{step.spec}:staleness={s}", f"{step.title}, {s}", step.row, 1 + step.turn)
            for step in base[:2]
            for s in ("polynomial", "hinge")
        )
        compared = {
            "from the model started from": (models, *base),
            "from the bases of the window": (models, base[0], *agreeing),
            "from the current model": (models, base[0], *current),
            "staleness weights": (models, *base[:2], *weighed),
        }
        found += [
            Comparison(searched(split), f"{title}: {what}", usual, chosen, Stage.SEARCH)
            for what, chosen in compared.items()
        ]
        if usual.model.name == "resnet18":
            lr = GROUP_NORM_LR * usual.local.lr
            group = study.experiment(workload, split, workload.search, model__norm="group", local__lr=lr)
            chosen = (models, base[0], *agreeing)
            anew, groups = f"{title}: statistics measured anew", f"{title}: GroupNorm"
            if any(record.comparison == searched(split, "anew") for record in study.records.by_name.values()):
                name = searched(split, "anew")
                found.append(Comparison(name, anew, usual, chosen, Stage.SEARCH, retired=MEASURED_ANEW))
            found.append(Comparison(searched(split, "group"), groups, group, chosen, Stage.SEARCH))
    return found


def steps(experiment: Experiment, k: int, origin: str) -> tuple[Contender, ...]:
    """FedFa-Delta with the server steps 1/M_c, 1/K, 1/2 and 1; too long steps come last."""
    sizes = {"1/M_c": 1 / experiment.strategy["concurrency"], "1/K": 1 / k, "1/2": 0.5, "1": 1.0}
    different = {f"{size:g}": title for title, size in reversed(sizes.items())}
    return tuple(
        Contender(
            f"fedfa-delta-{origin}-{size}",
            f"fedfa-delta:window={k}:origin={origin}:server_lr={size}",
            f"Delta {title}" + (", current" if origin == "current" else ""),
            "fedfa-delta",
            2 * turn,
        )
        for turn, (size, title) in enumerate(sorted(different.items(), key=lambda item: float(item[0])))
    )


def from_bases(k: int) -> tuple[Contender, ...]:
    """FedFa-Agree with its own step and with fixed ones; a step of 1 is FedFa-Param."""
    fixed = (
        Contender(
            f"fedfa-agree-{k}-{size}", f"fedfa-agree:window={k}:server_lr={size}", f"Agree, step {size}", "fedfa-agree"
        )
        for size in (1.2, 1.5, 2.0)
    )
    return (agree(k, "FedFa-Agree"), *fixed)


def delta(study: Study, results: Results) -> Section:
    text = [
        "FedFa-Delta with the server step eta_g as named: differences against the model a client started from or "
        "against the current one, and less weight for stale ones. FedFa-Agree steps from the mean of the models that "
        "the window's clients started from, where a step of 1 is FedFa-Param. FedFa-Param stands beside them."
    ]
    return _answer(study, results, "delta", "Which step of FedFa-Delta and FedFa-Agree does what", text)


# The window and the step ---------------------------------------------------------------------------------------------


def windows_and_steps(study: Study) -> list[Comparison]:
    """FedFa-Param with windows from small to large, the step that compensates each, and FedFa-Agree's own step."""
    found = []
    for workload, split in study.mild_splits():
        experiment = study.experiment(workload, split, workload.search)
        concurrency = experiment.strategy["concurrency"]
        for k in WINDOWS:
            compared = (
                param(k, "FedFa-Param", 2),
                agree_as_fedavg(k, concurrency, "FedFa-Agree, FedAvg's step", 2),
                agree(k, "FedFa-Agree", 2),
            )
            title = f"{workload.titled(split)}: K = {k}"
            found.append(Comparison(searched(split), title, experiment, compared, Stage.SEARCH))
    return found


def window_cost(study: Study, results: Results) -> Section:
    text = [
        "The models in a window started from versions that lie M_c + (K - 1) / 2 arrivals back on average, so while "
        "M_c updates come in, FedFa-Param moves the model by M_c / (M_c + (K - 1) / 2) of a FedAvg round. FedFa-Agree "
        "with the fixed step 1 + (K - 1) / (2 M_c) makes up for it: expect so many times FedFa-Param's speed. By "
        "default FedFa-Agree chooses its step, between 1 and 2."
    ]
    return _answer(study, results, "window-cost", "What a window costs, and the step that makes up for it", text)


# Refill, window, step ------------------------------------------------------------------------------------------------


def refills(study: Study) -> list[Comparison]:
    """From FedBuff to FedFa one change at a time, once for differences and once for models, under four weathers."""
    found = []
    for workload, split in study.mild_splits():
        for suffix, (weather_title, weather) in WEATHERS.items():
            experiment = study.experiment(workload, split, workload.search, weather=weather)
            name, title = searched(split, suffix), f"{workload.titled(split)}: {weather_title}"
            found.append(Comparison(name, title, experiment, one_by_one(experiment), Stage.REFILL))
    return found


def one_by_one(experiment: Experiment) -> tuple[Contender, ...]:
    k = window_of(experiment)
    same_weight = f"fedbuff:buffer={k}:server_lr={k / experiment.strategy['concurrency']:g}"
    plain = "staleness=constant"

    def fedbuff(key: str, spec: str, title: str) -> Contender:
        return Contender(key, f"{spec}:{plain}", title, "fedbuff")

    window = steps(experiment, k, "base")[0]
    return (
        Contender("fedavg", "fedavg", "FedAvg", "fedavg"),
        fedbuff("deltas-batch", f"{same_weight}:refill=batch", "differences: buffer, batch"),
        fedbuff("deltas-at-once", f"{same_weight}:refill=immediate", "differences: buffer, at once"),
        Contender("deltas-window", window.spec, "differences: window, at once (FedFa-Delta)", "fedfa-delta"),
        fedbuff("deltas-full", f"fedbuff:buffer={k}:refill=immediate", "differences: buffer, at once, eta_g = 1"),
        model_mean(k, "models: buffer, batch"),
        fedbuff("models-at-once", f"fedbuff:buffer={k}:origin=current:refill=immediate", "models: buffer, at once"),
        param(k, "models: window, at once (FedFa-Param)"),
    )


def refill(study: Study, results: Results) -> Section:
    text = [
        "One change at a time. Differences: each counts 1/M_c in all, but for eta_g = 1, where it counts 1/K. Models: "
        "the plain mean of K. Buffer or sliding window; new work in a batch after an aggregation, or at once."
    ]
    return _answer(study, results, "refill", "How much is refill, how much the window, how much the step", text)


# FedAsync ------------------------------------------------------------------------------------------------------------


def mixings(study: Study) -> list[Comparison]:
    """FedAsync with mixing weights from 0.1 to 0.9, fixed and falling with staleness."""
    found = []
    for workload, split in study.mild_splits():
        experiment = study.experiment(workload, split, workload.search)
        for staleness in ("polynomial", "constant", "hinge"):
            mixed = (
                Contender(
                    f"fedasync-{beta}", f"fedasync:beta={beta}:staleness={staleness}", f"beta = {beta}", "fedasync"
                )
                for beta in (0.1, 0.3, 0.6, 0.9)
            )
            title, models = f"{workload.titled(split)}: {staleness}", param(window_of(experiment), "FedFa-Param")
            found.append(Comparison(searched(split), title, experiment, (models, *mixed), Stage.MIXING))
    return found


def mixing(study: Study, results: Results) -> Section:
    text = ["FedAsync mixes an arriving model in with the weight beta s(staleness)."]
    return _answer(study, results, "mixing", "How FedAsync has to mix", text)


# What all show -------------------------------------------------------------------------------------------------------


def _answer(study: Study, results: Results, name: str, title: str, text: Sequence[str]) -> Section:
    """Each comparison as a table with FedFa-Param to compare with, and as curves."""
    grids, figures, values = [], [], []
    shown: Counter[str] = Counter()  # by comparison, so that a figure's name does not depend on what else is shown
    for comparison, runs in results:
        rows = {row.label: row for row in summarise(runs, comparison.target)}
        models = next(c.title for c in comparison.contenders if c.row == "fedfa-param")
        cells = []
        for contender in comparison.contenders:
            row = rows.get(contender.title)
            cells.append(
                (
                    contender.title,
                    best_cell(row),
                    final_cell(row),
                    to_target(runs, row, "time"),
                    number(row.updates_mean) if row and row.complete and row.updates_mean else "–",
                    faster_cell(row, rows.get(models)),
                    seeds_cell(study, row, comparison.target),
                )
            )
            values.append(value_of(comparison, contender, row))
        goal = percent(comparison.target)
        headers = ("Strategy", "Best (%)", "Final (%)", f"Time to {goal} (s)", f"Updates to {goal}", FASTER, "Seeds")
        grids.append(Grid(comparison.title, headers, cells, describe(comparison, runs)))
        if runs:
            figures.append(curves(comparison, runs, f"{name}{shown[comparison.name]}"))
        shown[comparison.name] += 1
    paired = (
        f"“{FASTER}”: FedFa-Param's time to the target over the row's, seed by seed: their geometric mean, and the "
        "least and the most. Seeds differ more in difficulty than strategies do, which ± shows and this does not."
    )
    return Section(name, title, [*text, paired, scale_note(study, results)], grids, figures, {"cells": values})


def faster_cell(row: StrategyRow | None, param: StrategyRow | None) -> str:
    """How much sooner than FedFa-Param it reached the target; a dash unless both did with every seed."""
    ratios = param.times_over(row) if row and param and row is not param else []
    if row is None or not ratios or len(ratios) < row.seeds:
        return "–"
    spread = f" ({min(ratios):.2f} to {max(ratios):.2f})" if len(ratios) > 1 else ""
    return f"{geometric_mean(ratios):.2f}{spread}"
