"""FedFa-Agree: how long its steps are, and where it is FedFa-Param."""

from typing import Any

import numpy as np
import pytest

import fedfa
from fedfa import replay
from fedfa.strategies.base import Flight, Update
from tests.helpers.arrivals import START, arrival, close, random_stream


def test_fedfa_agree_may_take_a_given_step_from_the_mean_of_the_bases() -> None:
    stream = [arrival(0, 0, 3), arrival(1, 0, 5), arrival(2, 1, 9)]
    one = 1 + 1.5 * (2 + 4) / 2
    two = (1 + one) / 2 + 1.5 * (4 + (9 - one)) / 2
    rule = fedfa.FedFaAgree(window=2, concurrency=10, server_lr=1.5)
    close(replay(rule, np.array([1.0], np.float32), stream), [[1], [one], [two]])


@pytest.mark.parametrize(
    ("differences", "step"),
    [
        ([[1, 1, 0, 0]] * 4, 2.0),  # all the same: all of the mean is common
        ([[2, 1, 0, 0], [2, -1, 0, 0], [2, 0, 1, 0], [2, 0, -1, 0]], 2.0),
        (np.eye(4) + (6.4**0.5 - 2) / 8, 1.5),  # any two have a product of 0.15, and their mean is as long as 0.4
        (np.eye(4), 1.0),  # at right angles: nothing is
        ([[1, 0, 0, 0], [-1, 0, 0, 0]] * 2, 1.0),
        ([[0, 0, 0, 0]] * 4, 1.0),
    ],
)
def test_fedfa_agree_steps_as_far_as_clients_agree(differences: Any, step: float) -> None:
    """The first window publishes with step 1: a single window shows nothing about agreement."""
    start = np.array([5.0, 6.0, 7.0, 8.0], np.float32)
    stream = [arrival(client, 0, *(start + row)) for client, row in enumerate(differences)]
    models = replay(fedfa.FedFaAgree(window=4, concurrency=3), start, [*stream, *stream])
    mean = np.mean(differences, axis=0)
    close(models[3:], [start + mean] + [start + step * mean] * 4, atol=1e-5)


def test_where_clients_do_not_agree_fedfa_agree_is_fedfa_param_bit_for_bit() -> None:
    rng = np.random.default_rng(0)
    agree, param = fedfa.FedFaAgree(window=3, concurrency=10), fedfa.FedFaParam(window=3, concurrency=10)
    versions = [rng.normal(size=400).astype(np.float32)]
    for rule in (agree, param):
        rule.begin(versions[0], num_trainable=390)
    for i in range(60):
        base = max(0, len(versions) - 1 - int(rng.integers(0, 4)))
        update = Update(i, i, base, versions[base] + rng.normal(size=400).astype(np.float32), versions[base], 1, 1.0)
        for rule in (agree, param):
            rule.receive(update, {i: Flight(i, base)})
        assert np.array_equal(agree.model, param.model)
        versions += [agree.model] if agree.version == len(versions) else []
    assert len(versions) == 59


def test_with_a_window_of_one_fedfa_agree_is_fedfa_param() -> None:
    stream = random_stream(20, 1)
    rules = fedfa.FedFaAgree(window=1), fedfa.FedFaParam(window=1)
    assert np.array_equal(*(np.array(replay(rule, START, stream)) for rule in rules))


def steps_along(rule: fedfa.FedFaAgree, models: Any) -> list[float]:
    """The step after each arrival, when all start from zero."""
    start, steps = np.zeros(64, np.float32), []
    rule.begin(start)
    for i, params in enumerate(models):
        rule.receive(Update(i, i, 0, params.astype(np.float32), start, 1, 1.0), {i: Flight(i, 0)})
        steps.append(rule.step())
    return steps


def test_the_agreement_outlives_single_windows() -> None:
    """Eight arrivals that agree, then many that do not: the step comes down slowly, over more than M_c arrivals."""
    stream = [np.ones(64) if i < 8 else 8 * np.eye(64)[i % 64] for i in range(120)]
    steps = steps_along(fedfa.FedFaAgree(window=4, concurrency=8), stream)
    assert steps[:9] == [1.0] * 4 + [2.0] * 5
    assert any(1.0 < step < 2.0 for step in steps[9:70])
    assert steps[70:] == [1.0] * 50


@pytest.mark.parametrize("window", [2, 5])
def test_agreement_by_chance_does_not_lengthen_the_step(window: int) -> None:
    """Opposed clients in random order, as with two labels: some windows agree by chance, and the step stays near 1."""
    rng = np.random.default_rng(0)
    opposed = rng.choice([-1.0, 1.0], size=(400, 1)) * np.ones(64) + 0.3 * rng.normal(size=(400, 64))
    by_chance, in_common = (
        np.mean(steps_along(fedfa.FedFaAgree(window=window, concurrency=5), models))
        for models in (opposed, opposed + 1)
    )
    assert by_chance < 1.1
    assert in_common > 1.3
