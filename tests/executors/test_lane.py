"""Lanes with clients of unequal size: few captures, and the same training as with exact sizes."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedfa
from fedfa.executors.capture import CannotCapture
from fedfa.executors.lane import CHUNK, Lane
from fedfa.executors.lanes import Lanes
from fedfa.executors.trainer import Trainer
from fedfa.learning.device import CPU, Device, as_array
from tests.helpers.losses import MEANS, NO_MEANS
from tests.helpers.ordinary_models import make_task, perceptron
from tests.helpers.training import order, own_task

UNEQUAL = range(2, 33)
"""Sizes of 31 clients, each with a batch of a size of its own."""
SMALL = (3, 8, 11, 13, 6)


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[int, int]]:
    """How often lanes have captured so many steps on batches of some size."""
    found: Counter[tuple[int, int]] = Counter()
    capture = Lane._captured

    def counting(self: Lane, size: int, steps: int, prox_mu: float) -> Callable[[], None]:
        found[size, steps] += 1
        return capture(self, size, steps, prox_mu)

    monkeypatch.setattr(Lane, "_captured", counting)
    return found


def test_runs_share_their_lanes() -> None:
    """Though both number their dispatches from 0; and one that ends gives back only its own lanes."""
    task = own_task(lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 4)))
    one, other = Lanes.prepared(task, 0, CPU), Lanes.prepared(task, 0, CPU)
    for lanes in (one, other):
        for client in range(3):
            lanes.submit(order(task, client))
    assert len(one.pool.busy) == 6
    one.close()
    assert (len(one.pool.busy), len(one.pool.free)) == (3, 3)
    theirs = Trainer(task, 0, capture=False)
    for client in range(3):
        ours = as_array(other.result(client).params)
        np.testing.assert_allclose(ours, theirs.train(order(task, client)).params, atol=1e-5)
    assert (len(one.pool.busy), len(one.pool.free)) == (0, 6)


def trained(lanes: Lanes, task: fedfa.Task, mu: float = 0.0, in_flight: int = 2) -> list[Any]:
    """All clients, so many at a time."""
    results, clients = [], range(task.num_clients)
    for first in clients[::in_flight]:
        part = clients[first : first + in_flight]
        for client in part:
            lanes.submit(order(task, client, mu))
        results += [lanes.result(client) for client in part]
    return results


def assert_as_exact(task: fedfa.Task, mu: float = 0.0, device: Device = CPU, tolerance: float = 1e-4) -> Lanes:
    """Every client's training is that of plain steps on batches as they are."""
    lanes, exact = Lanes(task, 0, device), Trainer(task, 0, device, capture=False)
    for client, ours in enumerate(trained(lanes, task, mu)):
        one = order(task, client, mu)
        theirs = exact.train(one)
        moved = np.linalg.norm(as_array(theirs.params) - one.base)
        assert np.linalg.norm(as_array(ours.params) - as_array(theirs.params)) <= tolerance * moved
        assert ours.loss == pytest.approx(theirs.loss, rel=tolerance)
        assert (ours.num_steps, ours.num_examples) == (theirs.num_steps, theirs.num_examples)
    return lanes


def test_a_lane_captures_one_size_whatever_the_sizes_of_the_clients(captures: Counter[tuple[int, int]]) -> None:
    task = make_task("vector", lambda: perceptron(nn.ReLU()), UNEQUAL, batch_size=32, epochs=5)
    trained(Lanes(task, 0, CPU), task, in_flight=3)
    assert captures == {(32, CHUNK): 3, (32, 1): 3}


def test_batches_of_a_model_with_batchnorm_keep_their_sizes(captures: Counter[tuple[int, int]], logged: Any) -> None:
    model = lambda: perceptron(nn.BatchNorm1d(8), nn.ReLU())  # noqa: E731
    task = make_task("vector", model, UNEQUAL, batch_size=32, epochs=1)
    lanes = assert_as_exact(task)
    assert not lanes.shared.fills_up
    assert captures == {(size, 1): 1 for size in UNEQUAL}
    assert logged() == [
        "Batches of this model keep their sizes (it has statistics of whole batches, such as BatchNorm's): "
        "lanes capture a step for each."
    ]


def test_clients_of_equal_size_have_nothing_to_fill_up(captures: Counter[tuple[int, int]], logged: Any) -> None:
    task = make_task("vector", lambda: perceptron(nn.BatchNorm1d(8)), [8] * 5, batch_size=8, epochs=1)
    assert not assert_as_exact(task).shared.fills_up
    assert captures == {(8, 1): 2}
    assert logged() == []


@pytest.mark.parametrize("mu", [0.0, 0.1])
@pytest.mark.parametrize("loss", MEANS)
@pytest.mark.parametrize(
    "local",
    [{}, {"momentum": 0.9}, {"weight_decay": 0.1}, {"optimizer": "adamw", "weight_decay": 0.1}],
    ids=str,
)
def test_filling_up_changes_no_result_beyond_rounding(local: dict[str, Any], loss: str, mu: float) -> None:
    task = make_task("vector", lambda: perceptron(nn.Tanh()), SMALL, batch_size=8, **local)
    task.loss = MEANS[loss]
    assert assert_as_exact(task, mu).shared.fills_up


def test_images_and_bf16_are_filled_up_too() -> None:
    model = lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))  # noqa: E731
    task = make_task("image", model, SMALL, batch_size=8)
    assert assert_as_exact(task).shared.fills_up
    assert assert_as_exact(task, device=Device("cpu", "bf16"), tolerance=0.05).shared.fills_up


@pytest.mark.parametrize("loss", NO_MEANS)
def test_a_loss_that_is_no_mean_over_examples_keeps_the_sizes(loss: str) -> None:
    """Even if every client has one class alone."""
    task = make_task("vector", lambda: perceptron(nn.Tanh()), SMALL, batch_size=8)
    task.targets = torch.arange(len(SMALL)).repeat_interleave(torch.tensor(SMALL)) % 3
    task.loss = NO_MEANS[loss]
    assert not assert_as_exact(task).shared.fills_up


@pytest.mark.parametrize("part", [nn.Dropout(0.5), nn.RReLU()], ids=str)
def test_a_model_that_draws_random_numbers_keeps_the_sizes(part: nn.Module) -> None:
    """What it draws depends on the shape."""
    task = make_task("vector", lambda: perceptron(part), SMALL, batch_size=8)
    assert not Lanes(task, 0, CPU).shared.fills_up


def test_a_step_that_can_be_captured_only_as_it_is_keeps_the_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(function: Callable[..., Any], **_: Any) -> Callable[..., Any]:
        def run(names: Any, tensors: Any, inputs: Any, targets: Any, *weights: Any) -> Any:
            if weights:
                raise CannotCapture("weights")
            return function(names, tensors, inputs, targets)

        return run

    monkeypatch.setattr(torch, "compile", compiled)
    task = make_task("vector", lambda: perceptron(nn.Tanh()), SMALL, batch_size=8)
    lanes = Lanes(task, 0, CPU, compile=True)
    assert not lanes.shared.fills_up
    assert len(trained(lanes, task)) == len(SMALL)
