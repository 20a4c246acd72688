"""Accuracy over time, updates or rounds: the mean of several seeds, with their spread."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from fedfa.errors import check
from fedfa.report.shapes import Band, Figure, Layer, Line, Rule, by_label, clock_of, colours, number, numbers
from fedfa.report.tables import percent
from fedfa.runs.run import Run

AXES = {
    "seconds": ("time", " (s)"),
    "updates": ("accepted updates", ""),
    "rounds": ("rounds", ""),
}
MOST_POINTS = 600


@dataclass(frozen=True, slots=True)
class Curve:
    """The accuracy of one run as a step function: ``y[i]`` holds from ``x[i]`` on, the last one until ``end``."""

    x: np.ndarray
    y: np.ndarray
    end: float

    def at(self, x: np.ndarray) -> np.ndarray:
        return self.y[np.searchsorted(self.x, x, side="right") - 1]


def curve(run: Run, against: str) -> Curve | None:
    """None if nothing was evaluated."""
    found = run.evaluations.filter(pl.col("accuracy").is_finite())
    if not len(found):
        return None
    per = run.manifest["round_size"] if against == "rounds" else 1
    x = found["seconds" if against == "seconds" else "updates"].to_numpy() / per
    end = run.seconds if against == "seconds" else len(run.accepted) / per
    return Curve(x, 100 * found["accuracy"].to_numpy(), max(float(x[-1]), end))


def accuracy_figure(runs: Sequence[Run], against: str = "seconds", target: float | None = None) -> Figure:
    """Mean accuracy of each label up to the end of its shortest run, and each seed's own curve after that."""
    check(against in AXES, "against", against, f"must be one of {', '.join(AXES)}")
    palette = colours(run.label for run in runs)
    bands: list[Layer] = []
    lines: list[Layer] = []
    ends: list[float] = []
    for label, group in by_label(runs).items():
        known = [found for run in group if (found := curve(run, against)) is not None]
        if known:
            band, own = _mean_curve(label, known, palette[label], group[0].manifest["synchronous"])
            bands += band
            lines += own
            ends.append(max(c.end for c in known))
    rule = () if target is None else (Rule(100 * target, f"target {percent(target)}"),)
    name, unit = AXES[against]
    name = f"{clock_of(runs)} {name}" if against == "seconds" else name
    last = max(ends, default=0.0) or 1.0
    limit = min(last, 2.0 * float(np.median(ends))) if ends and against == "rounds" else last
    cut = (
        f" Cut at {number(limit)} of {number(last)} rounds; double-click on the page to see all."
        if limit < last
        else ""
    )
    return Figure(
        name=f"accuracy-{against}",
        title=f"Accuracy over {name}",
        caption=_accuracy_caption(runs, against) + cut,
        x_label=name + unit,
        y_label="test accuracy (%)",
        layers=(*bands, *lines, *rule),
        x_range=(0.0, 1.01 * limit),
        legend=len(lines) > 1,
    )


def _mean_curve(label: str, curves: Sequence[Curve], colour: str, dashed: bool) -> tuple[list[Layer], list[Layer]]:
    """The band, and the lines, of one label."""
    start, stop = max(float(c.x[0]) for c in curves), min(c.end for c in curves)
    grid = np.unique(np.concatenate([*(c.x for c in curves), [start, stop]]))
    grid = grid[(grid >= start) & (grid <= stop)]
    if len(grid) > MOST_POINTS:
        grid = np.linspace(start, stop, MOST_POINTS)
    values = np.stack([c.at(grid) for c in curves]) if len(grid) else np.empty((len(curves), 0))
    x = numbers(grid)
    lines: list[Layer] = [Line(label, x, numbers(values.mean(axis=0)), colour, dashed)]
    if len(curves) == 1:
        return [], lines
    for own in curves:
        later = np.unique(np.append(own.x[own.x > stop], [stop, own.end]))
        if own.end > stop >= own.x[0]:
            lines.append(Line(label, numbers(later), numbers(own.at(later)), colour, dashed, width=0.9, listed=False))
    return [Band(label, x, numbers(values.min(axis=0)), numbers(values.max(axis=0)), colour)], lines


def _accuracy_caption(runs: Sequence[Run], against: str) -> str:
    text = "Last evaluated accuracy of the global model; up and to the left is better."
    if any(len(group) > 1 for group in by_label(runs).values()):
        text = (
            "Mean over seeds of the last evaluated accuracy, up to the end of the shortest run of a strategy; "
            "shaded: lowest to highest seed; thin: seeds that ran on. Up and to the left is better."
        )
    if any(run.manifest["synchronous"] for run in runs) and len(by_label(runs)) > 1:
        text += " Dashed: synchronous."
    if against == "rounds":
        sizes = {run.label: run.manifest["round_size"] for run in runs}
        text += f" Accepted updates per round: {', '.join(f'{label} {size}' for label, size in sizes.items())}."
    return text
