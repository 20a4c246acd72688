"""The step that a strategy really takes."""

from typing import Any

import pytest

import fedfa
from fedfa.analysis.server_step import server_step


def real_step(strategy: Any) -> float:
    return server_step(strategy, clients=40).step


@pytest.mark.parametrize(("concurrency", "window"), [(2, 2), (5, 5), (10, 5), (10, 20), (18, 10)])
def test_a_window_shortens_the_step_and_the_server_lr_makes_up_for_it(concurrency: int, window: int) -> None:
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


def test_a_strategy_that_waits_gets_fewer_updates() -> None:
    waits, never = server_step(fedfa.FedAvg(concurrency=10)), server_step(fedfa.FedFaParam(concurrency=10))
    assert 1.5 < never.updates_per_second / waits.updates_per_second < 3
    assert waits.speed == waits.step * waits.updates_per_second
    even = server_step(fedfa.FedAvg(concurrency=10), {"speed": {"kind": "exponential", "shift": 4.0, "mean": 1e-6}})
    assert even.updates_per_second == pytest.approx(10 / 4, rel=0.01)
