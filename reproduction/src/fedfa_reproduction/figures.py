"""Figures 1 to 6 of the paper."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from statistics import fmean
from typing import Any

import polars as pl

from fedfa.learning.data.settings import DataSettings
from fedfa.report.curves import accuracy_figure
from fedfa.report.figures import label_figure
from fedfa.report.grid import Grid
from fedfa.report.shapes import Figure, number
from fedfa.report.tables import percent, summarise
from fedfa.report.timeline import timeline_figure, waiting_share
from fedfa.runs.run import Run
from fedfa_reproduction.base import Comparison, Results, Section
from fedfa_reproduction.cells import NOT_RUN, steady_cell
from fedfa_reproduction.comparisons import SAME_WORK
from fedfa_reproduction.descriptions import describe
from fedfa_reproduction.label_counts import label_counts
from fedfa_reproduction.measures import STEADY_OVER, best_so_far, mean_change, rolling_mean, steady_time_to
from fedfa_reproduction.plan import with_begun
from fedfa_reproduction.published import paper
from fedfa_reproduction.same_time import MEAN_IS, STEADY_IS, mean_figure, mean_grid
from fedfa_reproduction.speeds import ON_THE_WAY, steps_and_speeds
from fedfa_reproduction.study import Study
from fedfa_reproduction.tables import NEARLY

ALPHAS = (0.1, 0.5, 5.0)


def _titled(figure: Figure, name: str, title: str) -> Figure:
    return replace(figure, name=name, title=f"{figure.title}: {title}")


# Figure 1: who waits -------------------------------------------------------------------------------------------------


def figure1(study: Study, results: Results) -> Section:
    comparison, runs = results[0]
    title = "Figure 1: who waits, and what it costs"
    if {run.label for run in runs} != {contender.title for contender in comparison.contenders}:
        return Section("figure1", title, [f"{comparison.title}: {NOT_RUN}."], values={"rows": []})
    seconds, rounds = paper()["table1"]["cifar10-iid"], paper()["table2"]["cifar10-iid"]
    slowest = fmean(run.seconds for run in runs if run.label == comparison.contenders[0].title)
    rows, values = [], []
    for contender in comparison.contenders:
        own = [run for run in runs if run.label == contender.title]
        took, wait = fmean(run.seconds for run in own), fmean(waiting_share(run) for run in own)
        per_round = took / (SAME_WORK / own[0].manifest["round_size"])
        theirs = seconds[contender.row] / rounds[contender.row]
        shares = (f"{slowest / took:.1f}×", f"{100 * wait:.0f} %")
        rows.append((contender.title, number(took), *shares, number(per_round), number(theirs)))
        values.append(
            {"label": contender.title, "seconds": took, "waiting": wait, "round_seconds": per_round, "paper": theirs}
        )
    headers = ("Strategy", f"{SAME_WORK} updates (s)", "Faster", "Waiting", "Ours: s per round", "Paper: s per round")
    caption = "Paper: seconds (Table 1) over rounds (Table 2) of CIFAR-10, IID. " + describe(comparison, runs)
    text = ["The same number of client updates, handed in under the same client speeds."]
    grid = Grid("The same work", headers, rows, caption)
    figure = replace(timeline_figure(runs), name="figure1")
    return Section("figure1", title, text, [grid], [figure], {"rows": values})


# Figure 2: who holds what --------------------------------------------------------------------------------------------


def figure2(study: Study, results: Results) -> Section:
    figures, values = [], []
    text = ["In Dirichlet splits, the smaller alpha, the fewer labels a client sees."]
    drawn_already: list[DataSettings] = []  # by a workload with another model
    for workload, split in study.mild_splits():
        partition = study.experiment(workload, split).data.partition
        drawn: dict[str, dict[str, Any]] = {f"alpha = {alpha:g}": {"data__alpha": alpha} for alpha in ALPHAS}
        for title, changes in (drawn if partition.startswith("dirichlet") else {f"{partition} split": {}}).items():
            experiment = replace(study.experiment(workload, split, **changes), seed=study.seeds[0])
            if experiment.data in drawn_already:
                continue
            drawn_already.append(experiment.data)
            counts = label_counts(study, experiment)
            if counts is None:
                text.append(f"{workload.title}, {title}: neither the data nor a run on it is there.")
                continue
            name = f"figure2-{workload.name}-{title.replace(' = ', '').replace(' ', '-')}"
            figures.append(_titled(label_figure(counts, experiment.seed), name, f"{workload.title}, {title}"))
            labels = counts.filter(pl.col("examples") > 0).group_by("client").len()["len"]
            values.append({"workload": workload.name, "split": title, "labels_per_client": labels.mean()})
    title = "Figure 2: which client holds which labels"
    return Section("figure2", title, text, figures=figures, values={"splits": values})


# Figures 3 and 4: accuracy -------------------------------------------------------------------------------------------


def figure3(study: Study, results: Results) -> Section:
    shown = with_begun(study, results)
    section = _accuracy(results, shown, "figure3", "Figure 3: accuracy over time", "seconds")
    there = [(comparison, runs) for comparison, runs in shown if runs]
    near = [near_target(comparison, runs) for comparison, runs in there]
    both = [figure for pair in zip(section.figures, near, strict=True) for figure in pair]
    grids = [
        grid
        for comparison, runs in there
        for grid in (on_the_way(comparison, runs), steps_and_speeds(comparison, runs))
    ]
    return replace(section, grids=grids, figures=both)


def figure4(study: Study, results: Results) -> Section:
    return _accuracy(results, with_begun(study, results), "figure4", "Figure 4: accuracy over rounds", "rounds")


def _accuracy(results: Results, shown: Results, name: str, title: str, against: str) -> Section:
    figures = [curves(comparison, runs, name, against) for comparison, runs in shown if runs]
    rows = [
        {"comparison": comparison.name} | asdict(row)
        for comparison, runs in results
        for row in summarise(runs, comparison.target)
    ]
    text = [
        f"{describe(comparison, runs)} {lacking(comparison, finished, runs)}".rstrip()
        for (comparison, finished), (_, runs) in zip(results, shown, strict=True)
    ]
    if any(run.ending.kind == "accuracy" for _, runs in results for run in runs):
        text.append("A curve that ends at the target was not run any further.")
    return Section(name, title, text, figures=figures, values={"rows": rows})


def on_the_way(comparison: Comparison, runs: Sequence[Run]) -> Grid:
    """The curves in numbers: when each was steadily above a few accuracies, and how much it jumped."""
    goals = [comparison.target - below for below in (*ON_THE_WAY, NEARLY)]
    rows = {row.label: row for row in summarise(runs, comparison.target)}
    cells = [
        (c.title, *(steady_cell(runs, rows[c.title], goal) for goal in goals), f"{100 * fmean(jumps):.1f}")
        for c in comparison.contenders
        if c.title in rows
        for jumps in [[mean_change(run) for run in runs if run.label == c.title]]
    ]
    headers = ("Strategy", *map(percent, goals), "Jumps")
    return Grid(f"{comparison.title}: on the way", headers, cells, STEADY_IS)


def near_target(comparison: Comparison, runs: Sequence[Run]) -> Figure:
    """The part of the curves where they differ the least, without the jumps of single evaluations."""
    low, high = 100 * (comparison.target - 0.15), 100 * (comparison.target + 0.02)
    figure = curves(comparison, [rolling_mean(run, STEADY_OVER) for run in runs], "figure3")
    caption = f"The mean of {STEADY_OVER} evaluations in a row, from {low:.0f} to {high:.0f} %"
    there = [found for run in runs if (found := steady_time_to(run, comparison.target - NEARLY)) is not None]
    if there:
        figure = replace(figure, x_range=(0.0, 1.15 * max(there)))
        caption += f", until the last that gets to {percent(comparison.target - NEARLY)} is there"
    return replace(
        figure, name=f"{figure.name}-near", title=f"{figure.title}, near the target", y_range=(low, high),
        caption=f"{caption}.", height=520,
    )  # fmt: skip


def curves(comparison: Comparison, runs: Sequence[Run], name: str, against: str = "seconds") -> Figure:
    return _titled(accuracy_figure(runs, against, comparison.target), f"{name}-{comparison.name}", comparison.title)


def lacking(comparison: Comparison, finished: Sequence[Run], runs: Sequence[Run]) -> str:
    """Sentences that name the strategies without a run, or without a finished run."""
    to_its_end, there = {run.label for run in finished}, {run.label for run in runs}
    titles = [contender.title for contender in comparison.contenders]
    missing = {
        "As far as they went": [title for title in titles if title in there - to_its_end],
        NOT_RUN.capitalize(): [title for title in titles if title not in there],
    }
    return " ".join(f"{which}: {', '.join(names)}." for which, names in missing.items() if names)


# Figure 5: the window ------------------------------------------------------------------------------------------------


def figure5(study: Study, results: Results) -> Section:
    as_in_the_paper = {f"{split.name}-windows" for _, split in study.mild_splits()}
    grids = [mean_grid(study, comparison, runs, "Window") for comparison, runs in results]
    figures = [
        replace(draw(comparison, runs), name=f"figure5-{comparison.name}")
        for comparison, runs in results
        for draw in [best_figure if comparison.name in as_in_the_paper else mean_figure]
        if runs
    ]
    values = [
        {"comparison": comparison.name} | asdict(row)
        for comparison, runs in results
        for row in summarise(runs, comparison.target)
    ]
    text = [
        "FedFa-Param with different windows K; the curve keeps the best accuracy seen so far, as the paper's does. On "
        "the hard split, where a single evaluation says little, FedFa-Agree and FedAvg beside it. Then "
        "FedAsync with a smaller weight and FedBuff with larger buffers. Their curves, and all on the hard split, are "
        f"means over a while. {MEAN_IS} {STEADY_IS}"
    ]
    return Section("figure5", "Figure 5: window size K", text, grids, figures, {"rows": values})


def best_figure(comparison: Comparison, runs: Sequence[Run]) -> Figure:
    figure = accuracy_figure([best_so_far(run) for run in runs], "seconds", comparison.target)
    caption = figure.caption.replace("Last evaluated", "Best so far")
    return replace(figure, title=f"Best accuracy so far: {comparison.title}", caption=caption)


# Figure 6: FedProx and FedNova ---------------------------------------------------------------------------------------


def figure6(study: Study, results: Results) -> Section:
    title = "Figure 6: FedNova and FedProx, with and without FedFa"
    section = _accuracy(results, with_begun(study, results), "figure6", title, "seconds")
    return replace(section, text=["Clients do unequal work, as in Table 5.", *section.text])
