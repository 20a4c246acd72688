"""One HTML file with all results of some runs, which works offline, and the same figures as files for print."""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from jinja2 import Template

from fedfa.errors import check, require
from fedfa.files import atomic
from fedfa.report.curves import accuracy_figure
from fedfa.report.figures import label_figure, staleness_figure, time_to_target_figure
from fedfa.report.interactive import as_plotly
from fedfa.report.provenance import provenance
from fedfa.report.shapes import Figure, by_label, clock_of, colours, number, size_in_bytes
from fedfa.report.static import save
from fedfa.report.tables import BASELINE, StrategyRow, cells, explanation, headers, percent, summarise
from fedfa.report.templates import plotly, templates
from fedfa.report.timeline import timeline_figure
from fedfa.runs.run import Run


def write_report(runs: Sequence[Run], folder: Path | str, target: float | None = None, command: str = "") -> Path:
    """Write ``report.html`` and ``figures/*.pdf, *.png`` into the folder; returns the page.

    ``target`` is an accuracy between 0 and 1; by default the one in a run's manifest, if any. ``command`` is the
    command that repeats the runs; by default the one in their manifests.
    """
    require(len(runs) > 0, "no runs: a report needs at least one finished run")
    if target is None:
        target = next((run.manifest["target"] for run in runs if run.manifest.get("target") is not None), None)
    check(target is None or 0 < target <= 1, "target", target, "must be an accuracy above 0 and at most 1")
    folder = Path(folder)
    figures = build_figures(runs, target)
    for figure in figures:
        save(figure, folder / "figures")
    page = folder / "report.html"
    with atomic(page) as file:
        file.write(render(runs, figures, target, command).encode())
    return page


def build_figures(runs: Sequence[Run], target: float | None) -> list[Figure]:
    """The figures of the page from top to bottom; those without data or target are left out."""
    figures = [accuracy_figure(runs, "seconds", target), accuracy_figure(runs, "rounds", target)]
    if target is not None:
        figures.append(time_to_target_figure(runs, target))
    figures += [timeline_figure(runs), staleness_figure(runs)]
    with_clients = [run for run in runs if len(run.clients)]
    return figures + ([label_figure(with_clients[0].clients, with_clients[0].seed)] if with_clients else [])


def render(runs: Sequence[Run], figures: Sequence[Figure], target: float | None, command: str) -> str:
    """The page as text."""
    rows = summarise(runs, target)
    palette = colours(row.label for row in rows)
    return offline_page(
        templates().get_template("report.html"),
        title=" vs. ".join(by_label(runs)) if len(rows) <= 3 else f"{len(rows)} strategies compared",
        figures=figures,
        about=_about(runs),
        verdict=verdict(rows, target),
        headers=headers(target),
        rows=[{"label": row.label, "colour": palette[row.label], "cells": cells(row, target)[1:]} for row in rows],
        explanation=explanation(rows, target),
        made_by=provenance(runs, command),
    )


def offline_page(template: Template, title: str, figures: Sequence[Figure], **values: Any) -> str:
    """A self-contained page, from a template that extends ``offline.html``."""
    drawings = {figure.name: as_plotly(figure) for figure in figures}
    return template.render(title=title, figures=figures, drawings=drawings, plotly=plotly(), **values)


def _about(runs: Sequence[Run]) -> str:
    seeds = sorted({run.seed for run in runs})
    clients = sorted({run.manifest["num_clients"] for run in runs})
    named = ", ".join(map(str, seeds[:8])) + (" and more" if len(seeds) > 8 else "")
    return (
        f"{len(runs)} {'run' if len(runs) == 1 else 'runs'}, {'seed' if len(seeds) == 1 else 'seeds'} {named}; "
        f"{' or '.join(f'{count:,}' for count in clients)} clients. {_clock(runs)} "
        f"{travelling(runs)}"
    ).rstrip()


def _clock(runs: Sequence[Run]) -> str:
    match clock_of(runs):
        case "virtual":
            return "Simulated by fedfa; times are virtual."
        case "wall":
            return "Trained by real clients; times are wall seconds."
    return "Some simulated by fedfa in virtual time, some trained by real clients in wall seconds."


def travelling(runs: Sequence[Run]) -> str:
    """The share of the model that an update contains, as a sentence; empty if it is all of it."""
    manifests = [run.manifest for run in runs if run.manifest.get("num_frozen", 0) > 0]
    sizes = sorted({(manifest["num_parameters"], manifest["num_frozen"]) for manifest in manifests})
    return " ".join(
        f"Only {100 * sent / (sent + frozen):.2g} % of the model travels: "
        f"{size_in_bytes(4 * sent)} instead of {size_in_bytes(4 * (sent + frozen))} per update."
        for sent, frozen in sizes
    )


def verdict(rows: Sequence[StrategyRow], target: float | None) -> str:
    """The result in a sentence or two."""
    if target is None:
        best = max(rows, key=lambda row: row.best_mean or 0.0)
        return f"{_best(best)}{' – the highest of all' if len(rows) > 1 else ''}; no target accuracy was set."
    complete = sorted((row for row in rows if row.complete), key=lambda row: row.time_mean or 0.0)
    if not complete:
        best = max(rows, key=lambda row: (row.reached, row.best_mean or 0.0))
        some = f" ({best.label} did on {best.reached} of {best.seeds})" if best.reached else ""
        every = "" if all(row.seeds == 1 for row in rows) else " on every seed"
        who = f"No strategy reached {percent(target)}{every}" if len(rows) > 1 else f"{percent(target)} was not reached"
        return f"{who}{some}. {_best(best)}."
    first = complete[0]
    mean = "after" if first.seeds == 1 else "after a mean of"
    lead = " first" if len(rows) > 1 else ""
    text = (
        f"{first.label} reached {percent(target)}{lead}, {mean} {number(first.time_mean or 0.0)} {first.clock} seconds"
    )
    return text + _against_baseline(first, complete, rows) + "." + _too_close(first, complete[1:])


def _too_close(first: StrategyRow, others: Sequence[StrategyRow]) -> str:
    """Strategies that were not clearly slower: the mean difference over seeds is at most its standard deviation.

    Compared seed by seed: seeds differ more in difficulty than strategies do, and a seed is as difficult for all.
    """
    near = []
    for row in others:
        slower = [math.log(ratio) for ratio in row.times_over(first)]
        if len(slower) > 1 and fmean(slower) <= stdev(slower):
            near.append(f"{row.label} ({number(row.time_mean or 0.0)} s)")
    return f" Too close to call over these seeds: {', '.join(near)}." if near else ""


def _against_baseline(first: StrategyRow, complete: Sequence[StrategyRow], rows: Sequence[StrategyRow]) -> str:
    baseline = next((row for row in rows if row.label == BASELINE), None)
    if first.label == BASELINE:
        if len(complete) < 2 or not first.time_mean:
            return ""
        later = (complete[1].time_mean or 0.0) / first.time_mean
        return f"; the next, {complete[1].label}, took {later:.2f} times as long"
    if first.speedup is not None:
        return f": {first.speedup:.2f} times as fast as {BASELINE}"
    if baseline is None:
        return ""
    if not baseline.reached:
        return f"; {BASELINE} did not reach it"
    return f"; {BASELINE} reached it on only {baseline.reached} of {baseline.seeds} seeds"


def _best(row: StrategyRow) -> str:
    if row.best_mean is None:
        return f"{row.label} was never evaluated"
    mean = "" if row.seeds == 1 else ", a mean over seeds"
    return f"The best accuracy of {row.label} was {100 * row.best_mean:.1f} %{mean}"
