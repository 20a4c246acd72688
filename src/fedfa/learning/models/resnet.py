"""ResNet-18 for small images (He et al., CVPR 2016): a 3 x 3 stem and no max-pool, as is usual for CIFAR."""

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

Norm = Literal["batch", "group"]


def _norm(kind: Norm, channels: int) -> nn.Module:
    return nn.BatchNorm2d(channels) if kind == "batch" else nn.GroupNorm(32 if channels >= 64 else 8, channels)


class Block(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = _norm(norm, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = _norm(norm, outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), _norm(norm, outputs))

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(out)) + self.shortcut(x))


class ResNet18(nn.Module):
    """11.2 million parameters at the default width."""

    def __init__(self, channels: int = 3, classes: int = 10, norm: Norm = "batch", width: int = 64) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, width, 3, 1, 1, bias=False)
        self.norm = _norm(norm, width)
        layers: list[nn.Module] = []
        inputs = width
        for stage in range(4):
            outputs = width * 2**stage
            layers += [Block(inputs, outputs, 1 if stage == 0 else 2, norm), Block(outputs, outputs, 1, norm)]
            inputs = outputs
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        out = self.layers(F.relu(self.norm(self.stem(x))))
        return self.head(out.mean((2, 3)))
