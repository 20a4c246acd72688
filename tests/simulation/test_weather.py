"""The weather: delays, losses, availability, and records of earlier runs as weather."""

from pathlib import Path
from statistics import mean
from typing import Any

import polars as pl
import pytest

import fedfa
from fedfa.experiments.config import load_experiment
from fedfa.settings import build
from fedfa.simulation.distributions import Exponential, Uniform
from fedfa.simulation.weather import Availability, Forecast, Record, Weather, weather_from


def test_the_paper_weather_gives_the_papers_seconds_per_round() -> None:
    """Mean slowest of ten, over many rounds: the paper's FedAvg rounds on CIFAR-10 take 16 to 18 s."""
    forecast = weather_from("paper").forecast(0, 0)
    speeds = [forecast.delay(client, 0).compute_seconds for client in range(20_000)]
    slowest = mean(max(speeds[i : i + 10]) for i in range(0, len(speeds), 10))
    assert 16 < slowest < 18


def test_delays_depend_on_seed_client_and_dispatch_alone() -> None:
    weather = Weather(jitter=0.4, dropout=0.2, uplink=Uniform(1e3, 2e3))
    one, two = weather.forecast(5, 1000), weather.forecast(5, 1000)
    later = [two.delay(c, n) for n in reversed(range(10)) for c in reversed(range(10))]
    assert [one.delay(c, n) for n in range(10) for c in range(10)] == later[::-1]
    answered = [delay for delay in (one.delay(3, n) for n in range(20)) if not delay.lost]
    assert len({delay.compute_seconds for delay in answered}) == len(answered) > 10
    assert len({delay.upload_seconds for delay in answered}) == 1
    lost = mean(one.delay(c, 0).lost for c in range(5000))
    assert lost == pytest.approx(0.2, abs=0.02)
    assert weather.forecast(6, 1000).delay(0, 0) != one.delay(0, 0)


def test_availability_windows_open_for_their_fraction() -> None:
    forecast = Forecast(Weather(availability=Availability(period_seconds=10.0, open_fraction=0.3)), 0, 0)
    times = [i * 0.01 for i in range(5000)]
    for client in range(5):
        assert mean(forecast.opens(client, t) == t for t in times) == pytest.approx(0.3, abs=0.01)
        closed = next(t for t in times if forecast.opens(client, t) > t)
        opens = forecast.opens(client, closed)
        assert forecast.opens(client, opens + 1e-9) == opens + 1e-9
        assert opens - closed <= 7.0


def test_a_setting_of_the_usual_speed_needs_no_kind() -> None:
    assert build(Weather, {"speed": {"mean": 8.0}}, "w").speed == Exponential(shift=3.0, mean=8.0)
    (speed,) = {load_experiment(None, [f"weather.speed.{text}"]).weather.speed for text in ("mean=8", "mean=8.0")}
    assert speed == Exponential(mean=8.0)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            {"speed": {"kind": "uniform", "low": 3.0, "high": 1.0}},
            "w.speed.low = 3.0, high = 1.0: must be 0 < low <= high",
        ),
        ({"speed": {"kind": "trace", "values": []}}, "w.speed: needs at least one number"),
        ({"speed": {"kind": "trace", "file": "/no/such"}}, "no readable JSON list"),
        ({"speed": {"kind": "pareto", "cap": 1.0}}, "cap = 1.0: must be at least scale = 3.0"),
        ({"uplink": {"median": 3.0}}, "w.uplink.kind: is missing; one of constant, uniform"),
        ({"speed": {"median": 3.0}}, "w.speed.median = 3.0: unknown key; did you mean 'mean'?"),
        ({"speed": 3}, "w.speed = 3: must be one of constant, uniform"),
        ({"jitter": -1}, "w.jitter = -1.0: must be between 0 and 10"),
        ({"availability": {"open_fraction": 0.0}}, "w.availability.open_fraction = 0.0: must be above 0"),
        ({"timeout": 3}, "w.timeout = 3: unknown key; did you mean 'timeout_seconds'?"),
    ],
)
def test_wrong_weather_is_named(table: dict[str, Any], message: str) -> None:
    with pytest.raises(fedfa.ConfigError) as caught:
        build(Weather, table, "w").resolved()
    assert message in str(caught.value)


def record(tmp_path: Path, weather: Weather, updates: int = 200, **settings: Any) -> fedfa.Run:
    stop = fedfa.Stop(updates=updates)
    return fedfa.simulate(
        "fedfa-param",
        weather=weather,
        stop=stop,
        seed=3,
        out=tmp_path / "record",
        engine={"executor": "inline"},
        **settings,
    )


def test_a_record_as_weather_gives_the_same_arrivals(tmp_path: Path) -> None:
    """The same for as long as the record knows every dispatch: until the first without an answer."""
    first = record(tmp_path, Weather(jitter=0.5, dropout=0.1, timeout_seconds=9.0)).updates
    again = fedfa.simulate(
        "fedfa-param",
        weather=f"record:{tmp_path / 'record'}",
        stop=fedfa.Stop(updates=200),
        seed=3,
        engine={"executor": "inline"},
    ).updates
    unanswered = min(set(range(first["dispatch"].max() + 2)) - set(first["dispatch"]))  # pyright: ignore
    known = first.filter(first["dispatch"] < unanswered)["dispatched_seconds"].max()
    part = first.filter(first["seconds"] <= known)
    assert len(part) > 40
    assert "lost: no answer in time" in part["outcome"]
    for column in ("client", "dispatch", "base_version", "staleness", "version", "outcome"):
        assert again[column].head(len(part)).to_list() == part[column].to_list(), column
    assert again["seconds"].head(len(part)).to_list() == pytest.approx(part["seconds"].to_list(), abs=1e-9)


def test_a_record_of_steady_clients_repeats_the_whole_run(tmp_path: Path) -> None:
    run = record(tmp_path, Weather())
    table = {"speed": {"kind": "record", "folder": str(tmp_path / "record")}}
    again = fedfa.simulate(
        "fedfa-param", weather=table, stop=fedfa.Stop(updates=200), seed=3, engine={"executor": "inline"}
    )
    assert again.updates["client"].to_list() == run.updates["client"].to_list()
    assert again.evaluations["accuracy"].to_list() == run.evaluations["accuracy"].to_list()
    buffered = fedfa.simulate(
        "fedbuff", weather=table, stop=fedfa.Stop(updates=100), seed=3, engine={"executor": "inline"}
    )
    seconds_of = {row["client"]: row["seconds"] - row["dispatched_seconds"] for row in run.updates.to_dicts()}
    for row in buffered.updates.to_dicts():
        assert row["seconds"] - row["dispatched_seconds"] == pytest.approx(seconds_of[row["client"]], abs=1e-9)


def test_what_was_lost_or_failed_in_the_record_is_lost_again(tmp_path: Path) -> None:
    """Refused answers did arrive, so they are not lost."""
    run = record(tmp_path, Weather(), updates=40)
    outcomes = ["lost: no answer in time", "failed: KeyError: 'x'", "refused: lost its way", "accepted"]
    changed = pl.Series("outcome", [outcomes[number % 4] for number in range(len(run.updates))])
    run.updates.with_columns(changed).write_parquet(tmp_path / "record" / "updates.parquet")
    measured = Record(str(tmp_path / "record")).measured()
    flags = {client: iter(lost) for client, lost in measured.lost.items()}
    expected = zip(run.updates["dispatch"], run.updates["client"], changed, strict=True)
    for _, client, outcome in sorted(expected):
        assert next(flags[client]) == outcome.startswith(("lost:", "failed:"))


def test_beyond_the_record_clients_draw_from_it(tmp_path: Path) -> None:
    run = record(tmp_path, Weather(jitter=0.5, dropout=0.2))
    forecast = Weather(speed=Record(str(tmp_path / "record"))).forecast(0, 10**6)
    took: dict[int, list[float]] = {}
    for row in run.updates.sort("dispatch").to_dicts():
        took.setdefault(row["client"], []).append(row["seconds"] - row["dispatched_seconds"])
    for client, times in took.items():
        assert [forecast.delay(client, n).compute_seconds for n in range(len(times))] == times
        later = {forecast.delay(client, n).compute_seconds for n in range(len(times), 40 * len(times))}
        assert later == set(times)
    unknown = [[forecast.delay(client, n) for n in range(60)] for client in range(1000, 1200)]
    assert all(
        any({delay.compute_seconds for delay in one} <= set(times) for times in took.values()) for one in unknown
    )
    assert len({one[0] for one in unknown}) > 20
    assert {round(delay.compute_seconds, 9) for one in unknown for delay in one if delay.lost} == {60.0}
    assert forecast.delay(1000, 7) == Weather(speed=Record(str(tmp_path / "record"))).forecast(0, 0).delay(1000, 7)


def test_records_that_cannot_be_weather_are_named(tmp_path: Path) -> None:
    with pytest.raises(fedfa.ConfigError, match="weather = 'record': say which"):
        weather_from("record")
    with pytest.raises(fedfa.ConfigError, match="no such folder"):
        weather_from(f"record:{tmp_path / 'none'}")
    with pytest.raises(fedfa.RecordError, match="holds no finished run"):
        weather_from(f"record:{tmp_path}")
    record(tmp_path, Weather(), updates=20)
    known = Record(str(tmp_path / "record")).resolved()
    assert Record(known.folder, known.digest).resolved() == known
    with pytest.raises(fedfa.ConfigError, match="holds other times"):
        Record(known.folder, "0" * 16).resolved()
    with pytest.raises(fedfa.ConfigError, match=r"w: speed\.kind = 'record': measured times include sending"):
        build(Weather, {"speed": {"kind": "record", "folder": known.folder}, "uplink": "constant"}, "w")


@pytest.mark.parametrize("value", [-1.0, 0.0, float("nan")])
def test_a_distribution_that_would_turn_the_clock_back_is_refused(value: float) -> None:
    """A new one may forget to check its settings."""

    class Careless:
        kind = "careless"

        def at(self, u: float) -> float:
            return value if u < 0.5 else 1.0

    with pytest.raises(fedfa.ConfigError, match=r"weather\.speed = .*for the draw 1e-06; must be above 0"):
        Weather(speed=Careless()).forecast(0, 1)  # pyright: ignore[reportArgumentType]
