"""``simulate``: what it takes, and what it refuses."""

from typing import Any

import pytest
import torch

import fedfa
from fedfa import Stop, Weather, simulate


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
