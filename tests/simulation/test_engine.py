"""The virtual clock: order of events, refill, recall, failures, stops, determinism, resume."""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal

import fedfa
from fedfa import Stop, Weather, simulate
from fedfa.errors import RecordError
from fedfa.learning.data.settings import DataSettings
from fedfa.learning.data_task import data_task
from fedfa.learning.models.settings import ModelSettings
from fedfa.runs import checkpoint
from fedfa.runs.recorder import ACCEPTED
from fedfa.runs.store import find_runs, read_run
from fedfa.simulation.distributions import Constant, Exponential, Uniform
from fedfa.simulation.settings import EngineSettings
from fedfa.simulation.state import Idle
from fedfa.simulation.weather import Availability
from fedfa.strategies.base import Flight, Strategy, Update
from fedfa.strategies.registry import STRATEGIES


@pytest.fixture(scope="module")
def task() -> fedfa.Task:
    """Small and quick: 12 clients of unequal size."""
    data = DataSettings(clients=12, partition="dirichlet-by-class", alpha=1.0)
    return data_task(data, ModelSettings(hidden=8), fedfa.LocalTraining(epochs=2), seed=0)


def quick(strategy: Any, task: fedfa.Task, **settings: Any) -> fedfa.Run:
    own = {key: settings.pop(key) for key in list(settings) if key in EngineSettings.__dataclass_fields__}
    engine = {"executor": "inline", "evaluate_every": 20} | own
    return simulate(strategy, task, **({"stop": Stop(updates=60), "engine": engine} | settings))


def sized(cls: type[Strategy], **settings: Any) -> Strategy:
    known = cls.__dataclass_fields__
    wanted = {"concurrency": 4, "window": 3, "buffer": 3} | settings
    return cls(**{key: value for key, value in wanted.items() if key in known})


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
    from fedfa.simulation.weather import Forecast

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


def test_a_hopeless_run_ends_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
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
def test_stops(stop: Stop, ended: str, task: fedfa.Task) -> None:
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


def test_idle_clients_are_drawn_uniformly_and_never_twice() -> None:
    rng = np.random.default_rng(0)
    idle = Idle(10)
    hits = np.zeros(10)
    out: list[int] = []
    for _ in range(20_000):
        while len(out) < 4:
            client = idle.draw(rng.random())
            assert client not in out
            out.append(client)
            hits[client] += 1
        idle.put_back(out.pop(int(rng.integers(4))))
    assert idle.count == 7
    assert abs(hits / hits.mean() - 1).max() < 0.06
    assert len(idle.moved) <= 10


@dataclass(kw_only=True, eq=False)
class Mine(Strategy):
    """A strategy of one's own, in a few lines."""

    name = "mine"
    rate: float = 0.5

    def aggregate(self, update: Update, in_flight: Mapping[int, Flight]) -> Any:
        return self.model + self.rate / (1 + self.staleness_of(update)) * self.delta(update)


def test_a_strategy_of_ones_own_gets_everything(task: fedfa.Task, tmp_path: Path) -> None:
    run = quick(Mine(concurrency=4), task, out=tmp_path / "mine", stop=Stop(updates=120))
    assert run.best_accuracy > 0.4
    assert read_run(tmp_path / "mine").manifest["strategy"] == {
        "name": "mine", "concurrency": 4, "max_staleness": None, "clip_norm": None, "rate": 0.5,
    }  # fmt: skip


def test_records_say_what_happened(task: fedfa.Task, tmp_path: Path) -> None:
    run = quick("fedfa-param", task, out=tmp_path / "run")
    back = read_run(tmp_path / "run")
    assert_frame_equal(run.updates, back.updates, check_exact=True)
    assert_frame_equal(run.evaluations, back.evaluations, check_exact=True)
    assert back.updates.columns == [
        "seconds", "client", "dispatch", "dispatched_seconds", "base_version", "staleness", "version", "outcome",
        "train_loss", "delta_norm", "num_examples", "num_steps", "bytes_up", "bytes_down",
    ]  # fmt: skip
    assert back.clients["examples"].sum() == len(task.targets)
    assert (back.updates["bytes_up"] == 4 * len(run.model)).all()
    assert back.manifest["machine"]["torch"] == torch.__version__
    assert not list((tmp_path / "run").glob(".*"))
    assert not (tmp_path / "run" / "checkpoint.npz").exists()
    with pytest.raises(fedfa.RecordError, match="holds a finished run"):
        quick("fedfa-param", task, out=tmp_path / "run")
    assert len(find_runs(tmp_path)) == 1


class StopAfter:
    """Asks for an interruption at the n-th opportunity."""

    def __init__(self, times: int) -> None:
        self.left = times

    def __call__(self) -> bool:
        self.left -= 1
        return self.left <= 0


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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda task: simulate("fedfa", task), "strategy = 'fedfa': did you mean 'fedfa-"),
        (lambda task: simulate("fedbuff:bufer=3", task), "strategy.bufer = 3: unknown key; did you mean 'buffer'?"),
        (
            lambda task: simulate(fedfa.FedFaParam, task),
            "must be a fedfa.Strategy or its name, is the class FedFaParam",
        ),
        (lambda task: simulate("fedavg", task, seed=-1), "seed = -1: must be 0, 1, 2, ..."),
        (
            lambda task: fedfa.Task(model=torch.nn.Linear(2, 2), clients=[], test=None),
            "model: must be a function that makes a new one",
        ),
        (lambda task: simulate("fedavg", task, "sunny"), "weather = 'sunny': must be one of paper"),
        (lambda task: simulate(fedfa.FedAvg(concurrency=13), task), "concurrency = 13: more than the 12 clients"),
        (
            lambda task: simulate("fedavg", task, engine={"executor": "gpu"}),
            "executor = 'gpu': must be one of auto, inline, batched, lanes, ray",
        ),
        (lambda task: simulate("fedavg", "cats"), "task = 'cats': must be 'digits' or a fedfa.Task"),
        (lambda task: Stop(), "set at least one of updates, seconds, accuracy, wall_seconds"),
        (lambda task: Stop(updates=0), "updates = 0: must be above 0, and finite"),
        (
            lambda task: fedfa.FedBuff(buffer=11, refill="batch"),
            'buffer = 11: with refill = "batch" it would never fill, for concurrency = 10',
        ),
        (lambda task: fedfa.FedFaParam(window=0), "window = 0: must be at least 1"),
        (lambda task: fedfa.FedBuff(origin="Base"), "did you mean 'base'?"),
        (lambda task: fedfa.FedBuff(refill="imediate"), "did you mean 'immediate'?"),
        (lambda task: fedfa.FedBuff(buffer=2.5), "buffer = 2.5: must be a whole number"),
        (lambda task: fedfa.FedFaParam(window="5"), 'window = "5": must be a whole number'),
        (lambda task: fedfa.Port(laggards="urgent"), 'laggards = "urgent": must be one of ignore, wait, recall'),
        (lambda task: fedfa.FedAsync(beta=0.0), "beta = 0.0: must be above 0 and at most 1"),
        (
            lambda task: fedfa.FedAsync(staleness="cubic"),
            'staleness = "cubic": must be one of constant, polynomial, hinge, or a table',
        ),
        (lambda task: Weather(dropout=1.0), "dropout = 1.0: must be at least 0 and below 1"),
        (lambda task: fedfa.LocalTraining(epochs=0), "epochs = 0: must be at least 1"),
    ],
)
def test_wrong_arguments_are_named(call: Any, message: str, task: fedfa.Task) -> None:
    with pytest.raises(fedfa.ConfigError) as caught:
        call(task)
    assert message in str(caught.value)


def test_weather_and_stop_may_be_tables(task: fedfa.Task) -> None:
    run = simulate(
        "fedasync", task, {"speed": {"kind": "constant", "value": 2.0}}, {"updates": 30}, engine={"executor": "inline"}
    )
    assert run.seconds == 6.0
    assert len(run.accepted) == 30


def test_compare_runs_objects_side_by_side(task: fedfa.Task) -> None:
    small = [fedfa.FedAvg(concurrency=4), Mine(concurrency=4)]
    runs = fedfa.compare(small, task, seeds=(0, 1), stop=Stop(updates=20), engine={"executor": "inline"})
    assert [(run.label, run.seed) for run in runs] == [("fedavg", 0), ("mine", 0), ("fedavg", 1), ("mine", 1)]
    figure = fedfa.plot(runs[0])
    assert figure.axes[0].get_xlabel()


def test_port_urgent_never_calls_back_the_client_it_has_just_started(task: fedfa.Task) -> None:
    weather = Weather(speed=Uniform(1.0, 40.0))
    strategy = fedfa.PortUrgent(concurrency=4, buffer=2, staleness_bound=1, refill="immediate")
    rows = quick(strategy, task, weather=weather, stop=Stop(updates=120)).updates
    full = quick(fedfa.FedAvg(concurrency=4), task, weather=weather).updates
    steps = dict(full.select("client", "num_steps").iter_rows())
    fresh = rows.filter(pl.col("staleness") == 0)
    assert all(done == steps[client] for client, done in fresh.select("client", "num_steps").iter_rows())


def returning(change: Any) -> Strategy:
    @dataclass(kw_only=True, eq=False)
    class Own(Strategy):
        def aggregate(self, update: Update, in_flight: Mapping[int, Flight]) -> Any:
            return change(self, update)

    return Own(concurrency=3)


def in_place(strategy: Strategy, update: Update) -> Any:
    strategy.model += 0.1 * strategy.delta(update)
    return strategy.model


def test_a_strategy_that_returns_nonsense_is_named(task: fedfa.Task) -> None:
    for change in (lambda s, u: s.model[:-1], in_place, lambda s, u: s.model.tolist()):
        with pytest.raises(fedfa.EngineError, match=r"Own\.aggregate must return a new model of shape"):
            quick(returning(change), task)
    wide = quick(returning(lambda s, u: s.model + np.float64(0.1) * s.delta(u).astype(np.float64)), task)
    assert wide.model.dtype == np.float32
    assert wide.label == "Own"


def test_state_that_a_checkpoint_would_lose_is_refused() -> None:
    @dataclass(kw_only=True, eq=False)
    class Forgetful(Mine):
        def reset(self) -> None:
            self.seen = 0

    with pytest.raises(fedfa.ConfigError, match=r"Forgetful\.seen: declare it with field\(init=False\)"):
        Forgetful().begin(np.zeros(2, np.float32))

    @dataclass(kw_only=True, eq=False)
    class Queueing(Mine):
        last: Any = field(init=False)

        def reset(self) -> None:
            self.last = {"of": [deque([1.0])]}

    with pytest.raises(fedfa.ConfigError, match=r"Queueing\.last: a checkpoint cannot hold a deque; use numbers"):
        Queueing().begin(np.zeros(2, np.float32))


def test_plain_state_of_every_kind_is_kept(task: fedfa.Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(10**9))
    monkeypatch.setattr(
        "fedfa.simulation.engine.time.perf_counter", lambda: float(next(ticks))
    )  # every arrival is a chance

    @dataclass(kw_only=True, eq=False)
    class Remembering(Mine):
        seen: set[int] = field(init=False)
        norms: dict[int, Any] = field(init=False)

        def reset(self) -> None:
            self.seen, self.norms = set(), {}

        def aggregate(self, update: Update, in_flight: Mapping[int, Flight]) -> Any:
            fresh = update.client not in self.seen
            self.seen.add(update.client)
            self.norms[update.client] = [self.norm, self.delta(update)]
            return self.model + (0.5 if fresh else 0.1) * self.norms[update.client][1]

    whole = quick(Remembering(concurrency=4), task, stop=Stop(updates=40))
    with pytest.raises(KeyboardInterrupt):
        quick(Remembering(concurrency=4), task, stop=Stop(updates=40), out=tmp_path, interrupted=StopAfter(15))
    again = quick(Remembering(concurrency=4), task, stop=Stop(updates=40), out=tmp_path, resume=True)
    assert_frame_equal(again.updates, whole.updates, check_exact=True)
    assert again.model.tobytes() == whole.model.tobytes()


def test_compare_records_every_run_in_a_folder_of_its_own(task: fedfa.Task, tmp_path: Path) -> None:
    runs = fedfa.compare(["fedavg", "fedbuff:buffer=3"], task, seeds=[0, 1], out=str(tmp_path), stop=Stop(updates=12))
    names = ["fedavg-seed0", "fedavg-seed1", "fedbuff_buffer=3-seed0", "fedbuff_buffer=3-seed1"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert {run.label: run.manifest["strategy"].get("buffer") for run in runs} == {
        "fedavg": None,
        "fedbuff:buffer=3": 3,
    }
    assert read_run(str(tmp_path / "fedavg-seed1")).seed == 1


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


def test_runs_that_differ_in_more_than_the_seed_are_told_apart(task: fedfa.Task, tmp_path: Path) -> None:
    for name, seed, stop in (("a", 0, 10), ("b", 1, 10), ("c/x", 0, 10), ("c/y", 0, 12)):
        quick("fedasync", task, out=tmp_path / name, seed=seed, stop=Stop(updates=stop))
    assert {run.label for run in find_runs(tmp_path / "a")} == {"fedasync"}
    assert [run.label for run in find_runs(tmp_path / "c")] == ["fedasync (x)", "fedasync (y)"]


def test_a_checkpoint_keeps_a_shared_vector_once(tmp_path: Path) -> None:
    path, shared = tmp_path / "checkpoint.npz", np.arange(3.0)
    checkpoint.write_tree(path, {"bases": {1: shared, 2: shared}, "window": [shared, shared + 1]})
    with np.load(path) as file:
        assert len(file.files) == 3  # the tree and two vectors
    state = checkpoint.read_tree(path)
    np.testing.assert_array_equal(state["bases"][2], shared)
    np.testing.assert_array_equal(state["window"][1], shared + 1)


def test_a_checkpoint_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "checkpoint.npz"
    checkpoint.write_tree(path, {"now": 1.0})
    monkeypatch.setattr(checkpoint, "FORMAT", checkpoint.FORMAT + 1)
    with pytest.raises(RecordError, match="was written by another version of fedfa"):
        checkpoint.read_tree(path)


def test_the_record_tells_the_steps_that_were_taken() -> None:
    """Where a rule chooses one: none before its first, then between 1 and 2; fixed ones as they are."""
    steps = {
        name: fedfa.simulate(strategy, stop={"updates": 60}).evaluations["step"].to_numpy()
        for name, strategy in {
            "param": fedfa.FedFaParam(),
            "by agreement": fedfa.FedFaAgree(),
            "fixed": fedfa.FedFaDelta(server_lr=0.2),
            "nova": fedfa.FedFaNova(server_lr=0.3),
        }.items()
    }
    assert np.isnan(steps["param"]).all()
    assert all(np.isnan(steps[name][0]) for name in steps)
    assert steps["by agreement"][1:].min() >= 1.0
    assert 1.0 < steps["by agreement"][1:].max() <= 2.0
    assert set(steps["fixed"][1:]) == {0.2}
    assert set(steps["nova"][1:]) == {0.3}
