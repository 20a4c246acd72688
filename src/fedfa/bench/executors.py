"""Inline against batched for models of growing size: where batching is faster, and where it is not.

Simulates FedFa-Param (10 in flight) and FedAvg (20 and 50 in flight) with each executor in turn, on random data,
one torch thread. Start-up and tracing are outside of the clock.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

import fedfa
from fedfa.bench.base import Options, Row, Tell, middle, one_thread, rate, take_turns
from fedfa.executors.batched import flops_per_step
from fedfa.executors.on_this_machine import OVERHEAD_BOUND_FLOPS
from fedfa.executors.registry import make_executor
from fedfa.learning.models.small import cnn, mlp


def wide_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 8)), nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 16, 10),
    )  # fmt: skip


MODELS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "mlp 64-64-10": (mlp, 400),
    "cnn 8-16": (lambda: nn.Sequential(nn.Unflatten(1, (1, 8)), cnn()), 200),
    "cnn 32-64": (wide_cnn, 100),
    "mlp 64-1024-1024-10": (
        lambda: nn.Sequential(
            nn.Flatten(), nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
        ),
        60,
    ),
}


def task_of(model: Callable[[], nn.Module]) -> fedfa.Task:
    generator = torch.Generator().manual_seed(0)
    clients = [
        (torch.rand(28, 8, 8, generator=generator), torch.randint(0, 10, (28,), generator=generator)) for _ in range(60)
    ]
    return fedfa.Task(model=model, clients=clients, test=clients[0], local=fedfa.LocalTraining(lr=0.01))


def measure(options: Options, tell: Tell) -> list[Row]:
    with one_thread():
        return [row for name in MODELS for row in rows_of(name, options, tell)]


def rows_of(name: str, options: Options, tell: Tell) -> list[Row]:
    model, updates = MODELS[name]
    task = task_of(model)
    flops = flops_per_step(task, 0)
    auto = "batched" if flops <= OVERHEAD_BOUND_FLOPS else "inline"
    executors = {kind: make_executor(kind, task, 0) for kind in ("inline", "batched")}
    strategies = [fedfa.FedFaParam(concurrency=10), fedfa.FedAvg(concurrency=20), fedfa.FedAvg(concurrency=50)]
    rows = []
    for strategy in strategies[:1] if options.quick else strategies:
        case = f"{name}, {strategy.name}, {strategy.concurrency} in flight"
        run = partial(fedfa.simulate, strategy, task, stop=fedfa.Stop(updates=updates), engine={"evaluate_every": 1000})
        rates = take_turns(
            {kind: partial(rate, updates, partial(run, executor=executor)) for kind, executor in executors.items()},
            options.turns(3),
            lambda text, case=case: tell(f"{case}, {text}"),
        )
        fast, slow = (middle(rates[kind]) for kind in ("batched", "inline"))
        rows.append(Row(case, "updates/s", fast, slow, "inline", f"auto takes {auto}", {"flops_per_step": flops}))
    return rows
