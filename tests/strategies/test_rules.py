"""Each rule against numbers worked out in the test."""

from pathlib import Path

import numpy as np

import fedfa
from fedfa import replay
from fedfa.strategies.specs import strategy_class
from tests.helpers.arrivals import arrival, close

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_fedavg_waits_for_all_and_weighs_by_examples() -> None:
    models = replay(
        fedfa.FedAvg(concurrency=2), np.zeros(2, np.float32), [arrival(0, 0, 1, 2, n=1), arrival(1, 0, 5, 6, n=3)]
    )
    close(models, [[0, 0], [(1 * 1 + 3 * 5) / 4, (1 * 2 + 3 * 6) / 4]])


def test_fednova_averages_differences_per_step() -> None:
    models = replay(
        fedfa.FedNova(concurrency=2),
        np.array([1.0], np.float32),
        [arrival(0, 0, 3, n=1, steps=2), arrival(1, 0, 7, n=1, steps=6)],
    )
    # p = 1/2 each; mean steps 4; per step: 2/2 and 6/6
    close(models, [[1], [1 + 4 * (0.5 * 1 + 0.5 * 1)]])


def test_fedasync_mixes_by_staleness_without_changing_beta() -> None:
    strategy = fedfa.FedAsync(beta=0.5, staleness=fedfa.PolynomialStaleness(a=1.0))
    models = replay(strategy, np.array([0.0], np.float32), [arrival(0, 0, 4), arrival(1, 0, 6), arrival(2, 2, 6)])
    first = 0.5 * 4
    second = (1 - 0.25) * first + 0.25 * 6  # tau = 1: b = 0.5 / 2
    third = 0.5 * second + 0.5 * 6  # tau = 0 again: the full beta
    close(models, [[first], [second], [third]])
    assert strategy.beta == 0.5


def test_fedbuff_steps_along_the_mean_difference() -> None:
    strategy = fedfa.FedBuff(concurrency=4, buffer=2, server_lr=0.5, staleness=fedfa.PolynomialStaleness(a=1.0))
    models = replay(
        strategy,
        np.array([10.0], np.float32),
        [arrival(0, 0, 12), arrival(1, 0, 14), arrival(2, 0, 16), arrival(3, 1, 20)],
    )
    first = 10 + 0.5 * (2 + 4) / 2
    second = first + 0.5 * (0.5 * (16 - 10) + (20 - first)) / 2  # the stale one counts half, against its own base
    close(models, [[10], [first], [first], [second]])


def test_fedbuff_origin_current_is_the_mean_of_models() -> None:
    strategy = fedfa.FedBuff(concurrency=4, buffer=2, origin="current", staleness="constant")
    models = replay(
        strategy,
        np.array([10.0], np.float32),
        [arrival(0, 0, 12), arrival(1, 0, 14), arrival(2, 0, 16), arrival(3, 1, 20)],
    )
    close(models, [[10], [13], [13], [18]])


def test_port_weighs_by_examples_freshness_and_agreement() -> None:
    strategy = fedfa.Port(concurrency=4, buffer=2, staleness_bound=2)
    stream = [
        arrival(0, 0, 1, 0, n=1),
        arrival(1, 0, 1, 0, n=1),
        arrival(2, 0, 0, 2, n=3),  # tau 1, D = (0, 2), drift = (1, 0): cos 0
        arrival(3, 1, 1, 1, n=1),  # tau 0: cos 1, D = (0, 1)
    ]
    models = replay(strategy, np.zeros(2, np.float32), stream)
    stale, fresh = 3 * ((0 + 1) / 2 + 2 / 3), 1 * (1 + 1)
    second = np.array([1, 0]) + (stale * np.array([0, 2]) + fresh * np.array([0, 1])) / (stale + fresh)
    close(models, [[0, 0], [1, 0], [1, 0], second.tolist()])


def test_fedfa_param_is_the_mean_of_the_last_k_models() -> None:
    models = replay(
        fedfa.FedFaParam(window=3),
        np.array([9.0], np.float32),
        [arrival(i, 0, value) for i, value in enumerate([1, 2, 6, 10])],
    )
    close(models, [[9], [9], [3], [6]])
    assert models.versions == [0, 0, 1, 2]  # the K-th arrival publishes version 1, not before


def test_fedfa_delta_steps_along_the_mean_of_the_last_k_differences() -> None:
    strategy = fedfa.FedFaDelta(window=2, server_lr=0.5)
    models = replay(
        strategy, np.array([1.0], np.float32), [arrival(0, 0, 2), arrival(1, 0, 4), arrival(2, 0, 6), arrival(3, 2, 3)]
    )
    one = 1 + 0.5 * (1 + 3) / 2
    two = one + 0.5 * (3 + 5) / 2
    three = two + 0.5 * (5 + (3 - two)) / 2
    close(models, [[1], [one], [two], [three]])


def test_fedbuff_is_by_default_what_its_authors_define() -> None:
    buff = fedfa.FedBuff()
    assert (buff.origin, buff.refill_policy, buff.staleness, buff.weighting) == (
        "base", "immediate", fedfa.PolynomialStaleness(a=0.5), "uniform",
    )  # fmt: skip
    models = replay(
        fedfa.FedBuff(buffer=1), np.array([0.0], np.float32), [arrival(0, 0, 1), arrival(1, 0, 3), arrival(2, 0, 5)]
    )
    close(models, [[1], [1 + 3 / 2**0.5], [1 + 3 / 2**0.5 + 5 / 3**0.5]])


def test_fedfa_delta_takes_one_over_concurrency() -> None:
    stream = [arrival(0, 0, 3), arrival(1, 0, 5)]
    start = np.array([1.0], np.float32)
    close(replay(fedfa.FedFaDelta(window=2, concurrency=10), start, stream), [[1], [1 + 0.1 * 3]])


def test_the_example_of_an_adaptive_step() -> None:
    """Differences at right angles are extrapolated by K / 2, equal ones not at all; equal to zero they do no harm."""
    adaptive = strategy_class(f"{EXAMPLES / 'adaptive_step.py'}:FedFaExP", "strategy")
    start = np.zeros(4, np.float32)
    right_angles = [arrival(client, 0, *row) for client, row in enumerate(np.eye(4))]
    close(replay(adaptive(window=4), start, right_angles)[-1:], [[4 / 2 / 4] * 4])
    close(replay(adaptive(window=2), start, [arrival(0, 0, 1, 2, 3, 4)] * 2), [[0] * 4, [1, 2, 3, 4]])
    close(replay(adaptive(window=2), start, [arrival(0, 0, 0, 0, 0, 0)] * 2), [[0] * 4, [0] * 4])
    assert fedfa.simulate(adaptive(concurrency=10), stop={"updates": 300}).best_accuracy > 0.7


def test_fedfa_nova_rescales_by_the_mean_steps_of_the_window() -> None:
    models = replay(
        fedfa.FedFaNova(window=2, server_lr=1.0),
        np.array([0.0], np.float32),
        [arrival(0, 0, 4, steps=2), arrival(1, 0, 9, steps=3)],
    )
    close(models, [[0], [2.5 * (4 / 2 + 9 / 3) / 2]])


def test_prox_strategies_send_clients_their_mu() -> None:
    assert fedfa.FedProx(prox_mu=0.3).local.prox_mu == 0.3
    assert fedfa.FedFaProx(prox_mu=0.2).local.prox_mu == 0.2
    assert fedfa.FedFaAgree(prox_mu=0.2).local.prox_mu == 0.2
    assert fedfa.FedFaDelta().local.prox_mu == fedfa.FedFaAgree().local.prox_mu == 0.0


def test_one_slot_per_client_replaces_the_older_entry() -> None:
    stream = [arrival(7, 0, 1), arrival(7, 0, 3), arrival(8, 0, 5), arrival(7, 0, 7)]
    start = np.array([0.0], np.float32)
    close(replay(fedfa.FedFaParam(window=2), start, stream), [[0], [2], [4], [6]])
    close(replay(fedfa.FedFaParam(window=2, one_slot_per_client=True), start, stream), [[0], [0], [4], [6]])
