"""The common job, against the usual hand-written loop.

Digits, 80/20 split, 50 clients of 9 to 65 examples, Dirichlet alpha 0.5, MLP 64-64-10, SGD lr 0.1, batch 32, 5 local
epochs, 10 in flight, FedBuff K = 5, fixed long-tailed durations, evaluation every 10 updates, 500 updates, one core.
Ours also writes its records. Start-up (imports, data, tracing) is outside of the clock; the details show the cost of
tracing in a first run.
"""

import copy
import heapq
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import fedfa
from fedfa.bench.base import Options, Row, Tell, middle, one_core, rate, take_turns
from fedfa.learning.data_task import named_task

UPDATES, IN_FLIGHT, BUFFER, EPOCHS, BATCH, LR, EVERY = 500, 10, 5, 5, 32, 0.1, 10
EXECUTORS, LOOP = ("auto", "inline", "batched"), "loop by hand"


def by_hand(clients: list[tuple[torch.Tensor, torch.Tensor]], test: tuple[torch.Tensor, torch.Tensor]) -> float:
    """A simple asynchronous FedBuff simulation, written by hand; returns the final accuracy."""
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


def measure(options: Options, tell: Tell) -> list[Row]:
    task = named_task("digits", 0)
    starts = np.cumsum([0, *task.sizes])
    clients = [(task.inputs[a:b], task.targets[a:b]) for a, b in pairwise(starts)]
    test = task.test_inputs, task.test_targets
    tasks, taken = {name: named_task("digits", 0) for name in EXECUTORS}, dict[str, str]()

    def ours(name: str) -> float:
        strategy = fedfa.FedBuff(concurrency=IN_FLIGHT, buffer=BUFFER, refill="batch", staleness="constant")
        with TemporaryDirectory() as folder:
            run = fedfa.simulate(
                strategy, tasks[name], stop=fedfa.Stop(updates=UPDATES), out=Path(folder) / "run",
                engine={"executor": name, "evaluate_every": EVERY},
            )  # fmt: skip
        taken[name] = run.manifest["executor"]
        return run.final_accuracy

    def learning(name: str, way: Callable[[], float]) -> None:
        accuracy = way()
        if accuracy < 0.8:
            raise fedfa.EngineError(f"{name}: learned nothing (accuracy {accuracy:.2f}); its speed means nothing")

    ways: dict[str, Callable[[], float]] = {
        LOOP: lambda: by_hand(clients, test),
        **{name: partial(ours, name) for name in EXECUTORS},
    }
    with one_core():
        rates = take_turns(
            {name: partial(rate, UPDATES, partial(learning, name, way)) for name, way in ways.items()},
            options.turns(5),
            tell,
        )
    slow = middle(rates[LOOP])
    return [
        Row(
            name if name == taken[name] else f"{name}, takes {taken[name]}", "updates/s", middle(rates[name]), slow,
            LOOP, f"first run {rates[name][0]:,.0f}", {"rates": {way: rates[way] for way in (LOOP, name)}},
        )
        for name in EXECUTORS
    ]  # fmt: skip
