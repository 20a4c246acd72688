"""Theorem 1 on a quadratic where every constant is known."""

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest

import fedfa
from fedfa import theory
from fedfa.executors.base import Trained, WorkOrder
from fedfa.task import Initial, Score

CLIENTS, DIMENSION, STEPS, NOISE = 20, 6, 4, 0.1
CURVATURE = np.linspace(0.2, 1.0, DIMENSION)  # L = 1
CENTRES = np.random.default_rng(0).normal(size=(CLIENTS, DIMENSION))


def gradient(w: np.ndarray, centre: np.ndarray) -> np.ndarray:
    return CURVATURE * (w - centre)


def value(w: np.ndarray) -> float:
    return float(np.mean([(CURVATURE * (w - centre) ** 2).sum() / 2 for centre in CENTRES]))


class Quadratic:
    """F_k(w) = (w - c_k)' diag(curvature) (w - c_k) / 2, with noisy gradients; it remembers what it saw."""

    name = "quadratic"
    num_clients = CLIENTS

    def __init__(self, lr: float) -> None:
        self.local = fedfa.LocalTraining(epochs=1, lr=lr)
        self.path: list[np.ndarray] = []
        self.largest_gradient = 0.0

    def initial(self, seed: int) -> Initial:
        return Initial(np.full(DIMENSION, 3.0, np.float32), DIMENSION)

    def digest(self, seed: int) -> str:
        return "nothing to change"

    def label_counts(self) -> pl.DataFrame:
        return pl.DataFrame(schema={"client": pl.Int64, "label": pl.String, "examples": pl.Int64})

    def evaluator(self, seed: int) -> Callable[[np.ndarray], Score]:
        def evaluate(w: np.ndarray) -> Score:
            self.path.append(w.astype(np.float64))
            return Score(0.0, value(w))

        return evaluate

    def train(self, order: WorkOrder) -> Trained:
        generator = np.random.default_rng([order.client, order.nth])
        w = order.base.astype(np.float64)
        for _ in range(STEPS):
            slope = gradient(w, CENTRES[order.client])
            self.largest_gradient = max(self.largest_gradient, float(slope @ slope))
            w = w - self.local.lr * (slope + generator.normal(size=DIMENSION) * NOISE / DIMENSION**0.5)
        return Trained(w.astype(np.float32), 1, STEPS, 0.0)


class OneByOne:
    name = "quadratic"

    def __init__(self, task: Quadratic) -> None:
        self.task, self.orders = task, {}

    def submit(self, order: WorkOrder) -> None:
        self.orders[order.dispatch] = order

    def result(self, dispatch: int) -> Trained:
        return self.task.train(self.orders.pop(dispatch))

    def discard(self, dispatch: int) -> None:
        self.orders.pop(dispatch, None)


def measured(strategy: Any, server_lr: float, lr: float) -> tuple[float, theory.Setting, float]:
    """Mean squared gradient norm over the run, the setting with its true constants, and the last squared norm."""
    task = Quadratic(lr)
    run = fedfa.simulate(strategy, task, stop=fedfa.Stop(updates=400), executor=OneByOne(task), evaluate_every=1)
    best = CENTRES.mean(0)
    norms = [float(np.sum(gradient(w, best) ** 2)) for w in task.path]
    across = max(float(np.sum((CURVATURE * (centre - best)) ** 2)) for centre in CENTRES)
    setting = theory.Setting(
        updates=run.manifest["version"],
        local_steps=STEPS,
        local_lr=lr,
        server_lr=server_lr,
        max_staleness=int(run.updates["staleness"].to_numpy().max()) + 1,
        smoothness=1.0,
        gradient_bound=task.largest_gradient,
        local_variance=NOISE**2,
        global_variance=across,
        gap=value(task.path[0]) - value(best),
    )
    return float(np.mean(norms[:-1])), setting, norms[-1]


@pytest.mark.parametrize("lr", [0.02, 0.05, 0.1, 0.2])
@pytest.mark.parametrize(
    ("strategy", "server_lr"),
    [(fedfa.FedFaParam(concurrency=10, window=5), 1.0), (fedfa.FedFaDelta(concurrency=10, window=5), 0.1)],
    ids=["param", "delta, 1/M_c"],
)
def test_the_bound_holds(strategy: Any, server_lr: float, lr: float) -> None:
    mean, setting, last = measured(strategy, server_lr, lr)
    assert theory.step_condition(setting) <= 1
    assert mean <= theory.theorem1(setting).total
    assert last < 1.0


def test_the_printed_step_diverges_although_the_step_condition_holds() -> None:
    """What breaks is the bound G on the gradients, and one generation's step, not eta_g eta_l Q <= 1/L."""
    mean, setting, last = measured(fedfa.FedFaDelta(concurrency=10, window=5, server_lr=1.0), 1.0, lr=0.1)
    assert theory.step_condition(setting) == pytest.approx(0.4)
    assert theory.generation_step(setting, 10) == pytest.approx(4.0)
    assert last > 1e6
    assert setting.gradient_bound > 1e6
    _, careful, settled = measured(fedfa.FedFaDelta(concurrency=10, window=5, server_lr=1.0), 1.0, lr=0.02)
    assert theory.generation_step(careful, 10) == pytest.approx(0.8)
    assert settled < 1.0
    assert mean > 1e6


def test_the_three_terms() -> None:
    setting = theory.Setting(
        updates=100, local_steps=5, local_lr=0.1, server_lr=0.5, max_staleness=4, smoothness=2.0, gradient_bound=3.0,
        local_variance=0.5, global_variance=1.5, gap=10.0,
    )  # fmt: skip
    bound = theory.theorem1(setting)
    assert bound.start == pytest.approx(2 * 10 / (0.5 * 0.5 * 100))
    assert bound.drift == pytest.approx(3 * 4 * 5 * 0.05 * (0.25 * 16 + 1) * 5.0)
    assert bound.noise == pytest.approx(2 / 2 * 0.5 * 0.05 / 0.5 * 0.5)
    assert bound.total == pytest.approx(bound.start + bound.drift + bound.noise)
    assert theory.step_condition(setting) == pytest.approx(0.5 * 0.1 * 5 * 2)
    assert theory.corollary_steps(updates=400, local_steps=4, window=5) == pytest.approx((1 / 200, 5.0))
    with pytest.raises(fedfa.ConfigError, match="max_staleness = 0: counts from 1 here"):
        theory.Setting(
            updates=1, local_steps=1, local_lr=0.1, server_lr=1.0, max_staleness=0, smoothness=1.0,
            gradient_bound=1.0, local_variance=0.0, global_variance=0.0, gap=1.0,
        )  # fmt: skip


if __name__ == "__main__":  # the table in docs/theory.md
    for name, server_lr in (("param", 1.0), ("delta", 0.1), ("delta", 1.0)):
        for lr in (0.02, 0.05, 0.1, 0.2):
            weight = {} if name == "param" else {"server_lr": server_lr}
            rule = fedfa.FedFaParam if name == "param" else fedfa.FedFaDelta
            mean, setting, last = measured(rule(concurrency=10, window=5, **weight), server_lr, lr)
            print(
                f"{name} {server_lr} eta_l {lr}: condition {theory.step_condition(setting):.2f}, "
                f"generation {theory.generation_step(setting, 10):.2f}, measured {mean:.3g}, "
                f"bound {theory.theorem1(setting).total:.4g}, last {last:.3g}"
            )
