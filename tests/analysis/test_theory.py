"""Theorem 1 on a quadratic where every constant is known, and how well the constants are measured there."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from torch import Tensor, nn

import fedfa
from fedfa.analysis import theory
from fedfa.analysis.estimates import Estimate, assumptions, estimate, spaced, step_of
from fedfa.analysis.gradients import Slopes, measure
from fedfa.analysis.server_step import server_step
from fedfa.executors.base import Trained, WorkOrder
from fedfa.executors.inline import Inline
from fedfa.experiments.config import from_table
from fedfa.learning.base import Initial, Score
from fedfa.learning.device import CPU, Device
from fedfa.report.bound import at_most, words
from fedfa.runs.store import find_run

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

    def evaluator(self, seed: int, device: Device = CPU) -> Callable[..., Score]:
        def evaluate(w: np.ndarray, meanwhile: Callable[[], None]) -> Score:
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
    device = CPU

    def __init__(self, task: Quadratic) -> None:
        self.task, self.orders = task, {}

    def submit(self, order: WorkOrder) -> None:
        self.orders[order.dispatch] = order

    def result(self, dispatch: int) -> Trained:
        return self.task.train(self.orders.pop(dispatch))

    def discard(self, dispatch: int) -> None:
        self.orders.pop(dispatch, None)

    def meanwhile(self) -> None:
        pass


def measured(strategy: Any, server_lr: float, lr: float) -> tuple[float, theory.Setting, float]:
    """Mean squared gradient norm over the run, the setting with its true constants, and the last squared norm."""
    task = Quadratic(lr)
    run = fedfa.simulate(
        strategy, task, stop=fedfa.Stop(updates=400), executor=OneByOne(task), engine={"evaluate_every": 1}
    )
    best = CENTRES.mean(0)
    norms = [float(np.sum(gradient(w, best) ** 2)) for w in task.path]
    across = max(float(np.sum((CURVATURE * (centre - best)) ** 2)) for centre in CENTRES)
    setting = theory.Setting(
        updates=run.manifest["version"],
        local_steps=STEPS,
        local_lr=lr,
        server_lr=server_lr,
        max_staleness=theory.oldest(int(run.updates["staleness"].to_numpy().max()), strategy.window),
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
    [
        (fedfa.FedFaParam(concurrency=10, window=5), 1.0),
        (fedfa.FedFaDelta(concurrency=10, window=5), 0.1),
    ],
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


def test_what_the_constants_allow() -> None:
    setting = theory.Setting(
        updates=100, local_steps=5, local_lr=0.1, server_lr=0.5, max_staleness=4, smoothness=2.0, gradient_bound=3.0,
        local_variance=0.5, global_variance=1.5, gap=10.0,
    )  # fmt: skip
    assert theory.generation_step(setting, 10) == pytest.approx(10 * 0.5 * 0.1 * 5 * 2)
    assert theory.generation_step(setting, 10, weight=0.1) == pytest.approx(10 * 0.1 * 0.1 * 5 * 2)
    assert theory.reach(setting) == pytest.approx(1 - 0.8**5)
    assert theory.reach(replace(setting, local_lr=1e-6)) == pytest.approx(5 * 1e-6 * 2, rel=1e-4)
    assert theory.reach(replace(setting, local_lr=0.75, local_steps=2.5)) == pytest.approx(1 + 0.5**2.5)
    weight = theory.largest_weight(setting, 10)
    assert theory.generation_reach(setting, 10, weight) == pytest.approx(1)
    lr = theory.largest_local_lr(setting, 10, 0.5)
    assert theory.generation_reach(replace(setting, local_lr=lr), 10, 0.5) == pytest.approx(1)
    assert theory.largest_local_lr(setting, 10, 0.05) == pytest.approx(1 / 2)
    for staleness in (0, 3, 40):
        drifts = {
            K: theory.theorem1(replace(setting, max_staleness=theory.oldest(staleness, K))).drift for K in range(1, 60)
        }
        doubled = theory.largest_window(setting, staleness)
        assert drifts[doubled] <= 2 * drifts[1] < drifts[doubled + 1]


@pytest.mark.parametrize(("share", "steady"), [(0.9, True), (2.5, False)])
def test_the_largest_weight_tells_steady_from_growing(share: float, steady: bool) -> None:
    """On the quadratic, on either side of pi / 2."""
    _, setting, _ = measured(fedfa.FedFaDelta(concurrency=10, window=5), 0.1, lr=0.1)
    weight = share * theory.largest_weight(setting, 10)
    last = measured(fedfa.FedFaDelta(concurrency=10, window=5, server_lr=weight), weight, lr=0.1)[2]
    assert (last < 1.0) is steady


@pytest.mark.parametrize(("concurrency", "window"), [(2, 1), (10, 5), (20, 1), (20, 10)])
def test_steps_from_the_bases_bear_any_concurrency(concurrency: int, window: int) -> None:
    """With clients that go all the way (eta_l L = 1), steps below 2 are steady; far above, none is."""
    rule = partial(fedfa.FedFaAgree, concurrency=concurrency, window=window)
    assert measured(rule(server_lr=1.5), 1.5, lr=1.0)[2] < 5.0
    assert measured(rule(server_lr=5.0), 5.0, lr=1.0)[2] > 1e6


def real_step(strategy: Any) -> float:
    return server_step(strategy, clients=40).step


@pytest.mark.parametrize(("concurrency", "window"), [(2, 2), (5, 5), (10, 5), (10, 20), (18, 10)])
def test_the_pace_that_a_window_costs_and_what_makes_up_for_it(concurrency: int, window: int) -> None:
    setting = {"concurrency": concurrency, "window": window}
    lost = 1 + (window - 1) / (2 * concurrency)
    assert real_step(fedfa.FedFaParam(**setting)) == pytest.approx(1 / lost, rel=0.03)
    assert real_step(fedfa.FedFaAgree(server_lr=lost, **setting)) == pytest.approx(1, rel=0.03)
    assert real_step(fedfa.FedFaDelta(**setting)) == pytest.approx(1, rel=0.03)
    assert real_step(fedfa.FedFaAgree(**setting)) == pytest.approx(2 / lost, rel=0.03)  # all clients agree


@pytest.mark.parametrize(
    ("strategy", "step"),
    [
        (fedfa.FedAvg(concurrency=10), 1),
        (fedfa.FedNova(concurrency=10), 1),
        (fedfa.FedFaDelta(concurrency=10, window=5, server_lr=1.0), 10),
        (fedfa.FedBuff(concurrency=10, buffer=5, staleness="constant", refill="batch"), 2),
        (fedfa.FedBuff(concurrency=10, buffer=5, staleness="constant", server_lr=0.5), 1),
    ],
    ids=["fedavg", "fednova", "fedfa-delta as printed", "fedbuff", "fedbuff, half the step"],
)
def test_the_step_of_a_rule_is_measured(strategy: Any, step: float) -> None:
    assert real_step(strategy) == pytest.approx(step, rel=0.03)


def test_who_waits_gets_fewer_updates() -> None:
    waits, never = server_step(fedfa.FedAvg(concurrency=10)), server_step(fedfa.FedFaParam(concurrency=10))
    assert 1.5 < never.updates_per_second / waits.updates_per_second < 3
    assert waits.speed == waits.step * waits.updates_per_second
    even = server_step(fedfa.FedAvg(concurrency=10), {"speed": {"kind": "exponential", "shift": 4.0, "mean": 1e-6}})
    assert even.updates_per_second == pytest.approx(10 / 4, rel=0.01)


# Measured ------------------------------------------------------------------------------------------------------------

EXAMPLES, BATCH, SPREAD = 64, 16, 0.3
POINTS = np.random.default_rng(1).normal(size=(CLIENTS, EXAMPLES, DIMENSION)) * SPREAD
POINTS += CENTRES[:, None] - POINTS.mean(1, keepdims=True)


class Bowl(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.full((DIMENSION,), 3.0))

    def forward(self, inputs: Tensor) -> Tensor:
        return (self.w - inputs) * torch.from_numpy(CURVATURE**0.5).float()


def half_square(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs**2).sum(1).mean() / 2


def bowl(seed: int) -> fedfa.Task:
    """The same quadratic as a task like any other: clients hold points around their centres."""
    data = [(torch.from_numpy(points).float(), torch.zeros(EXAMPLES)) for points in POINTS]
    local = fedfa.LocalTraining(epochs=1, batch_size=BATCH, lr=0.1)
    return fedfa.Task(model=Bowl, clients=data, test=data[0], loss=half_square, metric=half_square, local=local)


def bowl_run(folder: Path, updates: int = 200, **strategy: Any) -> Estimate:
    table = {
        "task": f"{__name__}:bowl",
        "strategy": {"concurrency": 10} | strategy,
        "stop": {"updates": updates},
        "engine": {"executor": "inline"},
    }
    from_table(table).run(folder)
    return estimate(find_run(folder), models=6)


@pytest.mark.parametrize(
    ("strategy", "server_lr", "weight", "waits"),
    [
        ({"name": "fedfa-param"}, 1.0, 1.0, 4),
        ({"name": "fedfa-delta"}, 0.1, 0.1, 4),
        ({"name": "fedfa-agree"}, 2.0, 2.0, 4),
        ({"name": "fedbuff"}, 1.0, 0.2, 0),
    ],
)
def test_measured_constants_are_the_known_ones(
    strategy: dict[str, str], server_lr: float, weight: float, waits: int, tmp_path: Path
) -> None:
    found = bowl_run(tmp_path / "run", **strategy)
    s, best = found.setting, CENTRES.mean(0)
    assert 0.9 < s.smoothness < 1.001
    assert s.global_variance == pytest.approx(np.mean(np.sum((CURVATURE * (CENTRES - best)) ** 2, 1)), rel=1e-4)
    start = np.full(DIMENSION, 3.0)
    assert s.gradient_bound == pytest.approx(max(np.sum(gradient(start, c) ** 2) for c in CENTRES), rel=1e-4)
    assert s.gap == pytest.approx(value(start) - value(best), rel=0.03)
    assert s.gap <= value(start) - value(best) + 1e-6
    assert not found.constants.least_is_known
    assert found.constants.norms[0] == pytest.approx(np.sum(gradient(start, best) ** 2), rel=1e-4)
    per_point = np.sum((CURVATURE * (POINTS - CENTRES[:, None])) ** 2) / (EXAMPLES - 1) / CLIENTS
    assert s.local_variance == pytest.approx(per_point / BATCH * (1 - BATCH / EXAMPLES), rel=0.3)
    assert (s.local_steps, s.local_lr, s.server_lr) == (4, 0.1, server_lr)
    assert (found.weight, found.window, found.concurrency) == (weight, 5, 10)
    assert s.max_staleness == found.staleness + 1 + waits
    assert found.versions[0] == 0
    assert found.versions[-1] == s.updates
    assert len(found.versions) == 6
    assert found.settled
    assert found.apart == 0
    assert found.mean_norm <= theory.theorem1(s).total
    said = [line for line in words(found) if not line.startswith("Assumed:")]
    assert "The theorem applies, and its bound is" in said[0]
    assert (
        ("Steps from the bases, on a quadratic, are steady" in said[1])
        is (f"is below 2: now 2 times {theory.reach(s):.3g}" in said[1])
        is (server_lr > 1)
    )


def test_a_diverged_run_is_called_so(tmp_path: Path) -> None:
    grown = bowl_run(tmp_path / "run", name="fedfa-delta", server_lr=2.0)
    assert not grown.settled
    assert "The run did not settle: f went from" in words(grown)[0]
    norms = (*grown.constants.norms[:-1], math.nan)
    broken = replace(grown, constants=replace(grown.constants, norms=norms))
    assert words(broken)[0].startswith("The run diverged: gradients are not finite at 1 of 6 models, first at version")
    assert broken.summary()["mean_squared_gradient"] is None
    task = bowl(0)
    initial = task.initial(0)[0]
    constants = measure(task, [initial, initial * np.float32("nan")], seed=0)
    assert not constants.finite
    assert 0.9 < constants.smoothness < 1.001
    with pytest.raises(fedfa.ConfigError, match="no model of the run has finite gradients"):
        measure(task, [initial * np.float32("nan")], seed=0)


def test_gradients_are_those_that_clients_take() -> None:
    """In train mode, weight decay included, and BatchNorm's statistics are no part of them."""
    generator = torch.Generator().manual_seed(0)
    rows = [(torch.randn(8, 3, generator=generator), torch.arange(8) % 2) for _ in range(2)]
    task = fedfa.Task(
        model=lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)),
        clients=rows, test=rows[0], local=fedfa.LocalTraining(epochs=1, lr=0.5, weight_decay=0.1),
    )  # fmt: skip
    model, trainable, _ = task.initial(0)
    before = model.copy()
    slopes = Slopes(task, 0, [0, 1])
    _, gradient = slopes.whole(model, 1)
    trained = Inline(task, 0).train(WorkOrder(0, 0, 1, 0, model, 1, 0.0, 0.0)).params
    assert trained is not None
    assert len(gradient) == trainable < len(model)
    np.testing.assert_allclose((model - trained)[:trainable] / 0.5, gradient, atol=1e-5)
    np.testing.assert_allclose(slopes.whole(model, 1)[1], gradient)
    assert np.array_equal(model, before)
    constants = measure(task, [model, trained], seed=0)
    assert constants.least == 0
    assert constants.least_is_known
    assert constants.local_variance == 0


def test_where_the_theorem_is_silent() -> None:
    sgd = fedfa.LocalTraining()
    for strategy in (fedfa.FedAvg(), fedfa.FedAsync(), fedfa.Port()):
        with pytest.raises(fedfa.ConfigError, match="Theorem 1 does not speak about it; give a run of fedfa-param"):
            step_of(strategy)
    with pytest.raises(fedfa.ConfigError, match=r"Theorem 1 speaks about SGD; give a run with local.optimizer = 'sgd'"):
        assumptions(fedfa.FedFaParam(), fedfa.LocalTraining(optimizer="adamw"))
    assert assumptions(fedfa.FedFaParam(), sgd) == assumptions(fedfa.FedBuff(staleness="constant"), sgd) == ()
    odd = fedfa.FedFaNova(weighting="examples", staleness=fedfa.PolynomialStaleness(), clip_norm=1.0)
    assert len(assumptions(odd, fedfa.LocalTraining(momentum=0.9))) == 5
    assert "proximal" in assumptions(fedfa.FedFaProx(), sgd)[0]
    assert assumptions(fedfa.FedFaAgree(), sgd) == ("steps as long as clients agree, all taken as the longest",)
    assert step_of(fedfa.FedFaAgree(window=7), [1.0, 1.3, 1.1]) == (1.3, 1.3, 7)
    assert step_of(fedfa.FedFaAgree(server_lr=1.5), [1.0]) == (1.5, 1.5, 5)


def test_runs_that_cannot_be_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(fedfa.ConfigError, match="nowhere: no such folder; give one that 'fedfa run' wrote"):
        find_run(tmp_path / "nowhere")
    with pytest.raises(fedfa.RecordError, match="holds no finished run; give a folder"):
        find_run(tmp_path)
    task = bowl(0)
    for seed in (0, 1):
        fedfa.simulate(
            "fedfa-param",
            task,
            stop={"updates": 20},
            seed=seed,
            engine={"executor": "inline"},
            out=tmp_path / f"s{seed}",
        )
    with pytest.raises(fedfa.RecordError, match=r"is no run, but holds 2; give one of them: .*s0, .*s1$"):
        find_run(tmp_path)
    with pytest.raises(fedfa.RecordError, match=r"has no config.toml to run it again from; make the run with"):
        estimate(find_run(tmp_path / "s0"))
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "checkpoint.npz").touch()
    with pytest.raises(fedfa.RecordError, match="holds an unfinished run; continue it with"):
        find_run(tmp_path / "open")
    bowl_run(tmp_path / "run", updates=60, name="fedfa-param")
    some = estimate(find_run(tmp_path / "run"), models=3, updates=55)
    assert some.setting.updates == 51
    assert some.versions == (0, 16, 46)
    with pytest.raises(fedfa.ConfigError, match="models = 1: must be at least 2"):
        estimate(find_run(tmp_path / "run"), models=1)
    with pytest.raises(fedfa.ConfigError, match="fewer than 2 models were evaluated"):
        estimate(find_run(tmp_path / "run"), updates=3)
    changed = r"run again, it takes another course; its data, its code or a version has changed: run it anew with"
    with monkeypatch.context() as change:
        change.setitem(globals(), "POINTS", POINTS * 1.01)
        with pytest.raises(fedfa.RecordError, match=changed):
            estimate(find_run(tmp_path / "run"))
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace("seed = 0", "seed = 1"))
    with pytest.raises(fedfa.RecordError, match=changed):
        estimate(find_run(tmp_path / "run"))


def test_small_helpers() -> None:
    assert spaced(5, 12) == [0, 1, 2, 3, 4]
    assert spaced(101, 3) == [0, 50, 100]
    assert [at_most(x) for x in (0.0359, 0.1, 1.58, 29.9)] == ["0.035", "0.1", "1.5", "29"]


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
