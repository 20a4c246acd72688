"""Models by name, fitted to the examples and classes of a data set."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torch import nn

from fedfa.errors import require
from fedfa.models.resnet import Norm, ResNet18

ModelName = Literal["mlp", "cnn", "resnet18", "bert"]


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Which model, and how large."""

    name: ModelName = "mlp"
    hidden: int = 64
    """Units of the hidden layer (mlp, cnn)."""
    norm: Norm = "batch"
    """BatchNorm or GroupNorm (resnet18)."""
    width: int = 64
    """Channels of the first stage (resnet18)."""
    weights: str = ""
    """Folder with the pretrained model and its vocabulary: a path, or a name inside the data folder (bert)."""
    max_length: int = 64
    """Tokens; longer texts are cut (bert)."""
    lora_rank: int = 0
    """Rank of the LoRA adapters, which alone are trained together with the head; 0: everything is trained (bert)."""
    lora_alpha: float = 1.0
    """The adapters count lora_alpha / lora_rank times (bert)."""

    def __post_init__(self) -> None:
        require(1 <= self.hidden <= 10**6, f"hidden = {self.hidden}: must be between 1 and 1,000,000")
        good = 8 <= self.width <= 1024 and self.width % 8 == 0
        require(good, f"width = {self.width}: must be a multiple of 8, at most 1024")
        need = "bert needs a folder with pretrained weights, for example weights = 'bert-tiny'"
        require(self.name != "bert" or self.weights != "", f"weights = '': {need}")
        require(2 <= self.max_length <= 10**5, f"max_length = {self.max_length}: must be between 2 and 100,000")
        require(0 <= self.lora_rank <= 1024, f"lora_rank = {self.lora_rank}: must be between 0 and 1024")
        require(0 < self.lora_alpha < float("inf"), f"lora_alpha = {self.lora_alpha}: must be above 0, and finite")

    @property
    def label(self) -> str:
        """The model in a few words, for records."""
        if self.name == "resnet18":
            width = "" if self.width == 64 else f", width {self.width}"
            return f"resnet18 ({'BatchNorm' if self.norm == 'batch' else 'GroupNorm'}{width})"
        if self.name != "bert":
            return f"{self.name} (hidden {self.hidden})"
        lora = f" + LoRA (rank {self.lora_rank}, alpha {self.lora_alpha:g})" if self.lora_rank else ""
        return Path(self.weights).name + lora


def make(settings: ModelSettings, shape: tuple[int, ...], classes: int) -> nn.Module:
    """A model for inputs of this shape: (height, width), (channels, height, width), or (length,) in tokens."""
    if settings.name == "bert":
        from fedfa.models.bert import Bert

        return Bert(settings.weights, classes, settings.lora_rank, settings.lora_alpha)
    channels, height, width = shape if len(shape) == 3 else (1, *shape)
    image = nn.Unflatten(1, (1, height)) if len(shape) == 2 else nn.Identity()
    if settings.name == "mlp":
        return mlp(settings.hidden, channels * height * width, classes)
    if settings.name == "cnn":
        return nn.Sequential(image, *cnn(settings.hidden, channels, height, width, classes))
    return nn.Sequential(image, ResNet18(channels, classes, settings.norm, settings.width))


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
