"""A figure as plain data: described once, drawn by ``static`` (matplotlib) and ``interactive`` (plotly).

There are only these few shapes, so that the two drawings always show the same.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedfa.runs.run import Run

Numbers = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Line:
    """A curve; as a step function it keeps each value until the next."""

    label: str
    x: Numbers
    y: Numbers
    colour: str
    dashed: bool = False
    step: bool = True
    width: float = 2.2
    listed: bool = True
    """Whether the legend names it."""
    unit: str = " %"
    """The unit after its values on a screen."""


@dataclass(frozen=True, slots=True)
class Band:
    """The area between two step functions; belongs to the line of the same label."""

    label: str
    x: Numbers
    low: Numbers
    high: Numbers
    colour: str


@dataclass(frozen=True, slots=True)
class Rule:
    """A horizontal reference line across the figure."""

    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Boxes:
    """Rectangles: bars of any kind."""

    label: str
    left: Numbers
    right: Numbers
    low: Numbers
    high: Numbers
    colour: str
    hover: tuple[str, ...]
    hatched: bool = False
    listed: bool = True


@dataclass(frozen=True, slots=True)
class Dots:
    """Discs with diameters in points."""

    label: str
    x: Numbers
    y: Numbers
    diameter: Numbers
    colour: str
    hover: tuple[str, ...]
    opacity: float = 1.0
    outlined: bool = False


@dataclass(frozen=True, slots=True)
class Note:
    """Text that starts at a point."""

    x: float
    y: float
    text: str


Layer = Line | Band | Rule | Boxes | Dots | Note


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure. ``caption`` explains in a line or two how to read it."""

    name: str
    title: str
    caption: str
    x_label: str
    y_label: str
    layers: tuple[Layer, ...]
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    y_ticks: tuple[tuple[float, str], ...] = ()
    """Names on the vertical axis: (position, name). Empty: an axis of numbers."""
    x_log: bool = False
    y_log: bool = False
    """Logarithmic axes; ranges are still given as plain numbers."""
    height: int = 420
    """In CSS pixels; 100 of them are an inch on paper."""
    legend: bool = False


# Colours -------------------------------------------------------------------------------------------------------------

PALETTE = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#882255", "#999933", "#332288", "#7f7f7f",
    "#aa4499", "#ddcc77", "#661100", "#000000", "#117733", "#cc6677",
)  # fmt: skip
"""Okabe and Ito's colours without black and yellow, then Tol's; distinguishable with every common colour blindness."""

WAITING = "#9aa1aa"
NOT_TAKEN = "#3b3b3b"
OUTLINE = "#303030"

_USUAL = {
    "fedfa-param": 0,
    "fedfa-delta": 1,
    "fedbuff": 2,
    "fedasync": 3,
    "port": 4,
    "fedfa-prox": 5,
    "fedfa-nova": 6,
    "fednova": 7,
    "fedprox": 8,
    "fedavg": 9,
}


def colours(labels: Iterable[str]) -> dict[str, str]:
    """A colour per label: the usual names have a fixed one in every report, others get the remaining ones, by name."""
    names = sorted(set(labels))
    chosen = {name: PALETTE[_USUAL[name.lower()]] for name in names if name.lower() in _USUAL}
    others = [name for name in names if name not in chosen]
    free = [colour for colour in PALETTE if colour not in chosen.values()] or list(PALETTE)
    return chosen | {name: free[i % len(free)] for i, name in enumerate(others)}


def by_label(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """The runs of each label by seed; labels in the order in which they first appear."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.label, []).append(run)
    return {label: sorted(group, key=lambda run: run.seed) for label, group in groups.items()}


def clock_of(runs: Iterable[Run]) -> str:
    """The clock of these runs' times: virtual, wall, or both."""
    return " or ".join(sorted({run.manifest.get("clock", "virtual") for run in runs}))


def stacked(label: str) -> str:
    """A label such as ``fedfa-param:window=10``, broken into lines for narrow places."""
    return label.replace(":", "\n")


def numbers(values: ArrayLike) -> Numbers:
    """Plain floats, as shapes hold them."""
    return tuple(np.asarray(values, float).tolist())


def number(value: float, beside: float | None = None) -> str:
    """About three digits, or as many decimals as the number ``beside`` it; no exponents, thousands separated."""
    size = abs(value if beside is None else beside)
    return f"{value:,.{0 if size >= 100 else 1 if size >= 10 else 2}f}"


def size_in_bytes(count: int) -> str:
    """Three digits and a unit."""
    size, unit = float(count), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if size >= 999.5:
            size, unit = size / 1000, larger
    return f"{size:.3g} {unit}"
