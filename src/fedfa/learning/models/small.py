"""Small models for images: a perceptron with one hidden layer, and a small CNN."""

from torch import nn


def mlp(hidden: int = 64, inputs: int = 64, classes: int = 10) -> nn.Module:
    """One hidden layer on flattened images."""
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, classes))


def cnn(hidden: int = 64, channels: int = 1, height: int = 8, width: int = 8, classes: int = 10) -> nn.Sequential:
    """Two small convolutions and one hidden layer."""
    return nn.Sequential(
        nn.Conv2d(channels, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * (height // 4) * (width // 4), hidden),
        nn.ReLU(),
        nn.Linear(hidden, classes),
    )
