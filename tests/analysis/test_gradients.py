"""Gradients of single clients."""

import numpy as np
import torch
from torch import nn

import fedfa
from fedfa.analysis.gradients import ClientGradients, measure
from fedfa.executors.base import WorkOrder
from fedfa.executors.trainer import Trainer


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
    gradients = ClientGradients(task, 0, [0, 1])
    _, gradient = gradients.whole(model, 1)
    trained = Trainer(task, 0).train(WorkOrder(0, 0, 1, 0, model, 1, 0.0, 0.0)).params
    assert trained is not None
    assert len(gradient) == trainable < len(model)
    np.testing.assert_allclose((model - trained)[:trainable] / 0.5, gradient, atol=1e-5)
    np.testing.assert_allclose(gradients.whole(model, 1)[1], gradient)
    assert np.array_equal(model, before)
    constants = measure(task, [model, trained], seed=0)
    assert constants.least == 0
    assert constants.least_is_known
    assert constants.local_variance == 0
