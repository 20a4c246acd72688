"""Quadratics, on which every constant of the convergence bound is known."""

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn

import fedfa
from fedfa.executors.base import Trained, WorkOrder
from fedfa.learning.base import Initial, Score
from fedfa.learning.device import CPU, Device

CLIENTS, DIMENSION, STEPS, NOISE = 20, 6, 4, 0.1
CURVATURE = np.linspace(0.2, 1.0, DIMENSION)  # L = 1
CENTRES = np.random.default_rng(0).normal(size=(CLIENTS, DIMENSION))
START = np.full(DIMENSION, 3.0, np.float32)
EXAMPLES, BATCH, SPREAD = 64, 16, 0.3
POINTS = np.random.default_rng(1).normal(size=(CLIENTS, EXAMPLES, DIMENSION)) * SPREAD
POINTS += CENTRES[:, None] - POINTS.mean(1, keepdims=True)


def squared(vector: np.ndarray) -> float:
    return float(vector @ vector)


class Quadratics:
    """F_k(w) = (w - c_k)' diag(a_k) (w - c_k) / 2, with noisy gradients.

    It keeps the models it is asked to evaluate, and the largest squared gradient that a client met while it trained.
    """

    name = "quadratics"

    def __init__(
        self, centres: Any, start: Any, lr: float, curvatures: Any = 1.0, steps: int = 1, noise: float = 0.0
    ) -> None:
        self.centres = np.atleast_2d(np.asarray(centres, np.float64))
        self.curvatures = np.broadcast_to(np.asarray(curvatures, np.float64), self.centres.shape)
        self.start = np.asarray(start, np.float32)
        self.lr, self.steps, self.noise = lr, steps, noise
        self.num_clients = len(self.centres)
        self.local = fedfa.LocalTraining(epochs=1, lr=lr)
        self.path: list[np.ndarray] = []
        self.largest_local_gradient = 0.0

    def value(self, model: np.ndarray) -> float:
        return float(np.mean(np.sum(self.curvatures * (model - self.centres) ** 2, 1) / 2))

    def gradients(self, models: np.ndarray) -> np.ndarray:
        """Of every client, at one model or at a model each."""
        return self.curvatures * (models - self.centres)

    def squared_gradients(self) -> list[float]:
        """|grad f|^2 along the run."""
        return [squared(self.gradients(model).mean(0)) for model in self.path]

    def gradient_bound(self) -> float:
        """G: the largest |grad F_k|^2 along the run."""
        return max(float(np.max(np.sum(self.gradients(model) ** 2, 1))) for model in self.path)

    def initial(self, seed: int) -> Initial:
        return Initial(self.start, len(self.start))

    def digest(self, seed: int) -> str:
        return "nothing to change"

    def label_counts(self) -> pl.DataFrame:
        return pl.DataFrame(schema={"client": pl.Int64, "label": pl.String, "examples": pl.Int64})

    def evaluator(self, seed: int, device: Device = CPU) -> Callable[..., Score]:
        def evaluate(model: np.ndarray, meanwhile: Callable[[], None]) -> Score:
            self.path.append(model.astype(np.float64))
            return Score(0.0, self.value(self.path[-1]))

        return evaluate

    def train(self, order: WorkOrder) -> Trained:
        generator = np.random.default_rng([order.client, order.nth])
        curvature, centre = self.curvatures[order.client], self.centres[order.client]
        w = order.base.astype(np.float64)
        for _ in range(self.steps):
            gradient = curvature * (w - centre)
            self.largest_local_gradient = max(self.largest_local_gradient, squared(gradient))
            w = w - self.lr * (gradient + generator.normal(size=w.size) * self.noise / w.size**0.5)
        return Trained(w.astype(np.float32), 1, self.steps, 0.0)


class OneByOne:
    """Trains a client when its result is asked for."""

    name = "quadratics"
    device = CPU

    def __init__(self, task: Quadratics) -> None:
        self.task, self.orders = task, {}

    def submit(self, order: WorkOrder) -> None:
        self.orders[order.dispatch] = order

    def ready(self, dispatch: int) -> bool:
        return True

    def result(self, dispatch: int) -> Trained:
        return self.task.train(self.orders.pop(dispatch))

    def discard(self, dispatch: int) -> None:
        self.orders.pop(dispatch, None)

    def advance(self) -> None:
        pass

    def meanwhile(self) -> None:
        pass


def run_of(strategy: fedfa.Strategy, task: Quadratics, updates: int, weather: Any = "constant") -> fedfa.Run:
    """A run with an evaluation at every update."""
    return fedfa.simulate(
        strategy, task, weather, stop=fedfa.Stop(updates=updates), executor=OneByOne(task), engine={"evaluate_every": 1}
    )


def six_dimensions(lr: float) -> Quadratics:
    """Twenty clients whose curvatures are alike and whose centres differ."""
    return Quadratics(CENTRES, START, lr, CURVATURE, STEPS, NOISE)


class Bowl(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.from_numpy(START.copy()))

    def forward(self, inputs: Tensor) -> Tensor:
        return (self.w - inputs) * torch.from_numpy(CURVATURE**0.5).float()


def half_square(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs**2).sum(1).mean() / 2


def bowl(seed: int) -> fedfa.Task:
    """``six_dimensions`` as a task like any other: clients hold points around their centres."""
    data = [(torch.from_numpy(points).float(), torch.zeros(EXAMPLES)) for points in POINTS]
    local = fedfa.LocalTraining(epochs=1, batch_size=BATCH, lr=0.1)
    return fedfa.Task(model=Bowl, clients=data, test=data[0], loss=half_square, metric=half_square, local=local)
