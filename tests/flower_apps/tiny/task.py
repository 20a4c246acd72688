"""2 MB of linear model; the data does not matter."""

import torch
from torch import nn

from fedfa import LocalTraining, Task


def model() -> nn.Module:
    return nn.Linear(1000, 500)


def task(seed: int, node: object) -> Task:
    data = torch.randn(16, 1000, generator=torch.Generator().manual_seed(seed)), torch.arange(16)
    return Task(model=model, clients=[data], test=data, local=LocalTraining(epochs=1), name="tiny")
