"""Small models for the embedded data; larger ones live in files of their own."""

from collections.abc import Callable

from torch import nn


def mlp(hidden: int = 64, inputs: int = 64, classes: int = 10) -> nn.Module:
    """One hidden layer on flattened images."""
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, classes))


def cnn(hidden: int = 64, side: int = 8, classes: int = 10) -> nn.Module:
    """Two small convolutions and one hidden layer on square images with one channel."""
    return nn.Sequential(
        nn.Unflatten(1, (1, side)),
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * (side // 4) ** 2, hidden),
        nn.ReLU(),
        nn.Linear(hidden, classes),
    )


BY_NAME: dict[str, Callable[[int], nn.Module]] = {"mlp": mlp, "cnn": cnn}
