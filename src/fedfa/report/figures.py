"""The figures of the report, from runs to plain data; the two longer ones are in ``curves`` and ``timeline``."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from fedfa.report.curves import accuracy_figure
from fedfa.report.shapes import (
    Boxes,
    Dots,
    Figure,
    Layer,
    Line,
    Note,
    by_label,
    clock_of,
    colours,
    number,
    numbers,
    stacked,
)
from fedfa.report.tables import StrategyRow, percent, summarise
from fedfa.report.timeline import timeline_figure
from fedfa.runs.run import Run

__all__ = [
    "Figure",
    "accuracy_figure",
    "label_figure",
    "staleness_figure",
    "time_to_target_figure",
    "timeline_figure",
]

MOST_CLIENTS = 100
MOST_BINS = 60


# Time to target ------------------------------------------------------------------------------------------------------


def time_to_target_figure(runs: Sequence[Run], target: float) -> Figure:
    """The fastest on top; hatched if some seeds never reached the target, because the mean then omits the worst."""
    groups = by_label(runs)
    palette = colours(groups)
    rows = sorted(summarise(runs, target), key=_slowness)
    furthest = max((run.time_to(target) or 0.0 for run in runs), default=0.0) or 1.0
    layers: list[Layer] = []
    for position, row in enumerate(rows):
        layers += _target_bar(row, -float(position), groups[row.label], target, palette[row.label], furthest)
    some = any(row.reached and not row.complete for row in rows)
    return Figure(
        name="time-to-target",
        title=f"Time to {percent(target)} accuracy",
        caption=f"Bars: mean {clock_of(runs)} time until an evaluation first showed the target (shorter is better); "
        "whiskers: ± one standard deviation; dots: single seeds."
        + (" Hatched: mean of only those seeds that reached it." if some else ""),
        x_label=f"{clock_of(runs)} time to target (s)",
        y_label="",
        layers=tuple(layers),
        x_range=(0.0, (1.65 if some else 1.42) * furthest),
        y_range=(-len(rows) + 0.4, 0.6),
        y_ticks=tuple((-float(position), stacked(row.label)) for position, row in enumerate(rows)),
        height=120 + 46 * len(rows),
    )


def _slowness(row: StrategyRow) -> tuple[bool, bool, float]:
    return not row.complete, not row.reached, row.time_mean or 0.0


def _target_bar(
    row: StrategyRow, y: float, runs: Sequence[Run], target: float, colour: str, furthest: float
) -> Sequence[Layer]:
    missing = row.seeds - row.reached
    lacking = "not reached" if row.seeds == 1 else f"not reached by {missing} of {row.seeds}"
    if row.time_mean is None:
        return [Note(0.01 * furthest, y, lacking)]
    mean, sd = row.time_mean, row.time_sd or 0.0
    times = [(run.seed, time) for run in runs if (time := run.time_to(target)) is not None]
    remarks = [
        f"{number(mean)} s",
        "" if row.speedup is None or row.speedup == 1 else f"{row.speedup:.2f}×",
        lacking if missing else "",
    ]
    right = max(mean + sd, *(time for _, time in times))
    hover = (f"mean of {row.reached}: {number(mean)} s",)
    bar = Boxes(row.label, (0.0,), (mean,), (y - 0.3,), (y + 0.3,), colour, hover, hatched=missing > 0)
    whisker = Line(row.label, (max(0.0, mean - sd), mean + sd), (y, y), "#a0a0a0", step=False, width=1.6, listed=False)
    dots = Dots(
        row.label,
        tuple(time for _, time in times),
        (y,) * len(times),
        (6.0,) * len(times),
        "#ffffff",
        tuple(f"seed {seed}: {number(time)} s" for seed, time in times),
        outlined=True,
    )
    note = Note(right + 0.02 * furthest, y, "  ".join(filter(None, remarks)))
    return [bar, *((whisker,) if sd else ()), *((dots,) if row.seeds > 1 else ()), note]


# Staleness -----------------------------------------------------------------------------------------------------------


def staleness_figure(runs: Sequence[Run]) -> Figure:
    """One histogram per label, each in its own row: with many labels, bars side by side would be too thin."""
    groups = by_label(runs)
    palette = colours(groups)
    values = {
        label: np.concatenate([run.accepted["staleness"].to_numpy() for run in group])
        for label, group in groups.items()
    }
    most = int(max((np.quantile(found, 0.99) for found in values.values() if len(found)), default=0))
    width = most // MOST_BINS + 1
    bins = most // width + 1
    open_end = any(found.max(initial=0) >= bins * width for found in values.values())
    layers: list[Layer] = []
    ticks: list[tuple[float, str]] = []
    for position, (label, found) in enumerate(values.items()):
        floor = -float(position)
        ticks.append((floor + 0.35, stacked(label) + ("" if len(found) else "\n(no updates)")))
        if len(found):
            layers += _histogram(label, found, width, bins + open_end, floor, palette[label])
    each = "value" if width == 1 else f"{width} values"
    rest = f" The last bar holds all values from {bins * width} on." if open_end else ""
    return Figure(
        name="staleness",
        title="Staleness of accepted updates",
        caption="Staleness: versions published while a client was training. A bar is the share of a strategy's "
        f"accepted updates, all seeds together, per {each}; each row is scaled to its tallest bar, which is "
        f"labelled.{rest}",
        x_label="staleness (versions)",
        y_label="",
        layers=tuple(layers),
        x_range=(-0.6, max(6.0, 1.08 * (bins + open_end) * width)),
        y_range=(-len(groups) + 0.9, 1.05),
        y_ticks=tuple(ticks),
        height=130 + 62 * len(groups),
    )


def _histogram(label: str, values: np.ndarray, width: int, bins: int, floor: float, colour: str) -> Sequence[Layer]:
    """Bars of this many bins; the last one also holds all larger values."""
    shares = np.bincount(np.minimum(values // width, bins - 1), minlength=bins) / len(values)
    used = np.flatnonzero(shares)
    peak = int(shares.argmax())
    boxes = Boxes(
        label=label,
        left=numbers(used * width - 0.42),
        right=numbers((used + 1) * width - 0.58),
        low=(floor,) * len(used),
        high=numbers(floor + 0.7 * shares[used] / shares[peak]),
        colour=colour,
        hover=tuple(f"staleness from {b * width}: {100 * shares[b]:.1f} %" for b in used.tolist()),
    )
    return [boxes, Note(peak * width - 0.42, floor + 0.83, f"{100 * shares[peak]:.0f} %")]


# Labels of the clients -----------------------------------------------------------------------------------------------


def label_figure(clients: pl.DataFrame, seed: int) -> Figure:
    """The labels of each client: a bubble per (client, label)."""
    clients = clients.sort("client", "label")
    held = clients["client"].unique(maintain_order=True)
    shown = clients.filter(pl.col("client").is_in(held.head(MOST_CLIENTS).implode()), pl.col("examples") > 0)
    labels = sorted(
        shown["label"].unique(), key=lambda text: (not text.isdigit(), int(text) if text.isdigit() else 0, text)
    )
    places = {label: float(position) for position, label in enumerate(labels)}
    count = min(len(held), MOST_CLIENTS)
    widest = float(np.clip(620 / max(1, count), 14, 32))
    examples = shown["examples"].to_numpy()
    dots = Dots(
        label="examples",
        x=numbers(shown["client"]),
        y=tuple(places[label] for label in shown["label"]),
        diameter=numbers(widest * np.sqrt(examples / max(1, examples.max(initial=1)))),
        colour="#0072b2",
        hover=tuple(f"client {c}, label {label}: {n:,} examples" for c, label, n in shown.rows()),
        opacity=0.65,
    )
    cut = f" The first {count} of {len(held):,} clients are shown." if len(held) > count else ""
    ids = shown["client"].to_numpy()
    low, high = (float(ids.min()), float(ids.max())) if len(ids) else (0.0, 1.0)
    return Figure(
        name="labels",
        title="Which client holds which labels",
        caption=f"The area of a bubble is the number of training examples; the largest is {examples.max(initial=0):,}. "
        f"Seed {seed}.{cut}",
        x_label="client",
        y_label="label",
        layers=(dots,),
        x_range=(low - 0.03 * (high - low) - 0.5, high + 0.03 * (high - low) + 0.5),
        y_range=(-0.8, len(labels) - 0.2),
        y_ticks=tuple((place, label) for label, place in places.items()),
        height=int(130 + max(16.0, min(34.0, widest + 4)) * len(labels)),
    )
