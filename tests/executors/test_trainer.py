"""Clients one at a time: a captured step makes the same bits as a plain one, or is not used."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import fedfa
from fedfa.executors import trainer
from fedfa.executors.trainer import Trainer
from fedfa.learning.device import Device
from tests.helpers.ordinary_models import MODELS, Answer, Apply, make_task, perceptron, task_of
from tests.helpers.training import WithNorm, order, own_task

LOOKS = {"branches", "BatchNorm1d, cumulative", "GPT-2"}
"""Models that read values in Python."""
OTHER_KERNELS = {"bidirectional LSTM"}
"""Models for which torch takes other kernels where no gradient is asked for."""


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "CAPTURING_SECONDS", 0.0)
    monkeypatch.setattr(trainer, "LONG_STEP_SECONDS", 10.0)


def captured_sizes(one: Trainer, mu: float = 0.0) -> set[int]:
    captured = one._captured[mu]
    return set() if captured is None else {size for size, same in captured.same.items() if same}


def assert_same_bits(task: fedfa.Task, mu: float = 0.0, device: Device = Device()) -> Trainer:  # noqa: B008
    """Every client twice, with capturing and without."""
    ours, plain = Trainer(task, 0, device), Trainer(task, 0, device, capture=False)
    for nth in range(2):
        for client in range(task.num_clients):
            one, other = (each.train(order(task, client, mu, nth)) for each in (ours, plain))
            assert one.params is not None
            assert one.params.tobytes() == other.params.tobytes()
            assert (one.loss, one.num_steps, one.num_examples) == (other.loss, other.num_steps, other.num_examples)
    return ours


@pytest.mark.parametrize("name", [*MODELS, *Answer.models])
def test_ordinary_models_are_captured_with_the_same_bits(name: str) -> None:
    if name in Answer.models:
        pytest.importorskip("transformers", reason="transformers is not installed")
    task = task_of(name)
    ours = assert_same_bits(task)
    expected = set() if name in LOOKS | OTHER_KERNELS else {2, 3, 4}  # all sizes of a batch
    assert captured_sizes(ours) == expected


@pytest.mark.parametrize("mu", [0.0, 0.1])
@pytest.mark.parametrize(
    "local",
    [{}, {"momentum": 0.9}, {"weight_decay": 0.1}, {"optimizer": "adamw", "lr": 0.01, "weight_decay": 0.1}],
    ids=str,
)
def test_every_optimizer_is_captured_with_the_same_bits(mu: float, local: dict[str, Any]) -> None:
    assert captured_sizes(assert_same_bits(own_task(WithNorm, **local), mu), mu) == {1, 2, 4}


def test_bf16_is_captured_with_the_same_bits() -> None:
    assert captured_sizes(assert_same_bits(own_task(WithNorm), device=Device("cpu", "bf16"))) == {1, 2, 4}


@settings(max_examples=15, deadline=None)
@given(sizes=st.lists(st.integers(1, 20), min_size=1, max_size=5), batch=st.integers(1, 8), epochs=st.integers(1, 3))
def test_clients_of_any_size_have_the_same_bits(sizes: list[int], batch: int, epochs: int) -> None:
    task = make_task("vector", lambda: perceptron(nn.Tanh()), sizes, batch_size=batch, epochs=epochs)
    ours = assert_same_bits(task)
    if 0.0 in ours._captured:  # not before the first few steps
        assert captured_sizes(ours)


class Counting(nn.Module):
    """Does something else from its tenth step on, which it counts in Python."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.steps = nn.Linear(12, 3), 0

    def forward(self, x: Tensor) -> Tensor:
        self.steps += 1
        return self.layer(x) * (2 if self.steps > 10 else 1)


class Replacing(nn.Module):
    """Replaces a buffer instead of writing into it."""

    average: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(12, 3)
        self.register_buffer("average", torch.zeros(12))

    def forward(self, x: Tensor) -> Tensor:
        self.average = 0.9 * self.average + 0.1 * x.mean(0).detach()
        return self.layer(x - self.average)


def of_lengths(m: Any, x: Tensor) -> Tensor:
    lengths = (x[:, :, 0] > -9).sum(1)
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    return m.head(m.cells(packed)[1][-1])


UNSEEN: dict[str, tuple[str, Callable[[], nn.Module]]] = {
    "counts in Python": ("vector", Counting),
    "replaces a buffer": ("vector", Replacing),
    "Python's generator": (
        "vector",
        lambda: Apply(lambda m, x: m.a(x) * (1 + random.random()), a=nn.Linear(12, 3)),
    ),
    "NumPy's generator": (
        "vector",
        lambda: Apply(lambda m, x: m.a(x) * float(np.random.rand()), a=nn.Linear(12, 3)),  # noqa: NPY002
    ),
    "tolist": ("vector", lambda: Apply(lambda m, x: m.a(x) * (1 + (x[0, :1].tolist()[0] > 1)), a=nn.Linear(12, 3))),
    "numpy": ("vector", lambda: Apply(lambda m, x: m.a(x) * (1 + int(x.numpy().sum() > 1)), a=nn.Linear(12, 3))),
    "packed sequence": (
        "sequence",
        lambda: Apply(of_lengths, cells=nn.GRU(4, 5, batch_first=True), head=nn.Linear(5, 3)),
    ),
}


@pytest.mark.parametrize("name", UNSEEN)
def test_a_model_that_decides_in_python_is_not_captured(name: str) -> None:
    task = make_task(*UNSEEN[name])
    ours = Trainer(task, 0)
    for client in range(task.num_clients):
        ours.train(order(task, client))
    assert ours._captured == {0.0: None}


def test_a_replaced_buffer_does_not_carry_over_to_another_client() -> None:
    assert_same_bits(make_task("vector", Replacing))


def test_a_client_with_bad_data_fails_alone() -> None:
    task = make_task("vector", lambda: perceptron(nn.ReLU()), (8, 8, 8))
    task.targets[8:16] = 7  # of three classes
    ours, plain = Trainer(task, 0), Trainer(task, 0, capture=False)
    for nth, client in enumerate((0, 1, 2, 1, 0)):
        if client == 1:
            with pytest.raises(IndexError, match="7 is out of bounds"):
                ours.train(order(task, client, nth=nth))
            continue
        one, other = (each.train(order(task, client, nth=nth)) for each in (ours, plain))
        assert one.params is not None
        assert one.params.tobytes() == other.params.tobytes()


def test_runs_of_one_task_share_what_is_captured_unless_the_weights_changed() -> None:
    scale = [1.0]

    def model() -> nn.Module:
        frozen = nn.Linear(12, 12)
        frozen.requires_grad_(False)
        frozen.weight.mul_(scale[0])
        return nn.Sequential(frozen, nn.Linear(12, 3))

    task = make_task("vector", model)
    first = Trainer.of(task, 0)
    assert Trainer.of(task, 0) is first
    assert Trainer.of(task, 1) is not first
    scale[0] = 2.0
    assert Trainer.of(task, 0) is not first


def test_training_leaves_the_callers_generator_as_it_was() -> None:
    task = own_task(lambda: nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(16, 4)))
    ours, state = Trainer(task, 0), torch.get_rng_state()
    for client in range(task.num_clients):
        ours.train(order(task, client))
        assert torch.equal(torch.get_rng_state(), state)
    assert captured_sizes(ours) == {1, 2, 4}
