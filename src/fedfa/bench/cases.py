"""The cells of the grid: models, sizes of clients, strategies and optimizers, with random data for them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import fedfa
from fedfa.errors import require
from fedfa.learning.models.bert import Bert, needed
from fedfa.learning.models.small import cnn, mlp
from fedfa.settings import suggest

CLIENTS, WINDOW = 60, 5
Clients = list[tuple[Tensor, Tensor]]


@dataclass(frozen=True, slots=True)
class Kind:
    """A model, and data for it."""

    title: str
    make: Callable[[Path], Callable[[], nn.Module]]
    """From a folder for files to a function that makes new models."""
    example: tuple[int, ...]
    """The shape of an example."""
    updates: int
    """Of one measurement: about a second for the loop, with clients of 32 examples."""
    tokens: int = 0
    """Examples are texts of this many different tokens; 0: examples are numbers."""
    sizes: tuple[str, ...] = ("all 32", "9 to 64", "lognormal")
    optimizers: tuple[str, ...] = ("sgd",)
    """All but the first are measured with the second sizes and few in flight."""
    large: bool = False
    """A million trainable parameters and more: memory is measured, too; only few clients are in flight."""


class Bag(nn.Module):
    """A large vocabulary, and one layer on the mean of a text's vectors."""

    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(tokens, width), nn.Linear(width, 10)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.embedding(ids).mean(1))


def normed() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))


def bert_tiny(folder: Path) -> Callable[[], nn.Module]:
    """A BERT of 2 layers and 128 units with random weights, and LoRA of rank 4."""
    transformers = needed("transformers")
    settings = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512}
    config = transformers.BertConfig(vocab_size=8000, num_labels=10, **settings)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        transformers.BertForSequenceClassification(config).save_pretrained(folder)
    return lambda: Bert(str(folder), 10, 4, 8.0)


EVERY_OPTIMIZER = ("sgd", "momentum", "adamw")
MODELS: dict[str, Kind] = {
    "mlp": Kind("MLP 64-64-10", lambda _: mlp, (8, 8), 500, optimizers=EVERY_OPTIMIZER),
    "mlp-batchnorm": Kind("MLP + BatchNorm1d", lambda _: normed, (8, 8), 400),
    "cnn-28": Kind(
        "CNN 8-16, 1x28x28", lambda _: partial(cnn, 64, 1, 28, 28), (1, 28, 28), 80, optimizers=EVERY_OPTIMIZER
    ),
    "cnn-32": Kind("CNN 8-16, 3x32x32", lambda _: partial(cnn, 64, 3, 32, 32), (3, 32, 32), 60),
    "embedding": Kind(
        "embedding 200,000 x 256", lambda _: partial(Bag, 200_000, 256), (16,), 10,
        tokens=200_000, sizes=("all 8", "1 to 15"), optimizers=("sgd", "adamw"), large=True,
    ),
    "bert-tiny": Kind("BERT-tiny, LoRA", bert_tiny, (32,), 24, tokens=8000),
}  # fmt: skip
SIZES: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "all 8": lambda draws: np.full(CLIENTS, 8),
    "1 to 15": lambda draws: draws.integers(1, 16, CLIENTS),
    "all 32": lambda draws: np.full(CLIENTS, 32),
    "9 to 64": lambda draws: draws.integers(9, 65, CLIENTS),
    "lognormal": lambda draws: np.exp(draws.normal(np.log(80), 0.5, CLIENTS)).astype(int).clip(8, 400),
}
FEW, MANY = 10, 50
STRATEGIES: dict[str, fedfa.Strategy] = {
    f"FedFa-Param, {FEW} in flight": fedfa.FedFaParam(concurrency=FEW, window=WINDOW),
    f"FedAvg, {FEW} in flight": fedfa.FedAvg(concurrency=FEW),
    f"FedAvg, {MANY} in flight": fedfa.FedAvg(concurrency=MANY),
}
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": {"lr": 0.05},
    "momentum": {"lr": 0.02, "momentum": 0.9},
    "adamw": {"lr": 1e-3, "optimizer": "adamw"},
}


@dataclass(frozen=True, slots=True)
class Case:
    """One cell of the grid."""

    model: str
    sizes: str
    strategy: str
    optimizer: str

    def __str__(self) -> str:
        optimizer = "" if self.optimizer == "sgd" else f", {self.optimizer}"
        return f"{self.kind.title}{optimizer}; {self.sizes}; {self.strategy}"

    @property
    def kind(self) -> Kind:
        return MODELS[self.model]

    @property
    def rule(self) -> fedfa.Strategy:
        return STRATEGIES[self.strategy]

    @property
    def local(self) -> fedfa.LocalTraining:
        return fedfa.LocalTraining(**OPTIMIZERS[self.optimizer])

    def updates(self, quick: bool) -> int:
        """Of one measurement; whole rounds of a synchronous strategy."""
        number = self.kind.updates // (10 if quick else 1) // (3 if self.sizes == "lognormal" else 1)
        whole = self.rule.concurrency if self.rule.synchronous else 1
        return max(number - number % whole, whole)

    def data(self) -> Clients:
        sizes = SIZES[self.sizes](np.random.default_rng(0))
        sizes += sizes % self.local.batch_size == 1  # BatchNorm refuses a batch of one example
        generator = torch.Generator().manual_seed(0)
        return [self._client(int(size), generator) for size in sizes]

    def _client(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        targets = torch.randint(0, 10, (size,), generator=generator)
        if not self.kind.tokens:
            return torch.rand(size, *self.kind.example, generator=generator), targets
        ids = torch.randint(1, self.kind.tokens, (size, *self.kind.example), generator=generator)
        lengths = torch.randint(4, self.kind.example[0] + 1, (size, 1), generator=generator)
        return ids * (torch.arange(self.kind.example[0]) < lengths), targets

    def task(self, model: Callable[[], nn.Module], clients: Clients) -> fedfa.Task:
        return fedfa.Task(model=model, clients=clients, test=clients[0], local=self.local)


def cases(models: Sequence[str] = (), quick: bool = False) -> Iterator[Case]:
    """All cells of these models, or of all; ``quick`` takes one for each model."""
    for model in models:
        require(model in MODELS, f"--models {model}: {suggest(model, MODELS, 'must be one of')}")
    for model in models or MODELS:
        kind = MODELS[model]
        for sizes in kind.sizes[1:2] if quick else kind.sizes:
            for strategy, rule in list(STRATEGIES.items())[: 1 if quick else 2 if kind.large else None]:
                for optimizer in kind.optimizers[: 1 if quick else None]:
                    usual = optimizer == kind.optimizers[0]
                    if usual or (sizes == kind.sizes[1] and rule.concurrency == FEW):
                        yield Case(model, sizes, strategy, optimizer)
