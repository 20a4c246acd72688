"""Interrupted simulations: continued to the same bytes, or refused."""

from pathlib import Path
from typing import Any

import pytest

import fedfa
from fedfa import Stop, Weather
from fedfa.learning.data.settings import DataSettings
from fedfa.learning.data_task import data_task
from fedfa.learning.models.settings import ModelSettings
from fedfa.simulation.state import SimulationState
from fedfa.simulation.weather import Availability
from fedfa.strategies.base import Strategy
from fedfa.strategies.registry import STRATEGIES
from tests.helpers.simulations import StopAfter, quick, sized


@pytest.mark.parametrize("executor", ["inline", "batched"])
@pytest.mark.parametrize("cls", STRATEGIES.values(), ids=lambda cls: cls.name)
def test_an_interrupted_run_continues_to_the_same_bytes(
    cls: type[Strategy], executor: str, task: fedfa.Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = iter(range(10**9))
    monkeypatch.setattr(
        "fedfa.simulation.engine.time.perf_counter", lambda: float(next(ticks))
    )  # every arrival is a chance
    weather = Weather(jitter=0.3, dropout=0.1, availability=Availability(period_seconds=60.0, open_fraction=0.5))
    settings: dict[str, Any] = {"weather": weather, "executor": executor, "stop": Stop(updates=40)}
    whole = quick(sized(cls, staleness_bound=1), task, out=tmp_path / "whole", **settings)
    for pause in (7, 13):
        with pytest.raises(KeyboardInterrupt):
            quick(
                sized(cls, staleness_bound=1), task, out=tmp_path / "parts", resume=pause > 7,
                interrupted=StopAfter(pause), **settings,
            )  # fmt: skip
        assert not (tmp_path / "parts" / "manifest.json").exists()
    parts = quick(sized(cls, staleness_bound=1), task, out=tmp_path / "parts", resume=True, **settings)
    assert parts.model.tobytes() == whole.model.tobytes()
    for name in ("updates.parquet", "evaluations.parquet", "clients.parquet"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_resuming_with_other_settings_is_refused(task: fedfa.Task, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        quick("fedavg", task, out=tmp_path, interrupted=lambda: True, stop=Stop(seconds=1e6))
    with pytest.raises(fedfa.RecordError, match="started with other settings"):
        quick("fedavg", task, out=tmp_path, resume=True, seed=9)
    (tmp_path / "checkpoint.npz").write_bytes(b"damaged")
    with pytest.raises(fedfa.RecordError, match="cannot be read"):
        quick("fedavg", task, out=tmp_path, resume=True)


def test_a_run_goes_on_with_the_executor_it_began_with(task: fedfa.Task, tmp_path: Path) -> None:
    """Even where "auto" would now take another one."""
    stop, long = Stop(updates=30), Stop(seconds=1e6)
    for name, other in (("batched", "inline"), ("inline", "batched")):
        with pytest.raises(KeyboardInterrupt):
            quick(
                "fedavg", task, out=tmp_path / name, executor=name, compile=False, stop=long, interrupted=lambda: True
            )
        begun = SimulationState.begun_with(tmp_path / name)
        assert begun == name
        for _ in range(2):  # continued, and then finished
            run = quick("fedavg", task, out=tmp_path / name, executor="auto", stop=stop, resume=True)
            assert run.manifest["executor"] == name
        assert run.manifest["executor_because"] == "the run began with it"
        with pytest.raises(fedfa.RecordError, match="finished run with other settings"):
            quick("fedavg", task, out=tmp_path / name, executor=other, stop=stop, resume=True)


def test_a_run_is_only_continued_as_itself(task: fedfa.Task, tmp_path: Path) -> None:
    quick("fedasync", task, out=tmp_path, stop=Stop(updates=10))
    again = quick("fedasync", task, out=tmp_path, resume=True, stop=Stop(updates=10))
    assert len(again.accepted) == 10
    with pytest.raises(fedfa.RecordError, match="ended at another stop"):
        quick("fedasync", task, out=tmp_path, resume=True, stop=Stop(updates=20))
    other = data_task(DataSettings(clients=12), ModelSettings(hidden=8), task.local, seed=0)
    other.name = task.name
    with pytest.raises(fedfa.RecordError, match="finished run with other settings"):
        quick("fedasync", other, out=tmp_path, resume=True, stop=Stop(updates=10))
    fresh = tmp_path / "unfinished"
    with pytest.raises(KeyboardInterrupt):
        quick("fedasync", task, out=fresh, interrupted=lambda: True, stop=Stop(seconds=1e6))
    with pytest.raises(fedfa.RecordError, match="started with other settings"):
        quick("fedasync", other, out=fresh, resume=True)
    (fresh / ".checkpoint.npz.abandoned").write_bytes(b"half")
    quick("fedasync", task, out=fresh, resume=True)
    assert not list(fresh.glob(".*"))
