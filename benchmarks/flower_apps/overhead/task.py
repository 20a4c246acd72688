"""A linear model of ``width`` x ``width``, and clients that hardly train: what is left is the way there and back."""

import torch
from torch import nn

from fedfa import LocalTraining, Task


def task(width: int, zeros: bool = False) -> Task:
    def model() -> nn.Module:
        made = nn.Linear(width, width)
        return made.requires_grad_(False).apply(_clear).requires_grad_() if zeros else made

    data = torch.zeros(2, width), torch.zeros(2, dtype=torch.int64)
    return Task(model=model, clients=[data], test=data, local=LocalTraining(epochs=1), name="overhead")


def _clear(module: nn.Module) -> None:
    for parameter in module.parameters():
        parameter.zero_()
