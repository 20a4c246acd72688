"""``replay``: what it takes, and what it refuses."""

from typing import Any

import numpy as np
import pytest

import fedfa
from fedfa import Arrival, replay
from tests.helpers.arrivals import close, small


def test_replay_takes_lists_and_other_precisions_and_refuses_other_types() -> None:
    stream = [
        Arrival(client=0, base_version=0, params=[1, 2]),
        Arrival(client=1, base_version=0, params=np.array([3.0, 4.0])),
        Arrival(client=2, base_version=0, params=np.array([3, 4])),
        Arrival(client=3, base_version=0, params="nonsense"),
        Arrival(client=4, base_version=9, params=[1.0, 1.0]),
        Arrival(client=5, base_version=0, params=[1.0, 1.0], dispatch=5),
        Arrival(client=5, base_version=0, params=[1.0, 1.0], dispatch=5),
    ]
    models = replay(fedfa.FedFaParam(window=1), [0.0, 0.0], stream)
    assert sorted(models.refused) == [2, 3, 4, 6]
    huge = [Arrival(client=0, base_version=0, params=np.full(2, 3e38, np.float32))] * 2
    absurd = replay(fedfa.FedFaDelta(window=1, server_lr=1.0), np.full(2, -3e38, np.float32), huge)
    assert "is absurd" in absurd.refused[0]
    close(models, [[1, 2], [3, 4], [3, 4], [3, 4], [3, 4], [1, 1], [1, 1]])


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"num_examples": float("inf")}, "no work done"),
        ({"num_steps": 1e-320}, "no work done"),
        ({"num_examples": None}, "no work done"),
        ({"num_examples": "3"}, "no work done"),
        ({"base_version": 0.5}, "unknown base version"),
        ({"base_version": -1}, "unknown base version"),
    ],
    ids=str,
)
def test_arrivals_with_impossible_numbers_are_refused(settings: dict[str, Any], reason: str) -> None:
    for cls in (fedfa.FedAvg, fedfa.FedNova, fedfa.FedFaNova):
        good: dict[str, Any] = {"client": 0, "base_version": 0, "params": [1.0, 2.0]}
        models = replay(small(cls), [0.0, 0.0], [Arrival(**(good | settings))])
        assert reason in models.refused[0]
        assert models[0].tolist() == [0.0, 0.0]


def test_replay_requires_one_flat_vector() -> None:
    with pytest.raises(fedfa.ConfigError, match="must be one flat vector"):
        replay(fedfa.FedAvg(), np.zeros((2, 2)), [])
    with pytest.raises(fedfa.ConfigError, match="num_trainable = 5: must be between 0 and the model's 2 entries"):
        replay(fedfa.FedAvg(), [0.0, 0.0], [], num_trainable=5)
