"""Distributions against their definitions."""

import json
import math
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest

from fedfa.simulation.distributions import Constant, Exponential, Lognormal, Pareto, Trace, Uniform, Zipf, phones
from fedfa.simulation.weather import weather_from

GRID = [(i + 0.5) / 20_000 for i in range(20_000)]


@pytest.mark.parametrize(
    ("distribution", "average", "middle"),
    [
        (Constant(4.0), 4.0, 4.0),
        (Uniform(2.0, 6.0), 4.0, 4.0),
        (Exponential(shift=3.0, mean=5.0), 8.0, 3 + 5 * math.log(2)),
        (Lognormal(median=5.0, sigma=0.5), 5 * math.exp(0.125), 5.0),
        (Pareto(scale=3.0, shape=2.0, cap=1e9), 6.0, 3 * math.sqrt(2)),
        (Zipf(scale=2.0, exponent=1.0, ranks=3), 2 * 3 / (1 + 1 / 2 + 1 / 3), 2.0),
        (Trace(values=(1.0, 2.0, 6.0)), 3.0, 2.0),
    ],
)
def test_mean_and_median_are_those_of_the_distribution(distribution: Any, average: float, middle: float) -> None:
    values = [distribution.at(u) for u in GRID]
    assert mean(values) == pytest.approx(average, rel=0.02)
    assert median(values) == pytest.approx(middle, rel=0.01)
    assert min(values) > 0


def test_pareto_is_capped() -> None:
    assert max(Pareto(scale=1.0, shape=0.5, cap=60.0).at(u) for u in GRID) == 60.0


def test_phones_are_long_tailed_and_their_links_go_together() -> None:
    weather = weather_from("phones")
    values = sorted(weather.speed.at(u) for u in GRID)
    assert median(values) == pytest.approx(5.0, rel=0.02)
    assert values[0] == pytest.approx(5 * (4638 / 76206) ** 0.566, rel=0.02)
    assert values[-1] == pytest.approx(5 * (4638 / 212) ** 0.566, rel=0.02)
    links = [tuple(link) for link in phones()["links"]]
    forecast = weather.forecast(0, 1_000_000)
    seen = {
        (round(1e6 / d.download_seconds), round(1e6 / d.upload_seconds))
        for d in map(forecast.delay, range(500), [0] * 500)
    }
    assert seen == set(links)
    assert len(phones()["scores"]) == 307


def test_traces_come_from_a_file_too(tmp_path: Path) -> None:
    file = tmp_path / "seconds.json"
    file.write_text(json.dumps([2, 4]))
    assert {Trace(file=str(file), scale=0.5).resolved().at(u) for u in GRID} == {1.0, 2.0}
