"""Ordinary models, written as people write them, and data for them."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fedfa

SIZES = (12, 10, 7)
CLASSES, WORDS = 3, 20
SHAPES: dict[str, tuple[int, ...]] = {
    "cifar": (3, 32, 32),
    "mnist": (1, 28, 28),
    "image": (3, 8, 8),
    "photo": (3, 64, 64),
    "vector": (12,),
    "sequence": (6, 4),
    "tokens": (6,),
}
seq = nn.Sequential


class Tutorial(nn.Module):
    """Of PyTorch's tutorial and of Flower's quickstart."""

    def __init__(self, flatten: Callable[[Tensor], Tensor] = lambda x: x.view(-1, 16 * 5 * 5)) -> None:
        super().__init__()
        self.conv1, self.pool, self.conv2 = nn.Conv2d(3, 6, 5), nn.MaxPool2d(2, 2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(16 * 5 * 5, 120), nn.Linear(120, 84), nn.Linear(84, CLASSES)
        self.flatten = flatten

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(self.flatten(x))))))


class Apply(nn.Module):
    """Modules by name, and what is done with them."""

    def __init__(self, forward: Callable[[Any, Tensor], Tensor], **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self._forward = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Tensor) -> Tensor:
        return self._forward(self, x)


class Tied(nn.Module):
    """The output layer has the embedding's weights."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.decoder = nn.Embedding(WORDS, 8), nn.Linear(8, WORDS, bias=False)
        self.decoder.weight = self.embedding.weight
        self.head = nn.Linear(WORDS, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.decoder(torch.tanh(self.embedding(x))).mean(1))


class Counting(nn.Module):
    """An integer and a bool buffer that are written to and read."""

    steps: Tensor
    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(12, CLASSES)
        self.register_buffer("steps", torch.tensor(0))
        self.register_buffer("seen", torch.zeros(12, dtype=torch.bool))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.steps += 1
            self.seen |= (x > 1).any(0)
        return self.layer(x * self.seen) / (1 + self.steps)


class Constants(nn.Module):
    """An integer, a bool and a non-persistent buffer that are only read; a frozen and an unused parameter."""

    order: Tensor
    mask: Tensor
    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.frozen, self.layer, self.unused = nn.Linear(12, 8), nn.Linear(8, CLASSES), nn.Linear(4, 4)
        self.frozen.requires_grad_(False)
        self.register_buffer("order", torch.arange(11, -1, -1))
        self.register_buffer("mask", torch.arange(12) % 3 > 0)
        self.register_buffer("scale", torch.tensor(0.5), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(torch.tanh(self.frozen(x[:, self.order] * self.mask))) * self.scale


class Branching(nn.Module):
    """Takes one of two ways, by its data."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(12, CLASSES), nn.Linear(12, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.one(x) if x.sum() > 3 else self.other(x)


class Containers(nn.Module):
    """A list and a dict of parameters, and a scalar one."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = nn.ParameterList([nn.Parameter(torch.randn(12, 12) / 4) for _ in range(2)])
        self.ends = nn.ParameterDict({"w": nn.Parameter(torch.randn(12, CLASSES)), "b": nn.Parameter(torch.zeros(1))})
        self.scale = nn.Parameter(torch.tensor(0.7))

    def forward(self, x: Tensor) -> Tensor:
        for step in self.steps:
            x = torch.relu(x @ step)
        return self.scale * (x @ self.ends["w"]) + self.ends["b"]


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.body = seq(nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 8, 3, padding=1, bias=False))
        self.norm, self.head = nn.BatchNorm2d(8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = F.relu(self.norm(self.body(x) + x), inplace=True)
        return self.head(F.adaptive_avg_pool2d(x, 1).view(len(x), -1))


def shared() -> nn.Module:
    layer = nn.Linear(12, 12)
    return seq(layer, nn.ReLU(), layer, nn.ReLU(), nn.Linear(12, CLASSES))


def convolutions(*middle: nn.Module, channels: int = 8) -> nn.Module:
    return seq(nn.Conv2d(3, 8, 3, padding=1), *middle, nn.GELU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
               nn.Linear(16 * channels, CLASSES))  # fmt: skip


def normalised(kind: Callable[..., nn.Module]) -> nn.Module:
    return seq(kind(nn.Conv2d(3, 8, 3)), nn.ReLU(), nn.Flatten(), kind(nn.Linear(288, CLASSES)))


def recurrent(kind: Callable[..., nn.Module], width: int, **settings: Any) -> nn.Module:
    return Apply(
        lambda m, x: m.head(m.cells(x)[0][:, -1]),
        cells=kind(4, 5, batch_first=True, **settings), head=nn.Linear(width, CLASSES),
    )  # fmt: skip


def encoder(dropout: float) -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout, batch_first=True)
    return Apply(
        lambda m, x: m.head(m.body(m.embedding(x)).mean(1)),
        embedding=nn.Embedding(WORDS, 8), body=nn.TransformerEncoder(layer, 2), head=nn.Linear(8, CLASSES),
    )  # fmt: skip


def perceptron(*middle: nn.Module) -> nn.Module:
    return seq(nn.Linear(12, 8), *middle, nn.Linear(8, CLASSES))


MODELS: dict[str, tuple[str, Callable[[], nn.Module]]] = {
    "tutorial CNN, view": ("cifar", Tutorial),
    "tutorial CNN, torch.flatten": ("cifar", lambda: Tutorial(lambda x: torch.flatten(x, 1))),
    "LeNet": (
        "mnist",
        lambda: seq(
            nn.Conv2d(1, 6, 5, padding=2), nn.Sigmoid(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Sigmoid(),
            nn.AvgPool2d(2), nn.Flatten(), nn.Linear(400, 84), nn.Sigmoid(), nn.Linear(84, CLASSES),
        ),
    ),
    "vector viewed as an image": (
        "vector",
        lambda: Apply(
            lambda m, x: m.head(m.second(torch.relu(m.conv(x.view(-1, 1, 3, 4)))).view(len(x), -1)),
            conv=nn.Conv2d(1, 4, 2), second=nn.Conv2d(4, 6, 2), head=nn.Linear(12, CLASSES),
        ),
    ),
    "image viewed as a vector": ("image", lambda: Apply(lambda m, x: m.a(x.view(-1, 192)), a=nn.Linear(192, CLASSES))),
    "tied embedding": ("tokens", Tied),
    "bidirectional LSTM": ("sequence", lambda: recurrent(nn.LSTM, 10, bidirectional=True)),
    "GRU": ("sequence", lambda: recurrent(nn.GRU, 5, num_layers=2)),
    "TransformerEncoder": ("tokens", lambda: encoder(0.0)),
    "TransformerEncoder, dropout": ("tokens", lambda: encoder(0.1)),
    "dropout": ("vector", lambda: perceptron(nn.ReLU(inplace=True), nn.Dropout(0.5))),
    "functional dropout": (
        "vector",
        lambda: Apply(lambda m, x: m.a(F.dropout(x, 0.3, m.training)), a=nn.Linear(12, CLASSES)),
    ),
    "buffers written to": ("vector", Counting),
    "buffers read": ("vector", Constants),
    "branches": ("vector", Branching),
    "shared module": ("vector", shared),
    "parameter list, dict and scalar": ("vector", Containers),
    "residual net": ("image", Residual),
    "BatchNorm1d": ("vector", lambda: perceptron(nn.BatchNorm1d(8), nn.ReLU(inplace=True))),
    "BatchNorm1d, cumulative": ("vector", lambda: perceptron(nn.BatchNorm1d(8, momentum=None), nn.ReLU())),
    "BatchNorm2d": ("image", lambda: convolutions(nn.BatchNorm2d(8))),
    "LayerNorm": ("vector", lambda: perceptron(nn.LayerNorm(8), nn.GELU())),
    "GroupNorm": ("image", lambda: convolutions(nn.GroupNorm(4, 8))),
    "InstanceNorm": ("image", lambda: convolutions(nn.InstanceNorm2d(8))),
    "InstanceNorm, statistics": (
        "image",
        lambda: convolutions(nn.InstanceNorm2d(8, affine=True, track_running_stats=True)),
    ),
    "LocalResponseNorm": ("image", lambda: convolutions(nn.LocalResponseNorm(3, alpha=0.5))),
    "weight_norm": ("image", lambda: normalised(nn.utils.parametrizations.weight_norm)),
    "spectral_norm": ("image", lambda: normalised(nn.utils.parametrizations.spectral_norm)),
    "weight_norm, old": ("image", lambda: normalised(nn.utils.weight_norm)),
    "spectral_norm, old": ("image", lambda: normalised(nn.utils.spectral_norm)),
    "depthwise": ("image", lambda: convolutions(nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 8, 1))),
    "grouped": ("image", lambda: convolutions(nn.Conv2d(8, 8, 3, groups=2, stride=2))),
    "transposed": ("image", lambda: convolutions(nn.ConvTranspose2d(8, 4, 3, stride=2), channels=4)),
    "1-d convolution": (
        "sequence",
        lambda: seq(nn.Conv1d(6, 8, 3), nn.ReLU(), nn.MaxPool1d(2), nn.Flatten(), nn.Linear(8, CLASSES)),
    ),
}  # fmt: skip


class Answer(nn.Module):
    """One of transformers' models with a head, random weights, from inputs to logits."""

    models: ClassVar[dict[str, tuple[str, str, dict[str, Any]]]] = {
        "ViT": ("image", "ViT", {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 16,
                "intermediate_size": 32, "image_size": 8, "patch_size": 4}),
        "ResNet": ("photo", "ResNet", {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1],
                   "layer_type": "basic", "hidden_act": "gelu"}),
        "ConvNeXt": ("cifar", "ConvNext", {"num_stages": 2, "hidden_sizes": [8, 16], "depths": [1, 1]}),
        "MobileNet": ("cifar", "MobileNetV1", {"depth_multiplier": 0.25, "min_depth": 4, "initializer_range": 0.3,
                      "classifier_dropout_prob": 0.0, "hidden_act": "gelu"}),
        "DistilBERT": ("tokens", "DistilBert", {"vocab_size": WORDS, "n_layers": 2, "n_heads": 2, "dim": 16,
                       "hidden_dim": 32, "dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0}),
        "GPT-2": ("tokens", "GPT2", {"vocab_size": WORDS, "n_layer": 2, "n_head": 2, "n_embd": 16, "n_positions": 8,
                  "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "pad_token_id": 0,
                  "bos_token_id": 0, "eos_token_id": 0}),
    }  # fmt: skip

    def __init__(self, name: str) -> None:
        super().__init__()
        import transformers

        self.name, (kind, family, settings) = name, self.models[name]
        task = "Sequence" if kind == "tokens" else "Image"
        config = getattr(transformers, f"{family}Config")(num_labels=CLASSES, **settings)
        self.net = getattr(transformers, f"{family}For{task}Classification")(config)

    def train(self, mode: bool = True) -> "Answer":
        """As in fine-tuning, statistics stay: with few examples, 27 such norms in a row make chaos of rounding."""
        super().train(mode)
        if self.name == "MobileNet":
            for part in self.modules():
                if isinstance(part, nn.BatchNorm2d):
                    part.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).logits


def data(kind: str, count: int, key: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(key)
    labels = torch.randint(0, CLASSES, (count,), generator=generator)
    if kind == "tokens":
        return torch.randint(1, WORDS, (count, *SHAPES[kind]), generator=generator), labels
    noise = torch.randn(count, *SHAPES[kind], generator=generator)
    return noise + labels.reshape(-1, *[1] * len(SHAPES[kind])), labels


def make_task(kind: str, model: Callable[[], nn.Module], sizes: Sequence[int] = SIZES, **local: Any) -> fedfa.Task:
    def quiet() -> nn.Module:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the old norms are deprecated, and still in use
            return model()

    clients = [data(kind, size, key) for key, size in enumerate(sizes)]
    settings = {"epochs": 2, "batch_size": 4, "lr": 0.01} | local
    return fedfa.Task(model=quiet, clients=clients, test=data(kind, 10, 99), local=fedfa.LocalTraining(**settings))


def task_of(name: str) -> fedfa.Task:
    """A small task for the model of this name."""
    if name in MODELS:
        return make_task(*MODELS[name])
    return make_task(Answer.models[name][0], lambda: Answer(name))
