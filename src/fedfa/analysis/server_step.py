"""The real step of a strategy, measured independently of its formula.

Suppose that every client moves its model by one, wherever it starts. Then the global model moves steadily. During M_c
arrivals, where M_c is the number of clients in flight, FedAvg moves it by one. A rule that moves it by two takes twice
FedAvg's step, with half as much averaging; one that moves it by a half is slow. This step times the updates per second
is the learning speed as long as clients agree.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from fedfa.executors.base import KeepsNothing, Trained, WorkOrder
from fedfa.learning.base import Score
from fedfa.learning.device import CPU, Device
from fedfa.learning.no_task import NoTask
from fedfa.runs.stop import Stop
from fedfa.simulation.simulate import simulate
from fedfa.simulation.weather import Weather
from fedfa.strategies.base import Strategy


@dataclass(frozen=True, slots=True)
class ServerStep:
    step: float
    """How far the model moves during as many arrivals as clients are in flight; 1 for FedAvg."""
    updates_per_second: float

    @property
    def speed(self) -> float:
        return self.step * self.updates_per_second


def server_step(
    strategy: Strategy,
    weather: str | Weather | Mapping[str, Any] = "paper",
    *,
    clients: int = 100,
    updates: int = 1500,
    seed: int = 0,
) -> ServerStep:
    """Measured by a simulation without any learning, after its first third. Of a strategy of your own, too."""
    even = _Even(clients)
    run = simulate(strategy, even, weather, Stop(updates=updates), seed, engine={"evaluate_every": 1}, executor=even)
    seen = run.evaluations.filter(pl.col("updates") >= updates / 3)
    came, passed, moved = (float(seen[column][-1] - seen[column][0]) for column in ("updates", "seconds", "accuracy"))
    return ServerStep(strategy.concurrency * moved / came, came / passed)


class _Even(NoTask, KeepsNothing):
    """A task and its executor at once: training adds one to the model, and where the model is counts as accuracy."""

    name = "even"
    device = CPU

    def __init__(self, clients: int) -> None:
        super().__init__(clients, length=1)
        self._orders: dict[int, WorkOrder] = {}

    def evaluator(self, seed: int, device: Device = CPU) -> Any:
        return lambda vector, meanwhile: Score(float(vector[0]), 0.0)

    def submit(self, order: WorkOrder) -> None:
        self._orders[order.dispatch] = order

    def result(self, dispatch: int) -> Trained:
        return Trained(self._orders.pop(dispatch).base + np.float32(1), 1, 1.0, 0.0)

    def discard(self, dispatch: int) -> None:
        self._orders.pop(dispatch, None)
