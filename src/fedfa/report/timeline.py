"""The training times of all slots: the figure that shows why waiting for the slowest client costs time."""

import math
from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from fedfa.report.shapes import NOT_TAKEN, WAITING, Boxes, Figure, by_label, clock_of, colours, number, stacked
from fedfa.runs.recorder import ACCEPTED
from fedfa.runs.run import Run

ROUNDS_SHOWN = 3
MOST_LANES = 96
MOST_SEGMENTS_PER_LANE = 60
THICKNESS = 0.84


@dataclass(frozen=True, slots=True)
class Segment:
    """One answered work order: trained from ``start`` to ``end``; its slot continued at ``free``."""

    slot: int
    client: int
    start: float
    end: float
    free: float
    outcome: str


def refills_in_batches(run: Run) -> bool:
    """Whether a slot is idle from an arrival until the next publication, instead of being refilled at once."""
    return run.manifest["refill"] == "batch"


def free_again(run: Run) -> np.ndarray:
    """When the slot of each arrival could continue: at its arrival, or at the publication that it waited for."""
    seconds = run.updates["seconds"].to_numpy()
    if not refills_in_batches(run) or not len(seconds):
        return seconds
    version = run.updates["version"].to_numpy()
    publishing = np.flatnonzero(np.diff(version, prepend=0) > 0)
    published = np.append(seconds[publishing], max(run.seconds, seconds[-1]))
    waited = published[np.searchsorted(publishing, np.arange(len(seconds)))]
    return np.where(run.updates["outcome"].to_numpy() == ACCEPTED, waited, seconds)


def waiting_share(run: Run) -> float:
    """The share of all slots' time, over the whole run, that was spent waiting for other clients."""
    seconds = run.updates["seconds"].to_numpy()
    total = run.manifest["concurrency"] * max(run.seconds, float(seconds.max(initial=0.0)))
    return float((free_again(run) - seconds).sum()) / total if total else 0.0


def segments(run: Run, until: float) -> list[Segment]:
    """The work handed out before ``until``, each on the slot that became free last."""
    work = run.updates.select("dispatched_seconds", "dispatch", "client", "seconds", "outcome")
    work = work.with_columns(pl.Series("free", free_again(run))).filter(pl.col("dispatched_seconds") < until)
    work = work.sort("dispatched_seconds", "dispatch")
    slots = [(0.0, -slot) for slot in reversed(range(run.manifest["concurrency"]))]
    found: list[Segment] = []
    for start, _, client, end, outcome, free_at in work.iter_rows():
        _, slot = slots.pop(max(0, bisect_right(slots, (start, 1)) - 1))
        insort(slots, (free_at, slot))
        found.append(Segment(-slot, client, start, end, free_at, outcome))
    return found


def window(runs: Sequence[Run]) -> float:
    """A time span with a few rounds of the slowest strategy, but not more work than a reader can distinguish."""
    enough, crowded = 0.0, math.inf
    for run in runs:
        slots = run.manifest["concurrency"]
        enough = max(enough, _time_of(run, ROUNDS_SHOWN * max(slots, run.manifest["round_size"]), run.seconds))
        crowded = min(crowded, _time_of(run, MOST_SEGMENTS_PER_LANE * slots, math.inf))
    return min(enough, crowded)


def _time_of(run: Run, arrivals: int, otherwise: float) -> float:
    """Virtual time of the n-th arrival, if there were that many."""
    return float(run.updates["seconds"][arrivals - 1]) if arrivals <= len(run.updates) else otherwise


def timeline_figure(runs: Sequence[Run]) -> Figure:
    """Slots of every label's first seed as lanes: coloured while a client trains, hatched while the slot waits."""
    groups = by_label(runs)
    palette = colours(groups)
    until = window([group[0] for group in groups.values()])
    most = max(4, MOST_LANES // max(1, len(groups)))
    layers: list[Boxes] = []
    ticks: list[tuple[float, str]] = []
    waiting: list[tuple[Segment, float]] = []
    refused: list[tuple[Segment, float]] = []
    top, cut = 0.0, False
    for label, group in groups.items():
        run = group[0]
        lanes = min(most, run.manifest["concurrency"])
        cut |= lanes < run.manifest["concurrency"]
        placed = [(s, top - s.slot) for s in segments(run, until) if s.slot < lanes]
        waiting += [(s, y) for s, y in placed if s.free > s.end and s.end < until]
        refused += [(s, y) for s, y in placed if s.outcome != ACCEPTED]
        layers.append(_training(label, [(s, y) for s, y in placed if s.outcome == ACCEPTED], until, palette[label]))
        share = float(np.mean([waiting_share(seed) for seed in group]))
        ticks.append((top - (lanes - 1) / 2, f"{stacked(label)}\n{100 * share:.0f} % waiting"))
        top -= lanes + 1
    if refused:
        layers.append(_training("lost or refused", refused, until, NOT_TAKEN, listed=True))
    if waiting:
        layers.append(_waits(waiting, until))
    note = f" The first {most} slots of each are shown." if cut else ""
    return Figure(
        name="timeline",
        title="Who trained when",
        caption="Each lane is a slot for one client at a time: coloured while a client trains, hatched grey while the "
        "slot waits for slower clients, dark where the answer was lost or refused. Percentages: share of all "
        f"slots' time over the whole run.{note}",
        x_label=f"{clock_of(runs)} time (s)",
        y_label="",
        layers=tuple(layers),
        x_range=(0.0, until or 1.0),
        y_range=(top + 0.8, 0.8),
        y_ticks=tuple(ticks),
        height=int(150 + max(9 * -top, 48 * len(groups))),
        legend=True,
    )


def _training(
    label: str, placed: Sequence[tuple[Segment, float]], until: float, colour: str, listed: bool = False
) -> Boxes:
    return Boxes(
        label=label,
        left=tuple(s.start for s, _ in placed),
        right=tuple(min(s.end, until) for s, _ in placed),
        low=tuple(y - THICKNESS / 2 for _, y in placed),
        high=tuple(y + THICKNESS / 2 for _, y in placed),
        colour=colour,
        hover=tuple(
            f"client {s.client}: {number(s.start)} to {number(s.end)} s"
            + ("" if s.outcome == ACCEPTED else f", {s.outcome}")
            for s, _ in placed
        ),
        listed=listed,
    )


def _waits(placed: Sequence[tuple[Segment, float]], until: float) -> Boxes:
    return Boxes(
        label="waiting",
        left=tuple(s.end for s, _ in placed),
        right=tuple(min(s.free, until) for s, _ in placed),
        low=tuple(y - THICKNESS / 2 for _, y in placed),
        high=tuple(y + THICKNESS / 2 for _, y in placed),
        colour=WAITING,
        hover=tuple(f"waits {number(s.free - s.end)} s for slower clients" for s, _ in placed),
        hatched=True,
    )
