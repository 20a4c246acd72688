"""A linear model of ``width`` x ``width``, and clients that hardly train: what is left is the way there and back."""

import torch
from torch import nn

from fedfa import LocalTraining, Task


def task(width: int) -> Task:
    data = torch.zeros(2, width), torch.zeros(2, dtype=torch.int64)
    return Task(
        model=lambda: nn.Linear(width, width), clients=[data], test=data, local=LocalTraining(epochs=1), name="overhead"
    )
