"""Clients of unequal size: every executor trains them as a plain loop does, and has the same events."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import fedfa
from fedfa.executors.base import Trained
from fedfa.executors.batched import Batched
from fedfa.executors.lanes import Lanes
from fedfa.learning.device import CPU, as_array
from tests.helpers.ordinary_models import make_task, perceptron
from tests.helpers.training import order, train_by_hand


def by_hand(outputs: Tensor, targets: Tensor) -> Tensor:
    """A mean over examples that no function of torch's computes."""
    return (outputs.logsumexp(1) - outputs.gather(1, targets[:, None])[:, 0]).square().mean()


LOSSES: dict[str, Any] = {
    "cross entropy": F.cross_entropy,
    "squares": F.mse_loss,
    "log-likelihood": lambda outputs, targets: F.nll_loss(outputs.log_softmax(1), targets),
    "by hand": by_hand,
}
OPTIMIZERS: list[dict[str, Any]] = [
    {},
    {"momentum": 0.9},
    {"weight_decay": 0.1},
    {"momentum": 0.5, "weight_decay": 0.01},
    {"optimizer": "adamw", "weight_decay": 0.1},
]


class LanesOnCPU(Lanes):
    """Lanes without a GPU: models are arrays there."""

    def __init__(self, task: fedfa.Task, seed: int) -> None:
        super().__init__(task, seed, CPU)

    def result(self, dispatch: int) -> Trained:
        trained = super().result(dispatch)
        return replace(trained, params=as_array(trained.params))


@settings(max_examples=12, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 70), min_size=1, max_size=6),
    batch=st.integers(1, 40),
    loss=st.sampled_from(sorted(LOSSES)),
    local=st.sampled_from(OPTIMIZERS),
    mu=st.sampled_from([0.0, 0.1]),
)
@pytest.mark.parametrize("kind", [Batched, LanesOnCPU])
def test_filling_batches_up_changes_no_model_beyond_rounding(
    kind: Any, sizes: list[int], batch: int, loss: str, local: dict[str, Any], mu: float
) -> None:
    task = make_task("vector", lambda: perceptron(nn.Tanh()), sizes, batch_size=batch, **local)
    task.loss = LOSSES[loss]
    if loss == "squares":
        task.targets = torch.sin(task.inputs[:, :3])
    ours = kind(task, 0)
    for client in range(task.num_clients):
        ours.submit(order(task, client, mu))
    for client in range(task.num_clients):
        trained, expected = ours.result(client), train_by_hand(task, client, mu)
        assert trained.params is not None
        moved = np.linalg.norm(expected - task.initial(0).vector)
        assert np.linalg.norm(trained.params - expected) <= 1e-3 * moved + 1e-5
        assert trained.num_examples == sizes[client]


WEATHER = {"jitter": 0.5, "dropout": 0.2, "timeout_seconds": 20.0}


@pytest.mark.parametrize(
    "strategy", ["fedbuff:buffer=2:concurrency=4", "fedfa-param:concurrency=5", "fedavg:concurrency=3"]
)
def test_every_executor_has_the_same_events(strategy: str) -> None:
    def run(executor: str) -> fedfa.Run:
        task = make_task("vector", lambda: perceptron(nn.ReLU()), (3, 9, 14, 5, 22, 7, 1, 40), batch_size=8)
        own = LanesOnCPU(task, 0) if executor == "lanes" else None
        engine = {} if own else {"executor": executor}
        return fedfa.simulate(strategy, task, WEATHER, {"updates": 40}, engine=engine, executor=own)

    first = run("inline")
    assert first.updates["outcome"].n_unique() == 2  # some are lost
    computed = ["train_loss", "delta_norm"]
    for name in ("batched", "auto", "lanes"):
        other = run(name)
        assert name in (other.manifest["executor"], "auto")
        assert other.updates.drop(computed).equals(first.updates.drop(computed))
        for column in computed:
            np.testing.assert_allclose(other.updates[column], first.updates[column], rtol=1e-3, atol=1e-5)
