"""Captured functions."""

import pytest
import torch
from torch import Tensor

from fedfa.executors.capture import CannotCapture, capture


def test_capture_is_the_same_function() -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        z = (x @ y).clamp(min=0).sum(0, keepdim=True)
        return z / z.norm(), torch.full_like(x, 2.0) + torch.arange(3)

    x, y = torch.randn(3, 3), torch.randn(3, 3)
    captured = capture(function, x, y)
    for _ in range(3):
        a, b = torch.randn(3, 3), torch.randn(3, 3)
        for mine, theirs in zip(captured(a, b), function(a, b), strict=True):
            torch.testing.assert_close(mine, theirs)
    with pytest.raises(CannotCapture):
        capture(lambda x: x if float(x.sum()) > 0 else -x, x)
