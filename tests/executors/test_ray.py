"""The ray executor with two real workers: the same run, also when a worker is killed under way."""

import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedfa
from fedfa.errors import ConfigError
from fedfa.executors.base import WorkOrder
from fedfa.executors.lanes import Lanes
from fedfa.executors.registry import make_executor
from fedfa.learning.device import CPU

ray = pytest.importorskip("ray", reason="the ray extra is not installed")

pytestmark = pytest.mark.filterwarnings("default")


def blobs(client: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(client)
    labels = torch.randint(0, 3, (40,), generator=generator)
    return torch.randn(40, 5, generator=generator) + labels[:, None], labels


def make_task(**local: Any) -> fedfa.Task:
    return fedfa.Task(
        model=lambda: nn.Sequential(nn.Linear(5, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3)),
        clients=[blobs(client) for client in range(12)],
        test=blobs(99),
        local=fedfa.LocalTraining(**{"epochs": 3, "batch_size": 16, "lr": 0.05} | local),
    )


@pytest.mark.parametrize(
    "strategy", [fedfa.FedFaParam(concurrency=5, window=3), fedfa.PortUrgent(concurrency=5, buffer=2)]
)
def test_a_run_is_that_of_inline(strategy: fedfa.Strategy) -> None:
    task = make_task()
    plain = fedfa.simulate(strategy, task, stop={"updates": 60}, engine={"executor": "inline"})
    spread = fedfa.simulate(strategy, task, stop={"updates": 60}, engine={"executor": "ray", "workers": 2})
    assert plain.updates.equals(spread.updates)
    assert plain.evaluations.equals(spread.evaluations)
    np.testing.assert_array_equal(plain.model, spread.model)
    assert not ray.is_initialized()


def test_a_run_ends_quietly(capfd: pytest.CaptureFixture[str]) -> None:
    """Although clients are still in training."""
    strategy, engine = fedfa.FedFaParam(concurrency=8, window=3), {"executor": "ray", "workers": 2}
    fedfa.simulate(strategy, make_task(epochs=100), stop={"updates": 12}, engine=engine)
    assert capfd.readouterr() == ("", "")


def test_a_killed_worker_loses_nothing() -> None:
    task = make_task(epochs=40)
    runner: Any = make_executor("ray", task, 0, workers=2)
    try:
        base = task.initial(0).vector
        orders = [WorkOrder(client, 0, client, 0, base, task.local.epochs, 0.0, 0.0) for client in range(12)]
        for order in orders:
            runner.submit(order)
        victim = ray.get(runner.workers[0].process.remote())
        for order in orders[:3]:
            runner.result(order.dispatch)
        os.kill(victim, signal.SIGKILL)
        rest = [runner.result(order.dispatch) for order in orders[3:]]
        assert ray.get(runner.workers[0].process.remote()) != victim
    finally:
        runner.close()
    inline: Any = make_executor("inline", task, 0)
    for order, trained in zip(orders[3:], rest, strict=True):
        np.testing.assert_allclose(trained.params, inline.train(order).params, rtol=1e-4, atol=1e-5)
        assert (trained.num_steps, trained.num_examples, trained.error) == (120.0, 40, "")


def test_discarded_and_failing_work() -> None:
    """A client called back is trained with fewer epochs; one that raises is reported as failed."""
    task = make_task()
    task.targets[:40] = 7  # the first client's labels fit no class
    runner: Any = make_executor("ray", task, 0, workers=2)
    try:
        base = task.initial(0).vector
        long, short = (WorkOrder(1, 0, 1, 0, base, epochs, 0.0, 0.0) for epochs in (3, 1))
        runner.submit(long)
        runner.discard(1)
        runner.submit(short)
        assert runner.result(1).num_steps == 3
        runner.submit(WorkOrder(0, 0, 0, 0, base, 1, 0.0, 0.0))
        assert "Target 7 is out of bounds" in runner.result(0).error
    finally:
        runner.close()


def test_mistakes_are_reported_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(ConfigError, match="ray: cannot be started"):
        make_executor("ray", make_task(), 0)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"executor = 'ray' needs the ray extra: pip install 'fedfa\[ray\]'"):
        make_executor("ray", make_task(), 0)


def test_a_worker_with_lanes_trains_several_clients_side_by_side() -> None:
    """What a GPU worker does, with lanes that run on the CPU: called from several threads at once."""
    from fedfa.executors.ray import Worker

    task = make_task()
    worker = Worker(0, CPU, False)
    base = task.initial(0).vector
    orders = [WorkOrder(client, 0, client, 0, None, task.local.epochs, 0.0, 0.0) for client in range(12)]
    alone = [worker.train(order, base, lambda: task) for order in orders]
    worker._executor = Lanes(task, 0, CPU)
    task.targets[:40] = 0
    with ThreadPoolExecutor(6) as threads:
        together = list(threads.map(partial(worker.train, fetch=lambda: task), orders, [base] * len(orders)))
    for one, other in zip(alone[1:], together[1:], strict=True):
        np.testing.assert_allclose(one.params, other.params, rtol=1e-4, atol=1e-5)
        assert (one.num_steps, one.error) == (other.num_steps, other.error)
    assert not np.allclose(alone[0].params, together[0].params)  # it learned from other labels


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_workers_share_a_gpu() -> None:
    task, strategy = make_task(), fedfa.FedFaParam(concurrency=5, window=3)
    here = fedfa.simulate(
        strategy, task, stop={"updates": 60}, engine={"device": "cuda", "precision": "fp32", "executor": "lanes"}
    )
    spread = fedfa.simulate(
        strategy,
        task,
        stop={"updates": 60},
        engine={"device": "cuda", "precision": "fp32", "executor": "ray", "workers": 2},
    )
    assert here.updates.drop("train_loss", "delta_norm").equals(spread.updates.drop("train_loss", "delta_norm"))
    np.testing.assert_allclose(here.model, spread.model, rtol=1e-2, atol=1e-3)


def test_a_cluster_without_gpu_is_refused() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ConfigError, match="device = 'cuda': no GPU in this Ray cluster"):
        fedfa.simulate("fedfa-param", make_task(), engine={"executor": "ray", "device": "cuda", "workers": 1})
    assert not ray.is_initialized()
