"""Batched training: the same as alone, and the same bits beside anybody; other models are trained inline."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedfa.executors.batched import Batched
from fedfa.executors.registry import make_executor
from fedfa.executors.stack import CannotBatch, Stack, Stacks
from fedfa.executors.trainer import Trainer
from tests.helpers.ordinary_models import MODELS, Answer, Apply, make_task, perceptron, task_of
from tests.helpers.training import order, own_task

WHOLE = "it has statistics of whole batches, such as BatchNorm's"
UNTRACED = "its step cannot be traced: "
REFUSED = {
    "dropout": "it draws random numbers: dropout",
    "TransformerEncoder, dropout": "it draws random numbers: dropout",
    "branches": UNTRACED,
    "buffers written to": UNTRACED,
    "bidirectional LSTM": UNTRACED,
    "functional dropout": UNTRACED,
    "BatchNorm1d": WHOLE,
    "residual net": WHOLE,
    "InstanceNorm, statistics": WHOLE,
}
STACKED = {"shared module", "tied embedding", "parameter list, dict and scalar", "LayerNorm", "buffers read", "grouped"}


@pytest.mark.parametrize("name", sorted(STACKED))
def test_ordinary_models_can_be_batched(name: str) -> None:
    task = task_of(name)
    assert make_executor("batched", task, 0).name == "batched"
    after = Trainer.of(task, 0).bound
    after.load(torch.from_numpy(task.initial(0).vector))
    ours, theirs = (module(task.inputs[:4]) for module in (after.module, task.build(0)))
    assert torch.allclose(ours, theirs, atol=1e-6)  # tracing left it as it was


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_other_models_are_trained_inline_with_one_line(name: str, logged: Any) -> None:
    executor = make_executor("batched", task_of(name), 0)
    assert executor.name == "inline"
    lines = [line for line in logged() if "batched" in line]
    assert len(lines) == 1
    assert lines[0].startswith(f"This model cannot be batched ({REFUSED[name]}")
    assert lines[0].endswith("; training clients one by one.")


def contrastive(outputs: Tensor, targets: Tensor) -> Tensor:
    """A loss of the whole batch, which is not a mean over examples."""
    return F.cross_entropy(outputs - outputs.mean(0), targets)


def test_a_loss_of_the_whole_batch_cannot_be_batched() -> None:
    task = make_task("vector", lambda: perceptron(nn.ReLU()))
    task.loss = contrastive
    with pytest.raises(CannotBatch, match="a batched step differs from a plain one by "):
        Stack(task, 0, 0.0)


def test_a_loss_that_weighs_classes_cannot_be_batched_even_if_clients_have_one_class_each() -> None:
    task = make_task("vector", lambda: perceptron(nn.ReLU()), (20, 20, 20))
    task.targets = torch.arange(3).repeat_interleave(20)
    task.loss = lambda outputs, targets: F.cross_entropy(outputs, targets, torch.tensor([1.0, 1.0, 1.5]))
    with pytest.raises(CannotBatch, match="a batched step differs from a plain one by "):
        Stack(task, 0, 0.0)


def test_a_model_that_compares_examples_cannot_be_batched() -> None:
    task = make_task("vector", lambda: Apply(lambda m, x: m.a(x - x.mean(0)), a=nn.Linear(12, 3)))
    with pytest.raises(CannotBatch, match="a batched step differs from a plain one by "):
        Stack(task, 0, 0.0)


LOSSES = {
    "cross entropy": F.cross_entropy,
    "smoothed": lambda outputs, targets: F.cross_entropy(outputs, targets, label_smoothing=0.1),
    "squares": lambda outputs, targets: F.mse_loss(outputs, F.one_hot(targets, 3).float()),
    "margins": lambda outputs, targets: (1 - outputs * (2 * F.one_hot(targets, 3) - 1)).clamp(min=0).mean(),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_losses_that_are_means_over_examples_can_be_batched(loss: str) -> None:
    task = make_task("vector", lambda: perceptron(nn.ReLU()))
    task.loss = LOSSES[loss]
    Stack(task, 0, 0.0)


@pytest.mark.parametrize("model", [lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 4)), nn.Identity], ids=["a", "b"])
def test_a_client_has_the_same_bits_beside_anybody(model: Any) -> None:
    """Alone, beside others, early or late, in a stack of its own or shared with another run."""
    if model is nn.Identity:
        model = lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 9), nn.Tanh(), nn.Linear(9, 4))  # noqa: E731
    sizes = tuple(range(1, 41))
    task = own_task(model, sizes, batch_size=8)
    expected = {}
    for client in range(task.num_clients):
        alone = Batched(own_task(model, sizes, batch_size=8), 0)
        alone.submit(order(task, client))
        expected[client] = alone.result(client)
        if client == 12:
            break
    many, few = Batched(task, 0), Batched(task, 0)
    for client in reversed(range(task.num_clients)):
        (few if client % 3 == 0 else many).submit(order(task, client))
    for client, alone in expected.items():
        ours = (few if client % 3 == 0 else many).result(client)
        assert ours.params is not None
        assert ours.params.tobytes() == alone.params.tobytes()
        assert ours.loss == alone.loss


def test_discarded_work_is_not_done() -> None:
    task = own_task(lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 4)))
    executor = Batched(task, 0)
    for client in range(4):
        executor.submit(order(task, client))
    executor.discard(1)
    executor.submit(order(task, 1, epochs=1))
    assert executor.result(1).num_steps == 5
    executor.discard(2)
    executor.discard(2)
    executor.close()
    assert (executor._pending, executor.finished().keys() - {0, 3}) == ({}, set())
    stack, _ = Stacks.of(task).join(task, 0, 0.0)
    assert (stack._rows, stack._waiting) == ({}, [])


def test_a_client_with_bad_data_fails_alone() -> None:
    sizes = (90, 8, 8)
    task = make_task("vector", lambda: perceptron(nn.ReLU()), sizes)
    good = Batched(make_task("vector", lambda: perceptron(nn.ReLU()), sizes), 0)
    executor = Batched(task, 0)
    task.targets[90:98] = 7  # of three classes
    for one in (executor, good):
        for client in range(3):
            one.submit(order(task, client))
    failed = executor.result(1)
    assert failed.params is None
    assert failed.error == "IndexError: Target 7 is out of bounds."
    for client in (0, 2):
        assert executor.result(client).params.tobytes() == good.result(client).params.tobytes()


def test_names_are_known() -> None:
    assert STACKED | REFUSED.keys() <= MODELS.keys() | Answer.models.keys()
