"""Losses of three classes: means over examples, which allow batches to be filled up, and others, which do not."""

from typing import Any

import torch
import torch.nn.functional as F

MEANS: dict[str, Any] = {
    "cross entropy": F.cross_entropy,
    "squares": lambda outputs, targets: F.mse_loss(outputs, F.one_hot(targets, 3).float()),
    "written in Python": lambda outputs, targets: (outputs.logsumexp(1) - outputs[:, 0] * targets).mean(),
}
NO_MEANS: dict[str, Any] = {
    "sum": lambda outputs, targets: F.cross_entropy(outputs, targets, reduction="sum"),
    "weighs classes": lambda outputs, targets: F.cross_entropy(outputs, targets, torch.tensor([1.0, 1.0, 1.1])),
}
