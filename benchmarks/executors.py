"""Inline against batched for models of growing size: where batching pays, and where it does not.

Simulates FedFa-Param (10 in flight) and FedAvg (20 and 50 in flight) with each executor in turn, on random data,
one torch thread. Start-up and tracing are outside of the clock. Prints updates per second and the ratio per row.
"""

import argparse
import json
import time
from collections.abc import Callable

import torch
from torch import nn

import fedfa
from fedfa.executors import OVERHEAD_BOUND_FLOPS, make_executor
from fedfa.executors.batched import flops_per_step
from fedfa.models import cnn, mlp


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(
        f"{'model':22s} {'MFLOP/step':>10s} {'in flight':>16s} {'inline/s':>9s} {'batched/s':>9s} {'ratio':>6s}  auto"
    )
    rows = []
    for name, (model, updates) in MODELS.items():
        task = task_of(model)
        flops = flops_per_step(task, 0)
        auto = "batched" if flops <= OVERHEAD_BOUND_FLOPS else "inline"
        executors = {kind: make_executor(kind, task, 0) for kind in ("inline", "batched")}
        for strategy in (
            fedfa.FedFaParam(concurrency=10), fedfa.FedAvg(concurrency=20), fedfa.FedAvg(concurrency=50),
        ):  # fmt: skip
            best = dict.fromkeys(executors, 0.0)
            for repeat in range(options.repeats + 1):
                for kind, executor in executors.items():
                    start = time.perf_counter()
                    fedfa.simulate(
                        strategy, task, stop=fedfa.Stop(updates=updates), evaluate_every=1000, executor=executor
                    )
                    rate = updates / (time.perf_counter() - start)
                    best[kind] = max(best[kind], rate if repeat else 0.0)
            ratio = best["batched"] / best["inline"]
            flight = f"{strategy.name} {strategy.concurrency}"
            rows.append({"model": name, "in_flight": flight, "flops": flops} | best)
            print(
                f"{name:22s} {flops / 1e6:>10.1f} {flight:>16s} {best['inline']:>9,.0f} {best['batched']:>9,.0f} "
                f"{ratio:>6.2f}  {auto}"
            )
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
