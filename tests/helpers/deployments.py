"""Deployments with a scripted transport instead of Flower."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import torch
from torch import nn

from fedfa import FedFaParam, Strategy, Task
from fedfa.deployment import journal
from fedfa.deployment.engine import Deployment
from fedfa.deployment.settings import DeploymentSettings
from fedfa.deployment.transport import Answer, Event, Failure, Nodes, TrainRequest
from fedfa.executors.base import Trained
from fedfa.runs.recorder import Outcome
from fedfa.runs.store import read_run
from fedfa.strategies.base import Flight, Update
from fedfa.strategies.registry import STRATEGIES


class Crash(BaseException):
    """As after kill -9: nothing is cleaned up."""


def make_task() -> Task:
    data = (torch.randn(8, 3, generator=torch.Generator().manual_seed(1)), torch.arange(8) % 2)
    return Task(model=lambda: nn.Linear(3, 2), clients=[data], test=data, name="tiny")


class Scripted:
    """Nodes 100, 101, ...; every order is answered by ``behave``, first in first out."""

    def __init__(self, nodes: int, behave: Callable[[TrainRequest, int], list[Event]]) -> None:
        self.events: SimpleQueue[Event] = SimpleQueue()
        self.behave = behave
        self.sent: list[tuple[int, TrainRequest]] = []
        self.events.put(Nodes(frozenset(range(100, 100 + nodes))))

    def send(self, node: int, order: TrainRequest) -> None:
        self.sent.append((node, order))
        for event in self.behave(order, node):
            self.events.put(event)


def good(order: TrainRequest, node: int = 0) -> list[Event]:
    step = np.float32(0.1) * np.sin(np.arange(len(order.base), dtype=np.float32) + order.dispatch)
    return [Answer(order.dispatch, Trained(order.base + step, 10 + order.dispatch % 3, 4.0, 0.5))]


def faulty(order: TrainRequest, node: int) -> list[Event]:
    """Every kind of wrong answer, in turn."""
    (answer,) = good(order)
    assert isinstance(answer, Answer)
    trained = answer.trained
    match order.dispatch % 7:
        case 1:
            return [Answer(order.dispatch, replace(trained, params=trained.params * np.float32(math.nan)))]
        case 2:
            return [Answer(order.dispatch, replace(trained, params=trained.params[:-1]))]
        case 3:
            return [Failure(order.dispatch, Outcome("failed", "the client app raised (ZeroDivisionError)"))]
        case 4:
            return [answer, answer]  # a repeat
        case 5:
            return [Answer(order.dispatch, replace(trained, params="nonsense"))]
        case 6:
            return [Answer(order.dispatch, replace(trained, num_examples=-1))]
    return [answer]


def deploy(folder: Path, transport: Scripted, resume: bool = False, **settings: object) -> Deployment:
    run = deployment(folder, transport, resume=resume, **settings)
    run.result = run.run()  # pyright: ignore[reportAttributeAccessIssue]
    return run


def deployment(
    folder: Path, transport: Scripted, *, strategy: Strategy | None = None, task: Task | None = None,
    progress: Callable[[Deployment], None] = lambda run: None, **settings: Any,
) -> Deployment:  # fmt: skip
    defaults = {"out": str(folder), "evaluate_every": 5}
    if not any(key.startswith("stop_") for key in settings):
        defaults["stop_updates"] = 12
    return Deployment(
        strategy=strategy or FedFaParam(concurrency=3, window=2), task=task or make_task(), transport=transport,
        settings=DeploymentSettings(**(defaults | settings)), progress=progress,
    )  # fmt: skip


def rows(folder: Path) -> list[dict]:
    return read_run(folder).updates.to_dicts()


def assert_journal_gives(folder: Path, model: np.ndarray) -> int:
    """The journal alone must lead a fresh strategy to this model, bit for bit. Returns the number of updates."""
    strategy, updates, in_flight, bases = None, 0, {}, {}
    for header, params in journal.read(folder / journal.FOLDER):
        kind, client = header["kind"], header.get("client")
        if kind == "begin":
            settings = dict(header["strategy"])
            strategy = STRATEGIES[settings.pop("name")](**settings)
            strategy.begin(params, header["num_trainable"])
            continue
        assert strategy is not None
        bases[strategy.version] = strategy.model
        if kind == "dispatch":
            in_flight[client] = Flight(header["dispatch"], header["base_version"])
        elif kind == "lost":
            strategy.lost(client, in_flight)
            del in_flight[client]
        elif kind == "update":
            which = (client, header["dispatch"], header["base_version"])
            base = bases[header["base_version"]]
            strategy.receive(Update(*which, params, base, header["num_examples"], header["num_steps"]), in_flight)
            del in_flight[client]
            updates += 1
    assert strategy is not None
    assert strategy.model.tobytes() == model.tobytes()
    return updates
