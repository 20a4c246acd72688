"""Model, data and training. The server and every site import this file.

Put in your model, a site's data and the server's test data. As it is, it learns to separate two clouds of points.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fedfa import LocalTraining, Task

LOCAL = LocalTraining(epochs=5, batch_size=32, lr=0.05)


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2))


def site_data(node: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """Inputs and targets of this site; ``node`` is its --node-config, which can hold a path."""
    return _clouds(200, seed=1 + node.get("partition-id", 0))


def test_data() -> tuple[Tensor, Tensor]:
    """Inputs and targets with which the server evaluates the model."""
    return _clouds(500, seed=0)


def task(seed: int, node: Mapping[str, Any] | None) -> Task:
    """``node`` is None on the server, which needs the test data only."""
    data = test_data() if node is None else site_data(node)
    return Task(model=model, clients=[data], test=data, local=LOCAL, name="own")


def _clouds(count: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(2, (count,), generator=generator)
    return torch.randn(count, 10, generator=generator) + targets[:, None], targets
