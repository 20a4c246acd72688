"""Theorem 1 on a quadratic where every constant is known. As a program it prints the table in docs/theory.md."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import fedfa
from fedfa.analysis import theory
from tests.helpers.quadratics import CENTRES, run_of, six_dimensions


def measured(strategy: Any, server_lr: float, lr: float) -> tuple[float, theory.Setting, float]:
    """Mean squared gradient norm over the run, the setting with its true constants, and the last squared norm."""
    task = six_dimensions(lr)
    run = run_of(strategy, task, 400, "paper")
    best, norms = CENTRES.mean(0), task.squared_gradients()
    setting = theory.Setting(
        updates=run.manifest["version"],
        local_steps=task.steps,
        local_lr=lr,
        server_lr=server_lr,
        max_staleness=theory.oldest(int(run.updates["staleness"].to_numpy().max()), strategy.window),
        smoothness=1.0,
        gradient_bound=task.largest_local_gradient,
        local_variance=task.noise**2,
        global_variance=float(np.max(np.sum(task.gradients(best) ** 2, 1))),
        gap=task.value(task.path[0]) - task.value(best),
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
def test_runs_are_stable_up_to_the_largest_weight(share: float, steady: bool) -> None:
    """On the quadratic: one weight below pi / 2 and one above."""
    _, setting, _ = measured(fedfa.FedFaDelta(concurrency=10, window=5), 0.1, lr=0.1)
    weight = share * theory.largest_weight(setting, 10)
    last = measured(fedfa.FedFaDelta(concurrency=10, window=5, server_lr=weight), weight, lr=0.1)[2]
    assert (last < 1.0) is steady


@pytest.mark.parametrize(("concurrency", "window"), [(2, 1), (10, 5), (20, 1), (20, 10)])
def test_steps_from_the_bases_are_stable_at_any_concurrency(concurrency: int, window: int) -> None:
    """With clients that reach their optimum (eta_l L = 1), steps below 2 are stable, and steps far above are not."""
    rule = partial(fedfa.FedFaAgree, concurrency=concurrency, window=window)
    assert measured(rule(server_lr=1.5), 1.5, lr=1.0)[2] < 5.0
    assert measured(rule(server_lr=5.0), 5.0, lr=1.0)[2] > 1e6


if __name__ == "__main__":
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
