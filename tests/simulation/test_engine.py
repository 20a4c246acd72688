"""The virtual clock: order of events, refill, recall, failures, stops, determinism."""

import math
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal

import fedfa
from fedfa import Stop, Weather
from fedfa.learning.data.settings import DataSettings
from fedfa.learning.data_task import data_task
from fedfa.learning.models.settings import ModelSettings
from fedfa.runs.recorder import ACCEPTED
from fedfa.simulation.distributions import Constant, Exponential, Uniform
from fedfa.simulation.weather import Availability, Forecast
from fedfa.strategies.base import Strategy
from fedfa.strategies.registry import STRATEGIES
from tests.helpers.simulations import quick, sized


@pytest.mark.parametrize("cls", STRATEGIES.values(), ids=lambda cls: cls.name)
def test_every_strategy_learns_and_keeps_its_slots_busy(cls: type[Strategy], task: fedfa.Task) -> None:
    run = quick(sized(cls), task, stop=Stop(updates=120))
    assert run.best_accuracy > 0.4
    assert run.best_accuracy > run.evaluations["accuracy"][0] + 0.2
    rows = run.updates
    assert (rows["outcome"] == ACCEPTED).all()
    assert (rows["seconds"].diff().drop_nulls() >= 0).all()
    assert (rows["version"].diff().drop_nulls() >= 0).all()
    assert (rows["seconds"] > rows["dispatched_seconds"]).all()
    assert rows["train_loss"].is_finite().all()
    starts, ends = rows["dispatched_seconds"].to_numpy(), rows["seconds"].to_numpy()
    for at in ends:
        assert ((starts <= at) & (ends > at)).sum() <= 4


def test_a_synchronous_round_takes_as_long_as_its_slowest_client(task: fedfa.Task) -> None:
    rows = quick(fedfa.FedAvg(concurrency=4), task).updates
    for number in range(15):
        block = rows[4 * number : 4 * number + 4]
        assert block["dispatched_seconds"].n_unique() == 1
        assert (block["staleness"] == 0).all()
        if number < 14:
            assert rows["dispatched_seconds"][4 * number + 4] == block["seconds"].max()


def test_refill_immediate_and_batch(task: fedfa.Task) -> None:
    at_once = quick(fedfa.FedFaParam(concurrency=4, window=3), task).updates
    arrivals = set(at_once["seconds"].to_list()) | {0.0}
    assert set(at_once["dispatched_seconds"].to_list()) <= arrivals
    assert at_once["dispatched_seconds"].n_unique() > 50
    batch = quick(fedfa.FedBuff(concurrency=4, buffer=3, refill="batch"), task).updates
    published = set(batch.filter(pl.col("version") > pl.col("version").shift(1).fill_null(0))["seconds"].to_list())
    assert set(batch["dispatched_seconds"].to_list()) <= published | {0.0}


def test_all_strategies_meet_the_same_weather(task: fedfa.Task) -> None:
    """The n-th dispatch of a client takes the same time under every strategy."""
    weather = Weather(speed=Exponential(), jitter=0.5)
    seen: dict[tuple[int, int], float] = {}
    for cls in (fedfa.FedAvg, fedfa.FedBuff, fedfa.FedFaDelta, fedfa.FedAsync):
        rows = quick(sized(cls), task, weather=weather).updates.sort("dispatch")
        counts: dict[int, int] = {}
        for client, took in zip(rows["client"], rows["seconds"] - rows["dispatched_seconds"], strict=True):
            nth = counts[client] = counts.get(client, -1) + 1
            assert seen.setdefault((client, nth), took) == pytest.approx(took, abs=1e-9)
    assert len(seen) > 60


def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(task: fedfa.Task) -> None:
    one, two, other = (quick("fedfa-delta", task, seed=seed) for seed in (3, 3, 4))
    assert_frame_equal(one.updates, two.updates, check_exact=True)
    assert_frame_equal(one.evaluations, two.evaluations, check_exact=True)
    assert one.model.tobytes() == two.model.tobytes()
    assert not one.updates["client"].equals(other.updates["client"])


@pytest.mark.parametrize("cls", [fedfa.FedAvg, fedfa.FedFaParam, fedfa.FedProx, fedfa.PortUrgent])
@pytest.mark.parametrize("local", [{}, {"momentum": 0.5, "weight_decay": 0.01}, {"optimizer": "adamw", "lr": 0.01}])
def test_executors_agree(cls: type[Strategy], local: dict[str, Any], task: fedfa.Task) -> None:
    """Unequal clients, ragged last batches, prox, momentum, AdamW: same events, models equal to rounding."""
    data = DataSettings(clients=12, partition="dirichlet-by-class", alpha=1.0)
    training = fedfa.LocalTraining(**({"epochs": 2} | local))
    own = data_task(data, ModelSettings(hidden=8), training, seed=0)
    strategy = sized(cls, staleness_bound=1, prox_mu=0.1)
    runs = [quick(strategy, own, executor=name) for name in ("inline", "batched")]
    exact = ["seconds", "client", "dispatch", "base_version", "staleness", "version", "outcome", "num_steps"]
    assert_frame_equal(runs[0].updates.select(exact), runs[1].updates.select(exact), check_exact=True)
    assert [run.manifest["executor"] for run in runs] == ["inline", "batched"]
    np.testing.assert_allclose(runs[0].updates["train_loss"], runs[1].updates["train_loss"], rtol=2e-3, atol=1e-4)
    np.testing.assert_allclose(runs[0].model, runs[1].model, rtol=1e-3, atol=2e-4)


def test_port_urgent_calls_laggards_back_at_the_end_of_an_epoch() -> None:
    epochs = 10
    own = data_task(
        DataSettings(clients=12), ModelSettings(hidden=8), fedfa.LocalTraining(epochs=epochs, batch_size=30), seed=0
    )
    weather = Weather(speed=Uniform(1.0, 40.0))
    patient, urgent, ignoring = (
        quick(cls(concurrency=6, buffer=2, staleness_bound=2), own, weather=weather, stop=Stop(updates=80)).updates
        for cls in (fedfa.PortNonUrgent, fedfa.PortUrgent, fedfa.Port)
    )
    work = pl.col("seconds") - pl.col("dispatched_seconds")
    full = {client: (took, steps) for client, took, steps in patient.select("client", work, "num_steps").iter_rows()}
    short = 0
    for client, took, steps in urgent.select("client", work, "num_steps").iter_rows():
        share = took / full[client][0]
        assert share * epochs == pytest.approx(round(share * epochs), abs=1e-6)
        assert steps == round(share * full[client][1])
        short += share < 0.99
    assert short > 3
    assert patient["staleness"].max() <= 2
    assert urgent["staleness"].max() <= 2
    assert ignoring["staleness"].max() > 2
    assert urgent["seconds"].max() < patient["seconds"].max()


def test_dropouts_time_out_and_the_slot_comes_back(task: fedfa.Task) -> None:
    weather = Weather(speed=Constant(1.0), dropout=0.3, timeout_seconds=7.0)
    for strategy in (fedfa.FedAvg(concurrency=4), fedfa.FedFaParam(concurrency=4, window=3)):
        rows = quick(strategy, task, weather=weather).updates
        lost = rows.filter(pl.col("outcome").str.starts_with("lost"))
        assert 5 < len(lost) < 60
        assert ((lost["seconds"] - lost["dispatched_seconds"] - 7.0).abs() < 1e-9).all()
        assert (lost["bytes_up"] == 0).all()
        assert len(rows.filter(pl.col("outcome") == ACCEPTED)) == 60


def test_availability_windows_hold_new_work_back(task: fedfa.Task) -> None:
    window = Availability(period_seconds=100.0, open_fraction=0.1)
    weather = Weather(speed=Constant(2.0), availability=window)
    run = quick(fedfa.FedAsync(concurrency=6), task, weather=weather, stop=Stop(updates=100))
    forecast = Forecast(weather, run.seed, 0)
    for client, at in run.updates.select("client", "dispatched_seconds").iter_rows():
        assert forecast.opens(client, at) == at
    steady = quick(fedfa.FedAsync(concurrency=6), task, weather=Weather(speed=Constant(2.0)), stop=Stop(updates=100))
    assert run.seconds > 2 * steady.seconds


def test_bandwidth_adds_to_the_delay(task: fedfa.Task) -> None:
    plain = Weather(speed=Constant(1.0))
    slow = Weather(speed=Constant(1.0), uplink=Constant(1000.0), downlink=Constant(4000.0))
    a, b = (quick("fedasync", task, weather=w, stop=Stop(updates=10)) for w in (plain, slow))
    size = a.updates["bytes_up"][0]
    took = b.updates["seconds"] - b.updates["dispatched_seconds"]
    assert took.to_list() == pytest.approx([1.0 + size / 1000 + size / 4000] * 10)


def test_a_client_that_raises_loses_only_its_own_work() -> None:
    def fragile_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if not outputs.requires_grad:
            return torch.zeros(())
        if bool((targets == 7).all()):
            raise RuntimeError("bad sensor")
        return torch.nn.functional.cross_entropy(outputs, targets)

    clients = [(torch.rand(8, 4), torch.full((8,), 7 if c == 2 else 1)) for c in range(6)]
    own = fedfa.Task(model=lambda: torch.nn.Linear(4, 10), clients=clients, test=clients[0], loss=fragile_loss)
    rows = quick(fedfa.FedFaParam(concurrency=3, window=2), own).updates
    failed = rows.filter(pl.col("outcome") != ACCEPTED)
    assert set(failed["outcome"]) == {"failed: RuntimeError: bad sensor"}
    assert set(failed["client"]) == {2}
    assert len(rows) - len(failed) == 60


def test_a_client_that_sends_nan_is_refused_and_the_run_goes_on() -> None:
    clients = [(torch.full((8, 4), math.nan if c == 1 else 0.5), torch.ones(8, dtype=torch.long)) for c in range(6)]
    own = fedfa.Task(model=lambda: torch.nn.Linear(4, 10), clients=clients, test=clients[0])
    for executor in ("inline", "batched"):
        run = quick(fedfa.FedFaDelta(concurrency=3, window=2), own, executor=executor)
        refused = run.updates.filter(pl.col("outcome") != ACCEPTED)
        assert set(refused["client"]) == {1}
        assert set(refused["outcome"]) == {"refused: not finite (NaN or Inf)"}
        assert np.isfinite(run.model).all()


def test_a_hopeless_run_ends_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    clients = [(torch.full((8, 4), math.nan), torch.ones(8, dtype=torch.long))] * 4
    own = fedfa.Task(model=lambda: torch.nn.Linear(4, 10), clients=clients, test=clients[0])
    run = quick(fedfa.FedAsync(concurrency=2), own)
    assert run.manifest["ended"] == (
        "hopeless: 1000 arrivals in a row not taken, the last refused: not finite (NaN or Inf)"
    )
    assert len(run.updates) == 1000
    assert "fedasync is hopeless" in caplog.text


@pytest.mark.parametrize(
    ("stop", "ended"),
    [
        (Stop(updates=30), "updates"),
        (Stop(seconds=50.0), "seconds"),
        (Stop(accuracy=0.3, updates=500), "accuracy"),
        (Stop(wall_seconds=0.05), "wall time"),
    ],
)
def test_each_stop_ends_the_run(stop: Stop, ended: str, task: fedfa.Task) -> None:
    run = quick("fedfa-param", task, stop=stop)
    assert run.manifest["ended"] == ended
    assert run.evaluations["updates"][-1] == len(run.accepted)
    if ended == "seconds":
        assert run.seconds == 50.0
        assert run.updates["seconds"].max() <= 50.0
    if ended == "accuracy":
        assert run.final_accuracy >= 0.3
        assert run.time_to(0.3) == run.seconds
        assert run.updates_to(0.3) == len(run.accepted)
    assert run.time_to(1.1) is None
    assert run.updates_to(1.1) is None


def test_port_urgent_never_calls_back_the_client_it_has_just_started(task: fedfa.Task) -> None:
    weather = Weather(speed=Uniform(1.0, 40.0))
    strategy = fedfa.PortUrgent(concurrency=4, buffer=2, staleness_bound=1, refill="immediate")
    rows = quick(strategy, task, weather=weather, stop=Stop(updates=120)).updates
    full = quick(fedfa.FedAvg(concurrency=4), task, weather=weather).updates
    steps = dict(full.select("client", "num_steps").iter_rows())
    fresh = rows.filter(pl.col("staleness") == 0)
    assert all(done == steps[client] for client, done in fresh.select("client", "num_steps").iter_rows())
