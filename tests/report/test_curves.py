"""Accuracy over time, updates and rounds."""

import numpy as np
import pytest

from fedfa.errors import ConfigError
from fedfa.report.curves import accuracy_figure
from fedfa.report.shapes import Band, Line
from fedfa.runs.run import Run
from tests.helpers.reports import TARGET, make_run


def test_accuracy_is_a_mean_of_steps_up_to_the_shortest_run(comparison: list[Run]) -> None:
    figure = accuracy_figure([run for run in comparison if run.label == "fedavg"], "seconds", TARGET)
    mean, tail = (layer for layer in figure.layers if isinstance(layer, Line))
    (band,) = (layer for layer in figure.layers if isinstance(layer, Band))
    # Seed 1 is evaluated at 0, 4, ..., 16 s, where it ends; seed 2 at 0, 6, ..., 24 s.
    assert mean.x == band.x == (0, 4, 6, 8, 12, 16)
    seeds = np.array([[10, 30, 30, 50, 70, 80], [10, 10, 30, 30, 50, 50]])
    assert mean.y == pytest.approx(seeds.mean(axis=0))
    assert (band.low, band.high) == (pytest.approx(seeds.min(axis=0)), pytest.approx(seeds.max(axis=0)))
    assert (tail.x, tail.y, tail.listed) == ((16, 18, 24), pytest.approx((50, 70, 80)), False)


@pytest.mark.parametrize(("against", "last"), [("updates", 8), ("rounds", 4)])
def test_accuracy_against_other_measures(comparison: list[Run], against: str, last: float) -> None:
    lines = [layer for layer in accuracy_figure(comparison, against).layers if isinstance(layer, Line)]
    assert [(line.label, line.x[-1], line.dashed) for line in lines] == [
        ("fedavg", last, True),
        ("fedfa-param", last, False),
    ]


def test_accuracy_refuses_an_unknown_measure(comparison: list[Run]) -> None:
    with pytest.raises(ConfigError, match="against = 'days'"):
        accuracy_figure(comparison, "days")


def test_long_curves_are_thinned() -> None:
    (line,) = accuracy_figure([make_run("fedasync", np.linspace(0, 1, 3000).tolist())]).layers
    assert isinstance(line, Line)
    assert len(line.x) == 600


def test_rounds_of_a_strategy_with_tiny_rounds_do_not_squeeze_the_others(comparison: list[Run]) -> None:
    tiny = make_run("fedasync", [0.5] * 100)
    figure = accuracy_figure([*comparison, tiny], "rounds")
    assert figure.x_range == (0, pytest.approx(1.01 * 2 * 4))
    assert "Cut at 8.00 of 100 rounds" in figure.caption
