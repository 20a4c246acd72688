"""``simulate``: what it takes, and what it refuses."""

from typing import Any

import pytest
import torch

import fedfa
from fedfa import Stop, Weather, simulate
from fedfa.simulation.simulate import steps_ahead
from fedfa.simulation.weather import weather_from
from fedfa.strategies.specs import strategy_from


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


@pytest.mark.parametrize("name", ["fedavg:concurrency=4", "fedasync:concurrency=4"])
def test_the_work_of_a_run_is_estimated_from_its_settings(name: str, task: fedfa.Task) -> None:
    def ahead(stop: Stop, beside: int = 1) -> float:
        return steps_ahead(strategy_from(name), task, weather_from("paper"), stop, 0, beside)

    run = simulate(name, task, stop=Stop(seconds=500), engine={"executor": "inline"})
    each = sum(task.local.epochs * len(task.local.batch_sizes(size)) for size in task.sizes) / task.num_clients
    assert ahead(Stop(seconds=500)) == pytest.approx(len(run.updates) * each, rel=0.25)
    assert ahead(Stop(seconds=500), beside=3) == pytest.approx(3 * ahead(Stop(seconds=500)))
    assert ahead(Stop(updates=40, seconds=1e6)) == pytest.approx(40 * each)
    assert ahead(Stop(updates=10**9, accuracy=0.9)) == ahead(Stop(updates=10**9, wall_seconds=9.0)) == 0.0
