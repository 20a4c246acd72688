"""Lanes: the same training as inline, whatever the lane, the other lanes and the order of results.

Everything but streams and graphs also runs on the CPU, and is tested there; the rest wherever there is a GPU.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from torch import Tensor, nn

import fedfa
from fedfa.executors.base import WorkOrder
from fedfa.executors.capture import CannotCapture
from fedfa.executors.lane import Lane
from fedfa.executors.lanes import Lanes
from fedfa.executors.registry import make_executor
from fedfa.executors.trainer import Trainer
from fedfa.learning.device import CPU, Device, as_array
from fedfa.strategies.fedfa import FedFaDelta, FedFaParam
from fedfa.strategies.registry import STRATEGIES
from tests.helpers import ordinary_models
from tests.helpers.training import Warming

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
DEVICES = [
    pytest.param(CPU, id="cpu"),
    pytest.param(Device("cuda", "fp32"), id="cuda-fp32", marks=GPU),
]
SIZES = (20, 16, 7, 20, 9)


class Net(nn.Module):
    """Convolution, BatchNorm, a parameter that is never used and one that is frozen."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(2, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(dropout), nn.Flatten()
        )
        self.unused = nn.Parameter(torch.ones(3))
        self.scale = nn.Parameter(torch.full((288,), 0.5), requires_grad=False)
        self.head = nn.Linear(288, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x) * self.scale)


def examples(count: int, key: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(key)
    labels = torch.randint(0, 3, (count,), generator=generator)
    return torch.randn(count, 2, 6, 6, generator=generator) + labels[:, None, None, None], labels


def make_task(dropout: float = 0.0, model: Callable[[], nn.Module] | None = None, **local: Any) -> fedfa.Task:
    settings = {"epochs": 2, "batch_size": 8, "lr": 0.05} | local
    return fedfa.Task(
        model=model or (lambda: Net(dropout)),
        clients=[examples(size, key) for key, size in enumerate(SIZES)],
        test=examples(30, 99),
        local=fedfa.LocalTraining(**settings),
    )


def order(task: fedfa.Task, device: Device, client: int, nth: int = 0, mu: float = 0.0) -> WorkOrder:
    base = device.vector(task.initial(0).vector)
    return WorkOrder(client + 10 * nth, 0, client, nth, base, task.local.epochs, mu, 0.0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mu", [0.0, 0.1])
@pytest.mark.parametrize(
    "local", [{}, {"momentum": 0.9}, {"optimizer": "adamw", "lr": 0.01, "weight_decay": 0.1}], ids=str
)
def test_a_lane_trains_as_inline_does(device: Device, mu: float, local: dict[str, Any]) -> None:
    task = make_task(**local)
    with device.prepared():
        lanes, inline = Lanes(task, 0, device), Trainer(task, 0, device)
        orders = [order(task, device, client, nth, mu) for nth in range(2) for client in range(len(SIZES))]
        for one in orders:
            lanes.submit(one)
        for one in reversed(orders):
            ours, theirs = lanes.result(one.dispatch), inline.train(one)
            moved = np.linalg.norm(as_array(theirs.params) - as_array(one.base))
            apart = np.linalg.norm(as_array(theirs.params) - as_array(ours.params))
            assert apart <= 1e-4 * moved
            assert (ours.num_examples, ours.num_steps) == (theirs.num_examples, theirs.num_steps)
            assert ours.loss == pytest.approx(theirs.loss, rel=1e-4)


@pytest.mark.parametrize("mu", [0.0, 0.1])
@pytest.mark.parametrize(
    "device",
    [pytest.param(Device("cpu", "bf16"), id="cpu"), pytest.param(Device("cuda", "bf16"), id="cuda", marks=GPU)],
)
@pytest.mark.parametrize("local", [{}, {"optimizer": "adamw", "lr": 0.01}], ids=str)
def test_bf16_copies_train_as_autocast_does(device: Device, mu: float, local: dict[str, Any]) -> None:
    """Parameters of convolutions and linear layers are kept in bf16; those of BatchNorm and of other uses are not."""
    task = make_task(**local)
    with device.prepared():
        lanes, inline = Lanes(task, 0, device), Trainer(task, 0, device)
        assert lanes.shared.reduced == {"body.0.weight", "body.0.bias", "head.weight", "head.bias"}
        orders = [order(task, device, client, mu=mu) for client in range(len(SIZES))]
        for one in orders:
            lanes.submit(one)
        for one in orders:
            ours, theirs = lanes.result(one.dispatch), inline.train(one)
            moved = np.linalg.norm(as_array(theirs.params) - as_array(one.base))
            apart = np.linalg.norm(as_array(theirs.params) - as_array(ours.params))
            assert apart <= 0.05 * moved
            assert ours.loss == pytest.approx(theirs.loss, rel=0.01)


@pytest.mark.parametrize(
    "device",
    [pytest.param(Device("cpu", "bf16"), id="cpu"), pytest.param(Device("cuda", "bf16"), id="cuda", marks=GPU)],
)
@pytest.mark.parametrize("local", [{}, {"momentum": 0.5}, {"optimizer": "adamw", "lr": 0.01}], ids=str)
def test_gradients_may_all_be_bf16(device: Device, local: dict[str, Any]) -> None:
    """As those of adapters are, where everything else is frozen."""
    task = make_task(model=lambda: nn.Sequential(nn.Flatten(), nn.Linear(72, 3)), **local)
    with device.prepared():
        lanes, inline, one = Lanes(task, 0, device), Trainer(task, 0, device), order(task, device, 0)
        assert lanes.shared.reduced == set(lanes.shared.layout.names)
        lanes.submit(one)
        ours, theirs = lanes.result(one.dispatch), inline.train(one)
        moved = np.linalg.norm(as_array(theirs.params) - as_array(one.base))
        assert np.linalg.norm(as_array(theirs.params) - as_array(ours.params)) <= 0.05 * moved


@pytest.mark.parametrize("device", DEVICES)
def test_discarded_work_leaves_no_trace(device: Device) -> None:
    task = make_task()
    with device.prepared():
        lanes = Lanes(task, 0, device)
        alone = [order(task, device, client) for client in (0, 1)]
        for one in alone:
            lanes.submit(one)
        expected = [as_array(lanes.result(one.dispatch).params).copy() for one in alone]
        lanes.submit(order(task, device, 3))
        lanes.submit(alone[0])
        lanes.discard(3)
        lanes.submit(alone[1])
        for one, params in zip(alone, expected, strict=True):
            np.testing.assert_array_equal(as_array(lanes.result(one.dispatch).params), params)


@GPU
@pytest.mark.parametrize("strategy", ["fedfa-param", "fedfa-delta", "fedbuff", "port-urgent", "fedavg", "fedasync"])
def test_events_are_those_of_inline(strategy: str) -> None:
    """Time, order and staleness to the bit; losses to rounding."""
    task = make_task()
    settings: dict[str, Any] = {"device": "cuda", "precision": "fp32", "evaluate_every": 5}
    more = {"buffer": 2} if strategy in ("fedbuff", "port-urgent") else {}
    made = STRATEGIES[strategy](concurrency=4, **more)
    runs = [
        fedfa.simulate(made, task, stop={"updates": 40}, engine={"executor": name}, **settings)
        for name in ("inline", "lanes")
    ]
    columns = ["seconds", "client", "dispatch", "base_version", "staleness", "version", "outcome", "num_steps"]
    assert runs[0].updates.select(columns).equals(runs[1].updates.select(columns))
    losses = [run.updates["train_loss"].to_numpy() for run in runs]
    np.testing.assert_allclose(*losses, rtol=0.02)
    on_cpu = fedfa.simulate(made, task, stop={"updates": 40}, engine={"executor": "inline", "evaluate_every": 5})
    assert on_cpu.updates.select(columns).equals(runs[1].updates.select(columns))


@GPU
def test_fp32_repeats_bit_for_bit_and_dropout_follows_the_seed() -> None:
    task = make_task(dropout=0.3)
    runs = [
        fedfa.simulate(
            FedFaParam(concurrency=4, window=2),
            task,
            stop={"updates": 30},
            seed=seed,
            engine={"device": "cuda", "precision": "fp32", "executor": "lanes"},
        )
        for seed in (0, 0, 1)
    ]
    assert runs[0].updates.equals(runs[1].updates)
    assert not runs[0].updates.equals(runs[2].updates)
    np.testing.assert_array_equal(runs[0].model, runs[1].model)


@GPU
def test_an_interrupted_run_on_lanes_continues_to_the_same_model(tmp_path: Any) -> None:
    task, stop = make_task(), {"updates": 3000}  # longer than it takes to look for an interruption
    settings: dict[str, Any] = {"device": "cuda", "precision": "fp32", "executor": "lanes"}
    whole = fedfa.simulate(FedFaDelta(concurrency=4, window=2), task, stop=stop, **settings)
    with pytest.raises(KeyboardInterrupt):
        fedfa.simulate(
            FedFaDelta(concurrency=4, window=2),
            task,
            stop=stop,
            out=tmp_path / "a",
            interrupted=lambda: True,
            **settings,
        )
    again = fedfa.simulate(
        FedFaDelta(concurrency=4, window=2), task, stop=stop, out=tmp_path / "a", resume=True, **settings
    )
    assert whole.updates.drop("train_loss").equals(again.updates.drop("train_loss"))
    assert pl.Series(whole.evaluations["accuracy"]).equals(again.evaluations["accuracy"])


@GPU
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_reduced_precision_learns_the_same(precision: str) -> None:
    task = make_task()
    runs = [
        fedfa.simulate(
            FedFaParam(concurrency=4, window=2),
            task,
            stop={"updates": 60},
            engine={"device": "cuda", "precision": kind, "executor": "lanes"},
        )
        for kind in ("fp32", precision)
    ]
    assert runs[1].best_accuracy >= runs[0].best_accuracy - 0.1
    assert runs[0].best_accuracy > 0.6


def test_a_cpu_computes_in_bf16_where_asked(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another model by rounding, and the same events; an interrupted run continues to the same evaluations."""
    task, stop = make_task(), {"updates": 60}

    def run(precision: str, **more: Any) -> fedfa.Run:
        return fedfa.simulate(
            FedFaParam(concurrency=4, window=2), task, stop=stop, engine={"precision": precision}, **more
        )

    exact, rounded = run("fp32"), run("bf16")
    assert (rounded.manifest["executor"], rounded.manifest["precision"]) == ("inline", "bf16")
    events = ["seconds", "client", "staleness"]
    assert rounded.updates[events].equals(exact.updates[events])
    assert not rounded.evaluations["loss"].equals(exact.evaluations["loss"])
    assert rounded.best_accuracy >= exact.best_accuracy - 0.1
    ticks = iter(range(10**9))  # every arrival is a chance to interrupt
    monkeypatch.setattr("fedfa.simulation.engine.time.perf_counter", lambda: float(next(ticks)))
    with pytest.raises(KeyboardInterrupt):
        run("bf16", out=tmp_path / "a", interrupted=lambda: True)
    again = run("bf16", out=tmp_path / "a", resume=True)
    assert again.evaluations.equals(rounded.evaluations)


class Branching(nn.Linear):
    """Takes a branch in Python by its data, which no graph can hold."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (1.0 if float(x.sum()) > 0 else 0.5)


@GPU
def test_a_model_that_cannot_be_captured_is_trained_inline(caplog: pytest.LogCaptureFixture) -> None:
    task = fedfa.Task(model=lambda: Branching(4, 3), clients=[(torch.randn(8, 4), torch.arange(8) % 3)], test=(
        torch.randn(8, 4), torch.arange(8) % 3))  # fmt: skip
    assert make_executor("lanes", task, 0, Device("cuda", "fp32")).name == "inline"
    assert "cannot be captured" in caplog.text
    assert "\n" not in caplog.messages[-1]


def test_a_compiled_step_with_another_result_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong graph trains no client."""
    task = make_task()
    plain = Lane._step

    def wrong(self: Lane, size: int, prox_mu: float, loss_of: Any) -> None:
        plain(self, size, prox_mu, loss_of)
        if loss_of != self._shared.plain_loss:
            self.trainable += 1.0

    monkeypatch.setattr(Lane, "_step", wrong)
    monkeypatch.setattr(torch, "compile", lambda function, **_: lambda *inputs: function(*inputs))
    with pytest.raises(CannotCapture, match="differs from a plain one"):
        Lanes(task, 0, CPU, compile=True)


class Replacing(Warming):
    def forward(self, x: Tensor) -> Tensor:
        self.steps = self.steps + 1
        return self.layer(x) / self.steps


def test_a_graph_refuses_buffers_that_are_replaced() -> None:
    with pytest.raises(CannotCapture, match="it replaces its buffer steps"):
        Lanes(ordinary_models.make_task("vector", Replacing), 0, CPU)
