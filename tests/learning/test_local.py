"""Local training: the update rules against a plain loop, and the order of the batches."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedfa
from fedfa.executors.registry import make_executor
from fedfa.learning.local import shuffled
from tests.helpers.training import WithNorm, order, own_task, train_by_hand


@pytest.mark.parametrize("executor", ["inline", "batched"])
@pytest.mark.parametrize(
    "model", [lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 4)), WithNorm], ids=["linear", "norm"]
)
@pytest.mark.parametrize(
    ("local", "mu"),
    [
        ({}, 0.0),
        ({"momentum": 0.9}, 0.0),
        ({"weight_decay": 0.1}, 0.0),
        ({}, 0.5),
        ({"momentum": 0.5}, 0.2),
        ({"optimizer": "adamw", "weight_decay": 0.1}, 0.0),
    ],
    ids=str,
)
def test_local_training_equals_a_plain_loop(executor: str, model: Any, local: dict[str, Any], mu: float) -> None:
    task = own_task(model, **local)
    runner = make_executor(executor, task, 0)
    assert runner.name == ("inline" if model is WithNorm else executor)
    for client in range(4):
        runner.submit(order(task, client, mu))
    for client in (2, 0, 3, 1):
        trained = runner.result(client)
        assert not trained.error
        assert trained.num_examples == task.sizes[client]
        np.testing.assert_allclose(trained.params, train_by_hand(task, client, mu), rtol=1e-4, atol=2e-5)


def test_fewer_epochs_are_a_prefix_of_the_same_work() -> None:
    task = own_task(lambda: nn.Linear(16, 4))
    full, part = task.batches(0, 1, 0, 3), task.batches(0, 1, 0, 1)
    assert len(part) == 5
    assert all(torch.equal(a, b) for a, b in zip(full, part, strict=False))


def test_batches_visit_every_example_once_per_epoch_and_differ_by_dispatch() -> None:
    order = shuffled(0, 3, 0, 20, 4)
    assert (np.sort(order, axis=1) == np.arange(20)).all()
    assert len({tuple(row) for row in order}) == 4
    assert not (order == shuffled(0, 3, 1, 20, 4)).all()
    assert not (order == shuffled(0, 4, 0, 20, 4)).all()
    assert (order == shuffled(0, 3, 0, 20, 4)).all()


@pytest.mark.parametrize(
    ("local", "mu", "expected"),
    [
        ({}, 0.0, 3.0),
        ({"momentum": 0.5}, 0.0, 1 + 1.5 + 1.75),
        ({"lr": 0.1}, 2.0, ((1 * 0.8 + 1) * 0.8 + 1)),
        ({"optimizer": "adamw"}, 0.0, 3.0),
    ],
)
def test_effective_steps(local: dict[str, Any], mu: float, expected: float) -> None:
    assert fedfa.LocalTraining(**local).effective_steps(3, mu) == pytest.approx(expected)


def test_training_leaves_the_callers_random_state_alone() -> None:
    task = own_task(lambda: nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(16, 4)))
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    fedfa.simulate(fedfa.FedAvg(concurrency=2), task, stop=fedfa.Stop(updates=4))
    assert torch.equal(torch.rand(3), expected)
