"""Settings under which two strategies are the same, and what follows from the formulas."""

import numpy as np
import pytest

import fedfa
from fedfa import Arrival, replay
from fedfa.learning.data.settings import DataSettings
from fedfa.learning.data_task import data_task
from fedfa.learning.models.settings import ModelSettings
from fedfa.strategies.base import Strategy
from tests.helpers.arrivals import START, random_stream


@pytest.mark.parametrize(
    ("one", "other", "stream"),
    [
        (fedfa.FedNova(concurrency=4), fedfa.FedAvg(concurrency=4), random_stream(20, 4, fresh=True, same_n=False)),
        (
            fedfa.FedBuff(concurrency=4, buffer=4, refill="batch"),
            fedfa.FedAvg(concurrency=4),
            random_stream(20, 4, fresh=True),
        ),
        (fedfa.FedFaParam(window=1), fedfa.FedAsync(beta=1.0, staleness="constant"), random_stream(20, 1)),
        (
            fedfa.FedFaDelta(window=1, server_lr=1.0),
            fedfa.FedBuff(buffer=1, concurrency=10, staleness="constant"),
            random_stream(20, 1),
        ),
        (fedfa.FedProx(concurrency=4), fedfa.FedAvg(concurrency=4), random_stream(20, 4, same_n=False)),
        (fedfa.FedFaAgree(window=3, server_lr=1.0), fedfa.FedFaParam(window=3), random_stream(20, 3)),
        (fedfa.FedFaProx(window=3), fedfa.FedFaDelta(window=3), random_stream(20, 3)),
        (fedfa.FedFaNova(window=3), fedfa.FedFaDelta(window=3), random_stream(20, 3)),
    ],
    ids=lambda value: value.name if isinstance(value, Strategy) else "",
)
def test_two_strategies_are_the_same_under_these_settings(
    one: Strategy, other: Strategy, stream: list[Arrival]
) -> None:
    a, b = replay(one, START, stream), replay(other, START, stream)
    assert a.versions == b.versions
    assert a.versions[-1] > 0
    np.testing.assert_allclose(np.array(a), np.array(b), rtol=1e-5, atol=1e-5)


def test_the_window_leaks_single_updates() -> None:
    """K (w_t+1 - w_t) = w_new - w_old: whoever reads all versions learns single updates, and the docs say so."""
    stream = random_stream(12, 100, seed=3)
    models = replay(fedfa.FedFaParam(window=4), START, stream)
    for t in range(5, 12):
        np.testing.assert_allclose(
            4 * (models[t] - models[t - 1]), stream[t].params - stream[t - 4].params, rtol=1e-4, atol=1e-5
        )


def final_losses(size_sigma: float, *strategies: str | Strategy) -> list[float]:
    """On the embedded job with clients of these sizes."""
    task = data_task(DataSettings(size_sigma=size_sigma), ModelSettings(), fedfa.LocalTraining(), seed=0)
    stop = fedfa.Stop(updates=20)
    return [fedfa.simulate(strategy, task, stop=stop).evaluations["loss"][-1] for strategy in strategies]


def test_what_differs_where_clients_differ_in_size() -> None:
    """As in the default job. With equal sizes, FedNova is FedAvg, and weights by examples are equal, to the bit."""
    default = DataSettings().size_sigma
    by_examples = fedfa.FedBuff(concurrency=10, weighting="examples")
    assert len(set(final_losses(default, "fedavg", "fednova"))) == 2
    assert len(set(final_losses(default, "fedbuff", by_examples))) == 2
    assert len(set(final_losses(0.0, "fedavg", "fednova"))) == 1
    assert len(set(final_losses(0.0, "fedbuff", by_examples))) == 1
