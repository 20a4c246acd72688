"""Batched training: the same as alone; models that cannot be batched are trained inline."""

import logging
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedfa
from fedfa.executors.registry import make_executor
from fedfa.learning.flat import Layout
from tests.helpers.ordinary_models import Apply, make_task, task_of
from tests.helpers.training import Warming, assert_same, fedavg_by_hand, order, own_task, run_fedavg


def test_batched_work_is_the_same_early_late_or_alone() -> None:
    task = own_task(lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 4)))
    together, alone = make_executor("batched", task, 0), make_executor("batched", task, 0)
    for client in range(4):
        together.submit(order(task, client))
    for client in range(4):
        alone.submit(order(task, client))
        np.testing.assert_allclose(together.result(client).params, alone.result(client).params, atol=1e-6)
    assert together.finished() == {}


class Branching(nn.Module):
    """Looks at its data in Python: cannot be traced."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        out = self.layer(x.flatten(1))
        return out if float(out.sum()) > 0 else 2 * out


@pytest.mark.parametrize(
    "model",
    [Branching, lambda: nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(16, 4))],
    ids=["branching", "dropout"],
)
def test_models_that_cannot_be_batched_are_trained_inline_with_one_warning(
    model: Any, caplog: pytest.LogCaptureFixture
) -> None:
    task = own_task(model)
    with caplog.at_level(logging.WARNING, "fedfa"):
        assert make_executor("batched", task, 0).name == "inline"
    lines = [record.getMessage() for record in caplog.records if record.name == "fedfa"]
    assert len(lines) == 1
    assert lines[0].startswith("This model cannot be batched (")
    run = [fedfa.simulate(fedfa.FedAvg(concurrency=2), task, stop=fedfa.Stop(updates=8)) for _ in range(2)]
    assert run[0].model.tobytes() == run[1].model.tobytes()  # dropout is seeded, too


class Reassigning(nn.Module):
    """Replaces a buffer instead of writing into it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 4)
        self.register_buffer("average", torch.zeros(16))

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        if self.training:
            self.average = 0.9 * self.average + 0.1 * x.mean(0).detach()
        return self.layer(x - self.average)


@pytest.mark.parametrize(
    "model",
    [
        Reassigning,
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.BatchNorm1d(8, momentum=None), nn.Linear(8, 4)),
    ],
    ids=["reassigned buffer", "counting buffer"],
)
def test_a_client_is_trained_alike_whoever_was_trained_before(model: Any) -> None:
    """What a client computes depends on its base and seed alone, whoever trained before."""
    task = own_task(model)
    for name in ("inline", "batched"):
        alone, after_others = make_executor(name, task, 0), make_executor(name, task, 0)
        alone.submit(order(task, 3))
        for nth, client in enumerate((0, 0)):
            after_others.submit(order(task, client, nth=nth))
            after_others.result(client + 10 * nth)
        after_others.submit(order(task, 3))
        np.testing.assert_allclose(after_others.result(3).params, alone.result(3).params, rtol=1e-5, atol=1e-6)
    inline = make_executor("inline", task, 0)
    inline.submit(order(task, 3))
    layout = Layout.of(task.build(0))
    buffers = inline.result(3).params[layout.num_trainable :]
    assert np.abs(buffers).sum() > 0  # they travel


def test_models_without_batching_rules_are_trained_inline_without_warnings_of_torch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.head = nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.lstm(x.squeeze(1))[0][:, -1])

    task = own_task(Recurrent)
    assert make_executor("auto", task, 0).name == "inline"
    assert "cannot be batched" in caplog.text


@pytest.mark.parametrize("name", ["shared module", "tied embedding", "tutorial CNN, view"])
def test_shared_tensors_and_views_can_be_batched(name: str) -> None:
    task = task_of(name)
    executor: Any = make_executor("batched", task, 0)
    assert executor.name == "batched"
    executor._bound.load(torch.from_numpy(task.initial(0).vector))
    after, fresh = executor._bound.module, task.build(0)
    assert torch.equal(after(task.inputs[:4]), fresh(task.inputs[:4]))  # tracing left the module as it was


def test_a_buffer_that_every_client_counts_for_itself_is_not_batched(logged: Any) -> None:
    task = make_task("vector", Warming)
    assert_same(task.state_dict(run_fedavg(task, "batched").model, 0), fedavg_by_hand(task), task.build(0).state_dict())
    assert logged() == [
        "This model cannot be batched (it changes steps, which every client would have to keep for itself); "
        "training clients one by one."
    ]


def test_models_whose_arithmetic_cannot_be_counted_are_trained_one_by_one(logged: Any) -> None:
    def forward(m: Any, x: Tensor) -> Tensor:
        if not torch.is_grad_enabled() and len(x) == 4:
            raise OSError("no gradients, no answer")
        return m.a(x)

    task = make_task("vector", lambda: Apply(forward, a=nn.Linear(12, 3)))
    assert make_executor("auto", task, 0).name == "inline"
    assert logged() == [
        "This model cannot be batched (its arithmetic cannot be counted: OSError: no gradients, no answer); "
        "training clients one by one."
    ]
