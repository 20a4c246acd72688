"""One HTML file that tells the whole story of some runs, offline, and the same figures for paper beside it."""

import json
import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from statistics import fmean, stdev

from fedfa.errors import require
from fedfa.record import Run, atomic
from fedfa.report.figures import (
    accuracy_figure,
    label_figure,
    staleness_figure,
    time_to_target_figure,
    timeline_figure,
)
from fedfa.report.interactive import as_plotly
from fedfa.report.provenance import provenance_section
from fedfa.report.shapes import Figure, by_label, clock_of, colours, number, size_in_bytes
from fedfa.report.static import save
from fedfa.report.tables import BASELINE, Row, cells, explanation, headers, percent, summarise
from fedfa.report.template import PAGE, POLICY, SCRIPT, STYLE


def write_report(runs: Sequence[Run], folder: Path | str, target: float | None = None, command: str = "") -> Path:
    """Write ``report.html`` and ``figures/*.pdf, *.png`` into the folder; returns the page.

    ``target`` is an accuracy between 0 and 1; by default the one that a run's manifest names, if any. ``command``
    is what redoes the runs; by default what their manifests say.
    """
    require(len(runs) > 0, "no runs: a report needs at least one finished run")
    if target is None:
        target = next((run.manifest["target"] for run in runs if run.manifest.get("target") is not None), None)
    require(target is None or 0 < target <= 1, f"target = {target}: must be an accuracy above 0 and at most 1")
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
    title = " vs. ".join(by_label(runs)) if len(rows) <= 3 else f"{len(rows)} strategies compared"
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="about">{escape(_about(runs))}</p>',
        f'<p class="verdict">{escape(verdict(rows, target))}</p>',
        _table(rows, target),
        *(f"<section>{figure_html(figure)}</section>" for figure in figures),
        provenance_section(runs, command),
    ]
    return assemble(title, body, figures)


def assemble(title: str, body: Sequence[str], figures: Sequence[Figure]) -> str:
    """A page that needs nothing but itself, with these figures in the places that ``figure_html`` made for them."""
    from plotly.offline import get_plotlyjs

    data = {figure.name: as_plotly(figure) for figure in figures}
    return PAGE.substitute(
        policy=POLICY,
        title=escape(f"fedfa: {title}"),
        style=STYLE,
        body="\n".join(body),
        plotly=get_plotlyjs(),
        figures=json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
        script=SCRIPT,
    )


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
    """How much of the model an update carries, as a sentence; empty where that is all of it."""
    manifests = [run.manifest for run in runs if run.manifest.get("num_frozen", 0) > 0]
    sizes = sorted({(manifest["num_parameters"], manifest["num_frozen"]) for manifest in manifests})
    return " ".join(
        f"Only {100 * sent / (sent + frozen):.2g} % of the model travels: "
        f"{size_in_bytes(4 * sent)} instead of {size_in_bytes(4 * (sent + frozen))} per update."
        for sent, frozen in sizes
    )


def verdict(rows: Sequence[Row], target: float | None) -> str:
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


def _too_close(first: Row, others: Sequence[Row]) -> str:
    """Who was not clearly slower: seed by seed, by no more than the standard deviation of how much it was slower.

    Seeds differ more in difficulty than strategies do, and the same seed is as difficult for all.
    """
    near = []
    for row in others:
        slower = [math.log(ratio) for ratio in row.times_over(first)]
        if len(slower) > 1 and fmean(slower) <= stdev(slower):
            near.append(f"{row.label} ({number(row.time_mean or 0.0)} s)")
    return f" Too close to call over these seeds: {', '.join(near)}." if near else ""


def _against_baseline(first: Row, complete: Sequence[Row], rows: Sequence[Row]) -> str:
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


def _best(row: Row) -> str:
    if row.best_mean is None:
        return f"{row.label} was never evaluated"
    mean = "" if row.seeds == 1 else ", a mean over seeds"
    return f"The best accuracy of {row.label} was {100 * row.best_mean:.1f} %{mean}"


def _table(rows: Sequence[Row], target: float | None) -> str:
    palette = colours(row.label for row in rows)
    head = "".join(f'<th scope="col">{_lines(header)}</th>' for header in headers(target))
    lines = []
    for row in rows:
        label, *rest = cells(row, target)
        swatch = f'<span class="swatch" style="background:{palette[row.label]}"></span>'
        lines.append(
            f'<tr><th scope="row">{swatch}{escape(label).replace(":", ":<wbr>")}</th>{"".join(map(_cell, rest))}</tr>'
        )
    return (
        f'<div class="scroll"><table id="summary"><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table>'
        f'</div><p class="caption">{escape(explanation(rows, target))}</p>'
    )


def _cell(text: str) -> str:
    first, *more = text.split("\n")
    return f"<td>{escape(first)}{''.join(f'<br><small>{escape(line)}</small>' for line in more)}</td>"


def _lines(text: str) -> str:
    return escape(text).replace("\n", "<br>")


def figure_html(figure: Figure, heading: str = "h2", files: bool = True) -> str:
    """The place of a figure on a page, with its caption; ``files``: it lies beside the page as PDF and PNG, too."""
    name, title = escape(figure.name), escape(figure.title)
    links = " ".join(f'<a href="figures/{name}.{kind}">{kind.upper()}</a>' for kind in ("pdf", "png"))
    more = f' <span class="files">{links}</span>' if files else ""
    return (
        f"<figure><{heading}>{title}</{heading}>"
        f'<div class="plot" id="{name}" role="img" aria-label="{title}"></div>'
        f"<figcaption>{escape(figure.caption)}{more}</figcaption></figure>"
    )
