"""Small tasks, orders to train on them, and the same training by hand."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fedfa
from fedfa.executors.base import WorkOrder
from fedfa.learning.flat import Layout
from fedfa.learning.local import own_seed

ROUNDS = 2


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


def train_by_hand(task: fedfa.Task, client: int, mu: float = 0.0) -> np.ndarray:
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


def run_fedavg(task: fedfa.Task, executor: str) -> fedfa.Run:
    stop = {"updates": ROUNDS * task.num_clients}
    return fedfa.simulate(
        fedfa.FedAvg(concurrency=task.num_clients),
        task,
        "constant",
        stop,
        engine={"executor": executor, "evaluate_every": 1000},
    )


def assert_same(ours: dict[str, Tensor], theirs: dict[str, Tensor], start: dict[str, Tensor]) -> None:
    """Name by name, to rounding: relative to how far each tensor went, and all of them."""
    assert ours.keys() == theirs.keys()
    floating = [name for name, value in start.items() if value.is_floating_point()]
    whole = sum(float((theirs[name] - start[name]).norm()) ** 2 for name in floating) ** 0.5
    assert whole > 1e-3
    for name, value in theirs.items():
        if name not in floating:
            assert torch.equal(ours[name], value), name
            continue
        moved, apart = float((value - start[name]).norm()), float((ours[name] - value).norm())
        rounding = 1e-3 * moved + 1e-5 * whole + 1e-6 * float(value.norm())
        assert apart <= rounding, f"{name}: {apart:.2g} apart after moving by {moved:.2g}"


def fedavg_by_hand(task: fedfa.Task, seed: int = 0) -> dict[str, Tensor]:
    """FedAvg in plain PyTorch. Integer buffers stay as they were at the start."""
    start: dict[str, Any] = {name: value.clone() for name, value in task.build(seed).state_dict().items()}
    total, model = sum(task.sizes), start
    for nth in range(ROUNDS):
        trained = [one_client(task, seed, model, client, nth) for client in range(task.num_clients)]
        model = {
            name: sum(state[name] * (size / total) for state, size in zip(trained, task.sizes, strict=True))
            if value.is_floating_point() else value
            for name, value in start.items()
        }  # fmt: skip
    return model


def one_client(task: fedfa.Task, seed: int, start: dict[str, Tensor], client: int, nth: int) -> dict[str, Tensor]:
    module = task.build(seed)
    module.load_state_dict(start)
    optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=task.local.lr)
    torch.manual_seed(own_seed(seed, client, nth))
    for batch in task.batches(seed, client, nth, task.local.epochs):
        optimizer.zero_grad()
        task.loss(module(task.inputs[batch]), task.targets[batch]).backward()
        optimizer.step()
    return module.state_dict()


class Warming(nn.Module):
    """Counts its steps in a buffer that does not travel, and reads it."""

    steps: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(12, 3)
        self.register_buffer("steps", torch.zeros(1, dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.steps += self.training
        return self.layer(x) / self.steps.clamp(min=1)
