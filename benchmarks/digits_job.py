"""The common job, against the loop everyone writes by hand.

Digits, 80/20 split, 50 clients, Dirichlet alpha 0.5, MLP 64-64-10, SGD lr 0.1, batch 32, 5 local epochs, 10 in
flight, FedBuff K = 5, fixed long-tailed durations, evaluation every 10 updates, 500 updates, one torch thread.
Ours writes its records, too. The two run in turn; start-up (imports, data, tracing) is outside of the clock, and
what tracing costs a first run is shown beside. Prints the ratio last.
"""

import argparse
import copy
import heapq
import json
import statistics
import time
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import fedfa
from fedfa.executors import make_executor
from fedfa.experiment import named_task

UPDATES, IN_FLIGHT, BUFFER, EPOCHS, BATCH, LR, EVERY = 500, 10, 5, 5, 32, 0.1, 10


def by_hand(clients: list[tuple[torch.Tensor, torch.Tensor]], test: tuple[torch.Tensor, torch.Tensor]) -> float:
    """An asynchronous FedBuff simulation as one writes it in an afternoon; returns the final accuracy."""
    rng = np.random.default_rng(0)
    durations = 3 + rng.exponential(5, len(clients))
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    idle = list(range(len(clients)))
    heap, number, buffer, accuracy = [], 0, [], 0.0

    def dispatch(now: float) -> None:
        nonlocal number
        client = idle.pop(int(rng.integers(len(idle))))
        heapq.heappush(heap, (now + durations[client], number, client, copy.deepcopy(model)))
        number += 1

    for _ in range(IN_FLIGHT):
        dispatch(0.0)
    for update in range(1, UPDATES + 1):
        now, _, client, local = heapq.heappop(heap)
        start = [p.detach().clone() for p in local.parameters()]
        optimizer = torch.optim.SGD(local.parameters(), lr=LR)
        inputs, targets = clients[client]
        for _ in range(EPOCHS):
            for batch in torch.randperm(len(targets)).split(BATCH):
                optimizer.zero_grad()
                F.cross_entropy(local(inputs[batch]), targets[batch]).backward()
                optimizer.step()
        buffer.append([p.detach() - s for p, s in zip(local.parameters(), start, strict=True)])
        idle.append(client)
        if len(buffer) == BUFFER:
            with torch.no_grad():
                for parameter, *deltas in zip(model.parameters(), *buffer, strict=True):
                    parameter += torch.stack(deltas).mean(0)
            buffer.clear()
            for _ in range(BUFFER):
                dispatch(now)
        if update % EVERY == 0:
            with torch.no_grad():
                accuracy = float((model(test[0]).argmax(1) == test[1]).float().mean())
    return accuracy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    task = named_task("digits", 0)
    starts = np.cumsum([0, *task.sizes])
    clients = [(task.inputs[a:b], task.targets[a:b]) for a, b in pairwise(starts)]
    test = task.test_inputs, task.test_targets
    executors = {name: make_executor(name, task, 0) for name in ("inline", "batched")}

    def ours(name: str) -> float:
        strategy = fedfa.FedBuff(concurrency=IN_FLIGHT, buffer=BUFFER)
        with TemporaryDirectory() as folder:
            run = fedfa.simulate(
                strategy, task, stop=fedfa.Stop(updates=UPDATES), evaluate_every=EVERY, executor=executors[name],
                out=Path(folder) / "run",
            )  # fmt: skip
        return run.final_accuracy

    ways = {
        "by hand": lambda: by_hand(clients, test),
        "fedfa inline": lambda: ours("inline"),
        "fedfa batched (default)": lambda: ours("batched"),
    }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    first: dict[str, float] = {}
    for repeat in range(options.repeats + 1):
        for name, way in ways.items():
            start = time.perf_counter()
            accuracy = way()
            rate = UPDATES / (time.perf_counter() - start)
            assert accuracy > 0.8, (name, accuracy)
            if repeat == 0:
                first[name] = rate
            else:
                rates[name].append(rate)
    middle = {name: statistics.median(values) for name, values in rates.items()}
    for name in ways:
        print(f"{name:24s} {middle[name]:>7,.0f} updates/s   first run {first[name]:>7,.0f}")
    print(json.dumps({"updates_per_second": middle, "first_run": first}))
    print(f"ratio to the loop by hand: {middle['fedfa batched (default)'] / middle['by hand']:.2f}")


if __name__ == "__main__":
    main()
