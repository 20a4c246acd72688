"""All models by name. To add one: a file here, its settings in ``settings.py``, and a row in ``MODELS``."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torch import nn

from fedfa.learning.models.bert import Bert
from fedfa.learning.models.resnet import ResNet18
from fedfa.learning.models.settings import ModelSettings
from fedfa.learning.models.small import cnn, mlp

Shape = tuple[int, ...]
"""Of one example: (height, width), (channels, height, width), or (length,) in tokens."""


@dataclass(frozen=True, slots=True)
class ModelKind:
    """How to make a model, and what it reads."""

    make: Callable[[ModelSettings, Shape, int], nn.Module]
    """From settings, the shape of an example and the number of classes."""
    label: Callable[[ModelSettings], str]
    """The model in a few words, for records."""
    reads: Literal["images", "texts"] = "images"


def make(settings: ModelSettings, shape: Shape, classes: int) -> nn.Module:
    """A new model for examples of this shape."""
    return MODELS[settings.name].make(settings, shape, classes)


def label(settings: ModelSettings) -> str:
    """The model in a few words, for records."""
    return MODELS[settings.name].label(settings)


def _image(shape: Shape) -> tuple[nn.Module, tuple[int, int, int]]:
    """A first layer that gives images a channel where they have none, and (channels, height, width)."""
    if len(shape) == 3:
        return nn.Identity(), (shape[0], shape[1], shape[2])
    return nn.Unflatten(1, (1, shape[0])), (1, shape[0], shape[1])


def _mlp(settings: ModelSettings, shape: Shape, classes: int) -> nn.Module:
    _, (channels, height, width) = _image(shape)
    return mlp(settings.hidden, channels * height * width, classes)


def _cnn(settings: ModelSettings, shape: Shape, classes: int) -> nn.Module:
    image, size = _image(shape)
    return nn.Sequential(image, *cnn(settings.hidden, *size, classes))


def _resnet18(settings: ModelSettings, shape: Shape, classes: int) -> nn.Module:
    image, (channels, _, _) = _image(shape)
    return nn.Sequential(image, ResNet18(channels, classes, settings.norm, settings.width))


def _bert(settings: ModelSettings, shape: Shape, classes: int) -> nn.Module:
    return Bert(settings.weights, classes, settings.lora_rank, settings.lora_alpha)


def _hidden_label(settings: ModelSettings) -> str:
    return f"{settings.name} (hidden {settings.hidden})"


def _resnet_label(settings: ModelSettings) -> str:
    width = "" if settings.width == 64 else f", width {settings.width}"
    return f"resnet18 ({'BatchNorm' if settings.norm == 'batch' else 'GroupNorm'}{width})"


def _bert_label(settings: ModelSettings) -> str:
    lora = f" + LoRA (rank {settings.lora_rank}, alpha {settings.lora_alpha:g})" if settings.lora_rank else ""
    return Path(settings.weights).name + lora


MODELS: dict[str, ModelKind] = {
    "mlp": ModelKind(_mlp, _hidden_label),
    "cnn": ModelKind(_cnn, _hidden_label),
    "resnet18": ModelKind(_resnet18, _resnet_label),
    "bert": ModelKind(_bert, _bert_label, reads="texts"),
}
