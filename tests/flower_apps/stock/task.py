"""A model with what a flat vector does not hold as it is: a convolution, buffers, an integer buffer."""

import torch
from torch import nn

from fedfa import LocalTraining, Task


def model() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 10))


def task(seed: int, node: object) -> Task:
    data = torch.randn(32, 1, 8, 8, generator=torch.Generator().manual_seed(seed)), torch.arange(32) % 10
    return Task(model=model, clients=[data], test=data, local=LocalTraining(epochs=1), name="stock")
