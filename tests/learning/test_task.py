"""Tasks of one's own, local training, flat models, capture and the choice of executor."""

import logging
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

import fedfa
from fedfa.executors.base import WorkOrder
from fedfa.executors.capture import CannotCapture, capture
from fedfa.executors.registry import make_executor
from fedfa.learning.flat import Layout
from fedfa.learning.local import shuffled
from fedfa.learning.models.small import cnn, mlp


class WithNorm(nn.Module):
    """Convolution and BatchNorm, and a frozen layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3, padding=1, bias=False)  # Adam would blow a bias's rounding up before a norm
        self.norm = nn.BatchNorm2d(3)
        self.frozen = nn.Linear(3 * 16, 8)
        for parameter in self.frozen.parameters():
            parameter.requires_grad_(False)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.frozen(F.relu(self.norm(self.conv(x))).flatten(1))))


def blobs(count: int, seed: int, shape: tuple[int, ...] = (1, 4, 4)) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(0, 4, (count,), generator=generator)
    noise = torch.randn(count, *shape, generator=generator)
    return noise + targets.reshape(-1, *[1] * len(shape)).float(), targets


def own_task(model: Any, sizes: tuple[int, ...] = (10, 17, 5, 10), **settings: Any) -> fedfa.Task:
    local = fedfa.LocalTraining(**({"epochs": 3, "batch_size": 4, "lr": 0.05} | settings))
    clients = [blobs(size, seed) for seed, size in enumerate(sizes)]
    return fedfa.Task(model=model, clients=clients, test=blobs(50, 99), local=local)


def order(task: fedfa.Task, client: int, mu: float = 0.0, nth: int = 0, epochs: int | None = None) -> WorkOrder:
    base = task.initial(0).vector
    return WorkOrder(client + 10 * nth, 0, client, nth, base, epochs or task.local.epochs, mu, 0.0)


def by_hand(task: fedfa.Task, client: int, mu: float = 0.0) -> np.ndarray:
    """The same training with torch.optim and a plain loop."""
    module = task.build(0)
    local = task.local
    trainable = [p for p in module.parameters() if p.requires_grad]
    start = [p.detach().clone() for p in trainable]
    optimizer: torch.optim.Optimizer
    if local.optimizer == "adamw":
        optimizer = torch.optim.AdamW(trainable, lr=local.lr, weight_decay=local.weight_decay)
    else:
        optimizer = torch.optim.SGD(trainable, lr=local.lr, momentum=local.momentum, weight_decay=local.weight_decay)
    for batch in task.batches(0, client, 0, local.epochs):
        optimizer.zero_grad()
        loss = task.loss(module(task.inputs[batch]), task.targets[batch])
        loss.backward()
        for parameter, origin in zip(trainable, start, strict=True):
            assert parameter.grad is not None
            parameter.grad += mu * (parameter.detach() - origin)
        optimizer.step()
    return Layout.of(module).pack(module).numpy()


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
def test_local_training_is_what_a_plain_loop_does(executor: str, model: Any, local: dict[str, Any], mu: float) -> None:
    task = own_task(model, **local)
    runner = make_executor(executor, task, 0)
    assert runner.name == executor
    for client in range(4):
        runner.submit(order(task, client, mu))
    for client in (2, 0, 3, 1):
        trained = runner.result(client)
        assert not trained.error
        assert trained.num_examples == task.sizes[client]
        np.testing.assert_allclose(trained.params, by_hand(task, client, mu), rtol=1e-4, atol=2e-5)


def test_frozen_parameters_do_not_travel_and_buffers_do() -> None:
    layout = Layout.of(WithNorm())
    assert not any(name.startswith("frozen") for name in layout.names)
    assert layout.names[layout.num_parameter_tensors :] == ("norm.running_mean", "norm.running_var")
    assert layout.length == layout.num_trainable + 6
    task = own_task(WithNorm)
    run = fedfa.simulate(
        fedfa.FedFaDelta(concurrency=3, window=2), task, stop=fedfa.Stop(updates=40), engine={"executor": "batched"}
    )
    assert (run.model[-3:] > 0).all()  # the variances
    assert run.best_accuracy > 0.5


def test_batched_work_is_the_same_early_late_or_alone() -> None:
    task = own_task(lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 4)))
    together, alone = make_executor("batched", task, 0), make_executor("batched", task, 0)
    for client in range(4):
        together.submit(order(task, client))
    for client in range(4):
        alone.submit(order(task, client))
        np.testing.assert_allclose(together.result(client).params, alone.result(client).params, atol=1e-6)
    assert together.finished() == {}


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


class Pairs(Dataset[Any]):
    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        self.inputs, self.targets = inputs, targets

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> Any:
        return self.inputs[index], int(self.targets[index])


def test_map_style_datasets_are_as_good_as_tensors() -> None:
    data = [blobs(9, seed) for seed in range(3)]
    model = lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 4))  # noqa: E731
    tensors = fedfa.Task(model=model, clients=data, test=data[0])
    datasets = fedfa.Task(model=model, clients=[Pairs(*pair) for pair in data], test=Pairs(*data[0]))
    runs = [
        fedfa.simulate(fedfa.FedAvg(concurrency=2), task, stop=fedfa.Stop(updates=6)) for task in (tensors, datasets)
    ]
    assert runs[0].model.tobytes() == runs[1].model.tobytes()


def test_regression_with_a_loss_and_metric_of_ones_own() -> None:
    weights = torch.tensor([[1.0], [-2.0]])
    clients = [(x, x @ weights) for x in torch.randn(5, 20, 2, generator=torch.Generator().manual_seed(0))]
    task = fedfa.Task(
        model=lambda: nn.Linear(2, 1),
        clients=clients,
        test=clients[0],
        loss=F.mse_loss,
        metric=lambda outputs, targets: -(outputs - targets).abs().mean(),
        local=fedfa.LocalTraining(lr=0.05),
    )
    run = fedfa.simulate(fedfa.FedFaParam(concurrency=3, window=2), task, stop=fedfa.Stop(updates=60))
    assert run.final_accuracy > -0.05
    assert run.clients.is_empty()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"clients": []}, "clients: needs at least one client's data"),
        ({"clients": [torch.zeros(3)]}, "clients[0]: must be a pair of tensors"),
        ({"clients": [(torch.zeros(3, 16), torch.zeros(2))]}, "clients[0]: 3 inputs but 2 targets"),
        ({"clients": [(torch.zeros(0, 16), torch.zeros(0))]}, "clients[0]: is empty"),
        ({"test": (torch.zeros(0, 16), torch.zeros(0))}, "test: is empty"),
    ],
)
def test_wrong_data_is_named(settings: dict[str, Any], message: str) -> None:
    good = {"model": lambda: nn.Linear(16, 4), "clients": [blobs(4, 0)], "test": blobs(4, 1)}
    with pytest.raises(fedfa.ConfigError) as caught:
        fedfa.Task(**(good | settings))
    assert message in str(caught.value)


def test_wrong_models_are_named() -> None:
    for model, message in [
        (lambda: nn.ReLU(), "model: has no trainable parameter"),
        (lambda: nn.Linear(16, 4).half(), "weight is torch.float16"),
        (lambda: "a model", "must make an nn.Module, made a str"),
    ]:
        with pytest.raises(fedfa.ConfigError, match=message):
            own_task(model).initial(0)


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
def test_models_that_cannot_be_batched_fall_back_with_one_line(model: Any, caplog: pytest.LogCaptureFixture) -> None:
    task = own_task(model)
    with caplog.at_level(logging.WARNING, "fedfa"):
        assert make_executor("batched", task, 0).name == "inline"
    lines = [record.getMessage() for record in caplog.records if record.name == "fedfa"]
    assert len(lines) == 1
    assert lines[0].startswith("This model cannot be batched (")
    run = [fedfa.simulate(fedfa.FedAvg(concurrency=2), task, stop=fedfa.Stop(updates=8)) for _ in range(2)]
    assert run[0].model.tobytes() == run[1].model.tobytes()  # dropout is seeded, too


def test_training_leaves_the_callers_random_state_alone() -> None:
    task = own_task(lambda: nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(16, 4)))
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    fedfa.simulate(fedfa.FedAvg(concurrency=2), task, stop=fedfa.Stop(updates=4))
    assert torch.equal(torch.rand(3), expected)


def test_auto_batches_small_models_and_not_large_ones() -> None:
    small = own_task(lambda: nn.Sequential(nn.Flatten(), mlp(inputs=16, classes=4)))
    assert make_executor("auto", small, 0).name == "batched"
    large = own_task(
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 3000), nn.Linear(3000, 3000), nn.Linear(3000, 4))
    )
    assert make_executor("auto", large, 0).name == "inline"


def test_capture_is_the_same_function() -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        z = (x @ y).clamp(min=0).sum(0, keepdim=True)
        return z / z.norm(), torch.full_like(x, 2.0) + torch.arange(3)

    x, y = torch.randn(3, 3), torch.randn(3, 3)
    captured = capture(function, x, y)
    for _ in range(3):
        a, b = torch.randn(3, 3), torch.randn(3, 3)
        for mine, theirs in zip(captured(a, b), function(a, b), strict=True):
            torch.testing.assert_close(mine, theirs)
    with pytest.raises(CannotCapture):
        capture(lambda x: x if float(x.sum()) > 0 else -x, x)


def test_the_embedded_cnn_trains() -> None:
    from fedfa.learning.data.settings import DataSettings
    from fedfa.learning.data_task import data_task
    from fedfa.learning.models.settings import ModelSettings

    task = data_task(DataSettings(clients=10), ModelSettings(name="cnn", hidden=16), fedfa.LocalTraining(), seed=1)
    assert cnn()(torch.zeros(2, 1, 8, 8)).shape == (2, 10)
    run = fedfa.simulate(fedfa.FedFaParam(concurrency=4, window=2), task, stop=fedfa.Stop(updates=60))
    assert run.best_accuracy > 0.5


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
def test_nothing_leaks_from_one_client_to_the_next(model: Any) -> None:
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


def test_models_without_batching_rules_are_trained_inline_without_foreign_warnings(
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


def test_the_digest_follows_data_split_and_weights() -> None:
    plain = lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 4))  # noqa: E731
    same = [own_task(plain).digest(0) for _ in range(2)]
    assert same[0] == same[1]
    others = {own_task(plain).digest(1), own_task(plain, sizes=(10, 17, 6, 9)).digest(0)}
    assert len(others | {same[0]}) == 3
