"""The shorter figures, against schedules worked out by hand."""

from dataclasses import replace

import polars as pl
import pytest

from fedfa.report.figures import label_figure, staleness_figure, time_to_target_figure
from fedfa.report.shapes import Boxes, Dots, Note
from fedfa.report.timeline import timeline_figure
from fedfa.runs.run import Run
from tests.helpers.reports import CLIENTS, TARGET, make_run


def test_time_to_target_bars_mark_missed_targets(odd: list[Run]) -> None:
    figure = time_to_target_figure(odd, TARGET)
    assert [name for _, name in figure.y_ticks] == ["fedasync", "fedavg", "only </script><b>$x_1$ & co"]
    notes = [layer.text for layer in figure.layers if isinstance(layer, Note)]
    assert notes[1:] == ["8.00 s  not reached by 1 of 2", "not reached"]
    bars = [layer for layer in figure.layers if isinstance(layer, Boxes)]
    assert [(bar.right, bar.hatched) for bar in bars[1:]] == [((8.0,), True)]
    (dots,) = (layer for layer in figure.layers if isinstance(layer, Dots))
    assert (dots.x, dots.hover) == ((8.0,), ("seed 1: 8.00 s",))


def test_long_labels_are_stacked_in_narrow_places(comparison: list[Run]) -> None:
    run = replace(comparison[1], manifest=comparison[1].manifest | {"label": "fedfa-param:window=2"})
    for figure in (timeline_figure([run]), staleness_figure([run]), time_to_target_figure([run], TARGET)):
        assert figure.y_ticks[0][1].startswith("fedfa-param\nwindow=2")


def test_staleness_shares(comparison: list[Run]) -> None:
    figure = staleness_figure(comparison)
    fedavg, fedfa = (layer for layer in figure.layers if isinstance(layer, Boxes))
    assert fedavg.hover == ("staleness from 0: 100.0 %",)
    assert fedfa.hover == tuple(f"staleness from {k}: {100 * n / 8:.1f} %" for k, n in ((0, 6), (1, 1), (3, 1)))


def test_label_bubbles_have_areas_in_proportion() -> None:
    run = make_run("fedavg", (0.5,), clients=CLIENTS)
    figure = label_figure(run.clients, run.seed)
    (dots,) = figure.layers
    assert isinstance(dots, Dots)
    assert dots.diameter[0] / dots.diameter[1] == pytest.approx((25 / 100) ** 0.5)
    assert dots.hover == ("client 0, label 9: 25 examples", "client 1, label 9: 100 examples")
    many = pl.DataFrame({"client": range(250), "label": ["a"] * 250, "examples": [1] * 250})
    crowd = label_figure(many, 0)
    assert "The first 100 of 250 clients" in crowd.caption
    assert [len(layer.x) for layer in crowd.layers if isinstance(layer, Dots)] == [100]
