"""One run as the page shows it."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedfa.runs import live
from fedfa.watch.runs import Runs
from fedfa.watch.view import view
from tests.helpers.watched import Made, written


def test_rates_are_of_the_last_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "EVERY_SECONDS", 0.0)
    made, writer = Made(), live.Live(tmp_path)
    for second in range(200):
        made.run.accepted, made.run.strategy.version, made.run.now = second**2, second, 2.0 * second
        writer.tick(made.run, float(second))
    rates = written(tmp_path).rates
    assert (rates.wall.updates, rates.wall.versions) == (pytest.approx((199**2 - 139**2) / 60), 1.0)
    assert (rates.clock.updates, rates.clock.versions) == (pytest.approx((199**2 - 139**2) / 120), 0.5)


def test_on_a_wall_clock_time_goes_on_while_nothing_arrives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "EVERY_SECONDS", 0.0)
    made, writer = Made(), live.Live(tmp_path, clock="wall")
    made.go_on(30)
    made.run.in_flight = {
        5: SimpleNamespace(dispatch=30, client=5, started=made.run.now - 1, base_version=3),
        7: SimpleNamespace(dispatch=31, client=7, started=made.run.now, base_version=4),
    }
    made.run.made_with = lambda: {"strategy": {"name": "x"}, "task": "t", "num_clients": 8}
    writer.tick(made.run, made.run.now + 100)
    shown = view("", Runs(tmp_path).look(), "")
    cells = [one["cells"] for one in shown["longest"]]
    assert [(client, lasts) for client, _, lasts, _ in cells] == [("5", "101 s"), ("7", "100 s")]
    assert all(one["slow"] for one in shown["longest"])
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d", since) for _, since, *_ in cells)
    bars = {trace["name"]: trace for trace in shown["figures"]["timeline"]["data"]}
    assert [round(length, 6) for length in bars["training for long"]["x"]] == [
        round(min(made.run.now + 100, ran, 80.0 * 1.1), 6) for ran in (101.0, 100.0)
    ]
