"""Figures 1 to 6 of the paper, and one of our own: real phones beside the paper's long tail."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from statistics import fmean
from typing import Any

import numpy as np
import polars as pl

from fedfa.experiment import DataSettings
from fedfa.recipes.contests import SAME_WORK
from fedfa.recipes.lab import Contest, Lab, Results, Section, describe, paper
from fedfa.recipes.levels import LEVEL_IS, STEADY_IS, level_figure, level_grid, running_mean
from fedfa.recipes.paces import ON_THE_WAY, steps_and_speeds
from fedfa.recipes.tables import NEARLY, NOT_RUN, steady_cell
from fedfa.record import STEADY_OVER, Run
from fedfa.report.figures import accuracy_figure, label_figure, timeline_figure
from fedfa.report.grid import Grid
from fedfa.report.shapes import PALETTE, Figure, Line, number, numbers
from fedfa.report.tables import percent, summarise
from fedfa.report.timeline import waiting_share
from fedfa.weather import weather_from

ALPHAS = (0.1, 0.5, 5.0)


def _titled(figure: Figure, name: str, title: str) -> Figure:
    return replace(figure, name=name, title=f"{figure.title}: {title}")


# Figure 1: who waits -------------------------------------------------------------------------------------------------


def figure1(lab: Lab, results: Results) -> Section:
    (contest, runs) = results[0]
    title = "Figure 1: who waits, and what it costs"
    if {run.label for run in runs} != {contender.title for contender in contest.contenders}:
        return Section("figure1", title, [f"{contest.title}: {NOT_RUN}."], values={"rows": []})
    seconds, rounds = paper()["table1"]["cifar10-iid"], paper()["table2"]["cifar10-iid"]
    slowest = fmean(run.seconds for run in runs if run.label == contest.contenders[0].title)
    rows, values = [], []
    for contender in contest.contenders:
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
    caption = "Paper: seconds (Table 1) over rounds (Table 2) of CIFAR-10, IID. " + describe(contest, runs)
    text = ["The same number of client updates, handed in under the same client speeds."]
    grid = Grid("The same work", headers, rows, caption)
    figure = replace(timeline_figure(runs), name="figure1")
    return Section("figure1", title, text, [grid], [figure], {"rows": values})


# Figure 2: who holds what --------------------------------------------------------------------------------------------


def figure2(lab: Lab, results: Results) -> Section:
    figures, values = [], []
    text = ["In Dirichlet splits, the smaller alpha, the fewer labels a client sees."]
    drawn_already: list[DataSettings] = []  # by a workload with another model
    for workload, split in lab.last_splits():
        partition = lab.experiment(workload, split).data.partition
        drawn: dict[str, dict[str, Any]] = {f"alpha = {alpha:g}": {"data__alpha": alpha} for alpha in ALPHAS}
        for title, changes in (drawn if partition.startswith("dirichlet") else {f"{partition} split": {}}).items():
            experiment = replace(lab.experiment(workload, split, **changes), seed=lab.seeds[0])
            if experiment.data in drawn_already:
                continue
            drawn_already.append(experiment.data)
            counts = lab.label_counts(experiment)
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


def figure3(lab: Lab, results: Results) -> Section:
    shown = lab.with_begun(results)
    section = _accuracy(results, shown, "figure3", "Figure 3: accuracy over time", "seconds")
    there = [(contest, runs) for contest, runs in shown if runs]
    near = [near_target(contest, runs) for contest, runs in there]
    both = [figure for pair in zip(section.figures, near, strict=True) for figure in pair]
    grids = [grid for contest, runs in there for grid in (on_the_way(contest, runs), steps_and_speeds(contest, runs))]
    return replace(section, grids=grids, figures=both)


def figure4(lab: Lab, results: Results) -> Section:
    return _accuracy(results, lab.with_begun(results), "figure4", "Figure 4: accuracy over rounds", "rounds")


def _accuracy(results: Results, shown: Results, name: str, title: str, against: str) -> Section:
    figures = [curves(contest, runs, name, against) for contest, runs in shown if runs]
    rows = [
        {"contest": contest.name} | asdict(row) for contest, runs in results for row in summarise(runs, contest.target)
    ]
    text = [
        f"{describe(contest, runs)} {lacking(contest, finished, runs)}".rstrip()
        for (contest, finished), (_, runs) in zip(results, shown, strict=True)
    ]
    if any(run.manifest["ended"] == "accuracy" for _, runs in results for run in runs):
        text.append("A curve that ends at the target was not run any further.")
    return Section(name, title, text, figures=figures, values={"rows": rows})


def on_the_way(contest: Contest, runs: Sequence[Run]) -> Grid:
    """The curves in numbers: when each was steadily above a few accuracies, and how much it jumps."""
    goals = [contest.target - below for below in (*ON_THE_WAY, NEARLY)]
    rows = {row.label: row for row in summarise(runs, contest.target)}
    cells = [
        (c.title, *(steady_cell(runs, rows[c.title], goal) for goal in goals), f"{100 * fmean(jumps):.1f}")
        for c in contest.contenders
        if c.title in rows
        for jumps in [[run.jumps() for run in runs if run.label == c.title]]
    ]
    headers = ("Strategy", *map(percent, goals), "Jumps")
    return Grid(f"{contest.title}: on the way", headers, cells, STEADY_IS)


def near_target(contest: Contest, runs: Sequence[Run]) -> Figure:
    """The part of the curves where they differ the least, without the jumps of single evaluations."""
    low, high = 100 * (contest.target - 0.15), 100 * (contest.target + 0.02)
    figure = curves(contest, [running_mean(run, STEADY_OVER) for run in runs], "figure3")
    caption = f"The mean of {STEADY_OVER} evaluations in a row, from {low:.0f} to {high:.0f} %"
    there = [found for run in runs if (found := run.steady_time_to(contest.target - NEARLY)) is not None]
    if there:
        figure = replace(figure, x_range=(0.0, 1.15 * max(there)))
        caption += f", until the last that gets to {percent(contest.target - NEARLY)} is there"
    return replace(
        figure, name=f"{figure.name}-near", title=f"{figure.title}, near the target", y_range=(low, high),
        caption=f"{caption}.", height=520,
    )  # fmt: skip


def curves(contest: Contest, runs: Sequence[Run], name: str, against: str = "seconds") -> Figure:
    return _titled(accuracy_figure(runs, against, contest.target), f"{name}-{contest.name}", contest.title)


def lacking(contest: Contest, finished: Sequence[Run], runs: Sequence[Run]) -> str:
    """Which of the strategies have no run yet, or none to its end, in a sentence each."""
    to_its_end, there = {run.label for run in finished}, {run.label for run in runs}
    titles = [contender.title for contender in contest.contenders]
    missing = {
        "As far as they went": [title for title in titles if title in there - to_its_end],
        NOT_RUN.capitalize(): [title for title in titles if title not in there],
    }
    return " ".join(f"{which}: {', '.join(names)}." for which, names in missing.items() if names)


# Figure 5: the window ------------------------------------------------------------------------------------------------


def figure5(lab: Lab, results: Results) -> Section:
    as_in_the_paper = {f"{split.name}-windows" for _, split in lab.last_splits()}
    grids = [level_grid(lab, contest, runs, "Window") for contest, runs in results]
    figures = [
        replace(draw(contest, runs), name=f"figure5-{contest.name}")
        for contest, runs in results
        for draw in [best_so_far if contest.name in as_in_the_paper else level_figure]
        if runs
    ]
    values = [
        {"contest": contest.name} | asdict(row) for contest, runs in results for row in summarise(runs, contest.target)
    ]
    text = [
        "FedFa-Param with different windows K; the curve keeps the best accuracy seen so far, as the paper's does. On "
        "the hard split, where a single evaluation says little, FedFa-Delta by agreement and FedAvg beside it. Then "
        "FedAsync with a smaller weight and FedBuff with larger buffers. Their curves, and all on the hard split, are "
        f"means over a while. {LEVEL_IS} {STEADY_IS}"
    ]
    return Section("figure5", "Figure 5: window size K", text, grids, figures, {"rows": values})


def best_so_far(contest: Contest, runs: Sequence[Run]) -> Figure:
    figure = accuracy_figure([running_best(run) for run in runs], "seconds", contest.target)
    caption = figure.caption.replace("Last evaluated", "Best so far")
    return replace(figure, title=f"Best accuracy so far: {contest.title}", caption=caption)


def running_best(run: Run) -> Run:
    return replace(run, evaluations=run.evaluations.with_columns(pl.col("accuracy").cum_max()))


# Figure 6: FedProx and FedNova ---------------------------------------------------------------------------------------


def figure6(lab: Lab, results: Results) -> Section:
    title = "Figure 6: FedNova and FedProx, with and without FedFa"
    section = _accuracy(results, lab.with_begun(results), "figure6", title, "seconds")
    return replace(section, text=["Clients do unequal work, as in Table 5.", *section.text])


# Our own: real phones ------------------------------------------------------------------------------------------------

DRAWN = 5000
MODELS = (("0.2 MB model", 200_000), ("45 MB model, such as ResNet-18", 44_700_000))


def weathers(lab: Lab, results: Results) -> Section:
    """Delays of many clients under the paper's long tail, and of real phones with a small and a large model."""
    seed = lab.seeds[0]
    drawn = {"paper: 3 s + Exp(5 s)": _delays("paper", seed, 0)}
    for title, size in MODELS:
        drawn[f"phones, {title}"] = _delays("phones", seed, size)
    shares = numbers((np.arange(DRAWN) + 1) / DRAWN * 100)
    lines = [
        Line(name, numbers(np.sort(delays)), shares, PALETTE[position])
        for position, (name, delays) in enumerate(drawn.items())
    ]
    rows, values = [], []
    for name, delays in drawn.items():
        median, high, most = (float(np.quantile(delays, q)) for q in (0.5, 0.9, 0.99))
        generator = np.random.Generator(np.random.Philox(seed))
        slowest = float(generator.choice(delays, (2000, 10)).max(axis=1).mean())
        rate = float(10 / delays.mean())
        rows.append((name, *map(number, (median, high, most, slowest, rate)), f"{slowest * rate / 10:.1f}×"))
        values.append({"weather": name, "median": median, "p90": high, "p99": most, "fedavg_round_seconds": slowest})
    headers = (
        "Weather",
        "Median (s)",
        "90 % (s)",
        "99 % (s)",
        "Slowest of 10 (s)",
        "Updates/s, M_c = 10",
        "Gain of not waiting",
    )
    figure = Figure(
        name="weather",
        title="How long clients take",
        caption="Share of clients that answer within a time. Phones: 307 models by AI-benchmark score with the "
        "measured up- and downlinks of 19 users (FLASH, WWW 2021), the median phone training for 5 s.",
        x_label="seconds from dispatch to answer",
        y_label="clients (%)",
        layers=tuple(lines),
        x_range=(0.0, 1.3 * max(float(np.quantile(delays, 0.9)) for delays in drawn.values())),
        legend=True,
    )
    caption = (
        "Gain of not waiting: updates per second with ten clients in flight and no waiting, over rounds of ten that "
        f"wait for the slowest. {DRAWN:,} clients, seed {seed}."
    )
    grid = Grid("The same, in numbers", headers, rows, caption)
    return Section("weather", "Real phones beside the paper's long tail", (), [grid], [figure], {"rows": values})


def _delays(name: str, seed: int, num_bytes: int) -> np.ndarray:
    forecast = weather_from(name).forecast(seed, num_bytes)
    found: list[Any] = [forecast.delay(client, 0) for client in range(DRAWN)]
    return np.array([d.download_seconds + d.compute_seconds + d.upload_seconds for d in found])
