"""Figures on paper: matplotlib's object interface only, so that a caller's pyplot state does not change."""

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure as Sheet
from matplotlib.ticker import NullFormatter

from fedfa.files import atomic
from fedfa.report.shapes import OUTLINE, Band, Boxes, Dots, Figure, Layer, Line, Note, Rule

WIDTH = 8.0
TITLE_WIDTH = 72
"""Letters of a title per line."""
GREY = "#808080"


def draw(figure: Figure) -> Sheet:
    """The figure, drawn by matplotlib; without the caption, which belongs in the text around it."""
    sheet = Sheet(figsize=(WIDTH, figure.height / 100), layout="constrained")
    axes = sheet.add_subplot()
    _fill(axes, figure)
    if figure.legend:
        _legend(sheet, axes)
    return sheet


def draw_together(figures: Sequence[Figure], columns: int = 2) -> Sheet:
    """Several figures on one sheet, row by row, each with its own legend."""
    rows = math.ceil(len(figures) / columns)
    sheet = Sheet(figsize=(columns * 0.72 * WIDTH, rows * figures[0].height / 100), layout="constrained")
    for position, figure in enumerate(figures):
        axes = sheet.add_subplot(rows, columns, position + 1)
        _fill(axes, figure)
        if figure.legend:
            axes.legend(frameon=False, fontsize=8.5, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return sheet


def _fill(axes: Axes, figure: Figure) -> None:
    axes.set_axisbelow(True)
    axes.grid(color="#e4e4e4", linewidth=0.7, axis="x" if figure.y_ticks else "both")
    for layer in figure.layers:
        _add(axes, layer)
    axes.set_title(fill(_plain(figure.title), TITLE_WIDTH), loc="left", fontsize=12, fontweight="bold")
    axes.set_xlabel(figure.x_label)
    axes.set_ylabel(figure.y_label)
    axes.spines[["top", "right"]].set_visible(False)
    for log, axis, rescale in (
        (figure.x_log, axes.xaxis, axes.set_xscale), (figure.y_log, axes.yaxis, axes.set_yscale),
    ):  # fmt: skip
        if log:
            rescale("log")
            axis.set_major_formatter(lambda value, _: _short(value))
            axis.set_minor_formatter(NullFormatter())
    axes.autoscale_view()
    if figure.x_range is not None and figure.x_range[0] < figure.x_range[1]:  # a run may end where it begins
        axes.set_xlim(*figure.x_range)
    if figure.y_range is not None:
        axes.set_ylim(*figure.y_range)
    if figure.y_ticks:
        axes.set_yticks([y for y, _ in figure.y_ticks], [_plain(text) for _, text in figure.y_ticks])
        axes.tick_params(axis="y", length=0)


def save(figure: Figure, folder: Path) -> None:
    """Write ``<name>.pdf`` and ``<name>.png``; the same figure gives the same bytes."""
    save_sheet(draw(figure), figure.name, folder)


def save_sheet(sheet: Sheet, name: str, folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "constrained_layout not applied")  # a legend too long for its sheet
        with atomic(folder / f"{name}.pdf") as file:
            sheet.savefig(file, format="pdf", metadata={"CreationDate": None})
        with atomic(folder / f"{name}.png") as file:
            sheet.savefig(file, format="png", dpi=150)


def _add(axes: Axes, layer: Layer) -> None:
    match layer:
        case Line():
            axes.plot(
                layer.x,
                layer.y,
                color=layer.colour,
                linewidth=0.8 * layer.width,
                linestyle=(0, (5, 1.6)) if layer.dashed else "-",
                drawstyle="steps-post" if layer.step else "default",
                label=_plain(layer.label) if layer.listed else None,
            )
        case Band():
            axes.fill_between(layer.x, layer.low, layer.high, step="post", color=layer.colour, alpha=0.16, linewidth=0)
        case Rule():
            axes.axhline(layer.y, color=GREY, linewidth=1, linestyle=":")
            axes.annotate(
                _plain(layer.text),
                (0, layer.y),
                (3, 2),
                xycoords=axes.get_yaxis_transform(),
                textcoords="offset points",
                fontsize=8.5,
                color="#606060",
            )
        case Boxes():
            axes.add_collection(_boxes(layer))
        case Dots():
            areas = [diameter**2 for diameter in layer.diameter]
            edge = {"edgecolors": OUTLINE, "linewidths": 0.9 if layer.outlined else 0}
            axes.scatter(layer.x, layer.y, areas, layer.colour, alpha=layer.opacity, zorder=3, **edge)
        case Note():
            axes.text(layer.x, layer.y, _plain(layer.text), va="center", fontsize=8.5)


def _boxes(layer: Boxes) -> PolyCollection:
    sides = zip(layer.left, layer.right, layer.low, layer.high, strict=True)
    return PolyCollection(
        [((left, low), (right, low), (right, high), (left, high)) for left, right, low, high in sides],
        facecolor=(layer.colour, 0.4) if layer.hatched else layer.colour,
        edgecolor=layer.colour if layer.hatched else "white",
        linewidth=0.3,
        hatch="//////" if layer.hatched else None,
        label=_plain(layer.label) if layer.listed else None,
    )


def _legend(sheet: Sheet, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    if not handles:
        return
    columns = max(1, min(len(labels), int(100 / (7 + max(map(len, labels))))))
    sheet.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)


def _short(value: float) -> str:
    """A power of ten without an exponent: 0.01, 1,000, 10 M."""
    return f"{value / 1e6:,.0f} M" if value >= 1e6 else f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _plain(text: str) -> str:
    """matplotlib would interpret text between two dollar signs as mathematics."""
    return text.replace("$", r"\$")
