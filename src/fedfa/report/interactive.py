"""Figures on a screen: the JSON that plotly.js draws. Colours of text and axes come from the page, light or dark."""

import html
import math
from typing import Any

from fedfa.report.shapes import OUTLINE, Band, Boxes, Dots, Figure, Layer, Line, Note, Rule

GREY = "#808080"


def as_plotly(figure: Figure) -> dict[str, Any]:
    """``data`` and ``layout`` for ``Plotly.newPlot``; the page shows title and caption itself."""
    data = [trace for layer in figure.layers for trace in _traces(layer)]
    layout: dict[str, Any] = {
        "height": figure.height,
        "margin": {"l": 64, "r": 12, "t": 12, "b": 52},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "barmode": "overlay",
        "hovermode": "closest",
        "dragmode": "zoom",
        "showlegend": figure.legend,
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "xaxis": _axis(figure.x_label, figure.x_range, figure.x_log),
        "yaxis": _axis(figure.y_label, figure.y_range, figure.y_log),
        "shapes": [shape for layer in figure.layers if isinstance(layer, Rule) for shape in [_rule(layer)]],
        "annotations": [note for layer in figure.layers for note in _annotations(layer, figure)],
    }
    if figure.y_ticks:
        layout["yaxis"] |= {
            "tickvals": [y for y, _ in figure.y_ticks],
            "ticktext": [_text(text) for _, text in figure.y_ticks],
            "showgrid": False,
        }
    return {"data": data, "layout": layout}


def _axis(title: str, span: tuple[float, float] | None, log: bool) -> dict[str, Any]:
    axis = {"title": {"text": _text(title)}, "zeroline": False, "automargin": True, "showline": True}
    if log:
        axis["type"] = "log"
    return axis if span is None else axis | {"range": [_place(value, log) for value in span]}


def _place(value: float, log: bool) -> float:
    """plotly.js needs ranges and annotations of a logarithmic axis as exponents, traces and shapes as plain values."""
    return math.log10(value) if log else value


def _traces(layer: Layer) -> list[dict[str, Any]]:
    match layer:
        case Line():
            return [
                {
                    "type": "scatter",
                    "mode": "lines",
                    "x": layer.x,
                    "y": layer.y,
                    "line": {
                        "color": layer.colour,
                        "width": layer.width,
                        "dash": "8px,3px" if layer.dashed else "solid",
                        "shape": "hv" if layer.step else "linear",
                    },
                    "hovertemplate": _value(layer.unit) if layer.step else None,
                    "hoverinfo": "all" if layer.step else "skip",
                    **_named(layer.label, layer.listed),
                }
            ]
        case Band():
            edge = {
                "type": "scatter",
                "mode": "lines",
                "x": layer.x,
                "line": {"width": 0, "shape": "hv"},
                "hoverinfo": "skip",
                **_named(layer.label, listed=False),
            }
            return [{**edge, "y": layer.low}, {**edge, "y": layer.high, "fill": "tonexty", "fillcolor": _faint(layer)}]
        case Boxes():
            return [_boxes(layer)]
        case Dots():
            edge = {"color": OUTLINE, "width": 1.2 if layer.outlined else 0}
            marker = {"size": layer.diameter, "color": layer.colour, "opacity": layer.opacity, "line": edge}
            return [
                {
                    "type": "scatter",
                    "mode": "markers",
                    "x": layer.x,
                    "y": layer.y,
                    "marker": marker,
                    **_hover(layer.hover),
                    **_named(layer.label, listed=False),
                }
            ]
        case Rule() | Note():
            return []


def _value(unit: str) -> str:
    return f"%{{y:{'.1f' if unit == ' %' else '.4~g'}}}{unit} at %{{x:,.4~g}}"


def _boxes(layer: Boxes) -> dict[str, Any]:
    """Horizontal bars with any start and any thickness are rectangles."""
    marker: dict[str, Any] = {"color": layer.colour, "line": {"color": "#ffffff", "width": 0.4}}
    if layer.hatched:
        pattern = {"shape": "/", "size": 5, "solidity": 0.35, "fillmode": "replace"}
        line = {"color": layer.colour, "width": 0.4}
        marker = {"color": layer.colour, "opacity": 0.7, "pattern": pattern, "line": line}
    return {
        "type": "bar",
        "orientation": "h",
        "base": layer.left,
        "x": [right - left for left, right in zip(layer.left, layer.right, strict=True)],
        "y": [(low + high) / 2 for low, high in zip(layer.low, layer.high, strict=True)],
        "width": [high - low for low, high in zip(layer.low, layer.high, strict=True)],
        "marker": marker,
        **_hover(layer.hover),
        **_named(layer.label, layer.listed),
    }


def _hover(texts: tuple[str, ...]) -> dict[str, Any]:
    return {"hovertext": [_text(text) for text in texts], "hovertemplate": "%{hovertext}"}


def _named(label: str, listed: bool) -> dict[str, Any]:
    """One entry in the legend switches everything of that label."""
    return {"name": _text(label), "legendgroup": label, "showlegend": listed}


def _faint(band: Band) -> str:
    red, green, blue = (int(band.colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.16)"


def _rule(rule: Rule) -> dict[str, Any]:
    line = {"color": GREY, "width": 1.2, "dash": "dot"}
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": rule.y, "y1": rule.y, "line": line}


def _annotations(layer: Layer, figure: Figure) -> list[dict[str, Any]]:
    small = {"showarrow": False, "font": {"size": 12}}
    match layer:
        case Rule():
            place = {"xref": "paper", "x": 0.005, "xanchor": "left", "yanchor": "bottom"} | {
                "y": _place(layer.y, figure.y_log)
            }
            return [{"text": _text(layer.text), **place, **small}]
        case Note():
            place = {"x": _place(layer.x, figure.x_log), "xanchor": "left", "yanchor": "middle"}
            place |= {"y": _place(layer.y, figure.y_log)}
            return [{"text": _text(layer.text), **place, **small}]
        case _:
            return []


def _text(text: str) -> str:
    """plotly.js interprets some HTML in every text, and mathematics between two dollar signs."""
    return html.escape(text, quote=False).replace("$", "&#36;").replace("\n", "<br>")
