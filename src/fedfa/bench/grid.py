"""Models, sizes of clients and strategies: every executor beside a loop written by hand, the worst case first.

The loop is what a user would write: ``copy.deepcopy`` of the model for each client, ``torch.optim``, batches by
``torch.randperm``. Both train with one torch thread, 5 local epochs and batches of 32. A first run includes everything
that fedfa prepares for a model; the later runs share it.
"""

import copy
import heapq
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fedfa
from fedfa.bench.base import Options, Row, Tell, middle, one_thread, rate, take_turns
from fedfa.errors import ConfigError
from fedfa.learning.models.bert import Bert, needed
from fedfa.learning.models.small import cnn, mlp

CLIENTS, WINDOW = 60, 5
EXECUTORS = ("auto", "inline", "batched")
Clients = list[tuple[Tensor, Tensor]]


@dataclass(frozen=True, slots=True)
class Kind:
    """A model, and data for it."""

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


MODELS: dict[str, Kind] = {
    "MLP": Kind(lambda _: mlp, (8, 8), 500, optimizers=("sgd", "momentum", "adamw")),
    "MLP + BatchNorm1d": Kind(lambda _: normed, (8, 8), 400),
    "CNN 8-16, 1x28x28": Kind(
        lambda _: partial(cnn, 64, 1, 28, 28), (1, 28, 28), 80, optimizers=("sgd", "momentum", "adamw")
    ),
    "CNN 8-16, 3x32x32": Kind(lambda _: partial(cnn, 64, 3, 32, 32), (3, 32, 32), 60),
    "embedding 200,000 x 256": Kind(
        lambda _: partial(Bag, 200_000, 256), (16,), 10, tokens=200_000, sizes=("all 8", "1 to 15")
    ),
    "BERT-tiny, LoRA": Kind(bert_tiny, (32,), 24, tokens=8000),
}
SIZES: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "all 8": lambda draws: np.full(CLIENTS, 8),
    "1 to 15": lambda draws: draws.integers(1, 16, CLIENTS),
    "all 32": lambda draws: np.full(CLIENTS, 32),
    "9 to 64": lambda draws: draws.integers(9, 65, CLIENTS),
    "lognormal": lambda draws: np.exp(draws.normal(np.log(80), 0.5, CLIENTS)).astype(int).clip(8, 400),
}
STRATEGIES: dict[str, fedfa.Strategy] = {
    "FedFa-Param, 10 in flight": fedfa.FedFaParam(concurrency=10, window=WINDOW),
    "FedAvg, 10 in flight": fedfa.FedAvg(concurrency=10),
    "FedAvg, 50 in flight": fedfa.FedAvg(concurrency=50),
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
        return f"{self.model}{optimizer}; {self.sizes}; {self.strategy}"

    @property
    def kind(self) -> Kind:
        return MODELS[self.model]

    @property
    def local(self) -> fedfa.LocalTraining:
        return fedfa.LocalTraining(**OPTIMIZERS[self.optimizer])

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


def cases(options: Options) -> Iterator[Case]:
    """All cells; ``--quick`` takes one for each model."""
    for model, kind in MODELS.items():
        for sizes in kind.sizes[1:2] if options.quick else kind.sizes:
            for strategy in list(STRATEGIES)[:1] if options.quick else STRATEGIES:
                for optimizer in kind.optimizers[:1] if options.quick else kind.optimizers:
                    if optimizer == "sgd" or (sizes == "9 to 64" and strategy.endswith("10 in flight")):
                        yield Case(model, sizes, strategy, optimizer)


def measure(options: Options, tell: Tell) -> list[Row]:
    rows = []
    with one_thread(), ExitStack() as afterwards:
        folder = Path(afterwards.enter_context(TemporaryDirectory()))
        for case in cases(options):
            if options.workloads and case.model not in options.workloads:
                continue
            try:
                model = case.kind.make(folder)
            except ConfigError as error:  # a library is missing
                tell(str(error))
                continue
            rows.append(row_of(case, model, options, partial(_tell, tell, case)))
    return sorted(rows, key=lambda row: row.ratio)


def _tell(tell: Tell, case: Case, text: str) -> None:
    tell(f"{case}: {text}")


def row_of(case: Case, model: Callable[[], nn.Module], options: Options, tell: Tell) -> Row:
    clients, strategy = case.data(), STRATEGIES[case.strategy]
    updates = max(
        case.kind.updates // (10 if options.quick else 1), strategy.concurrency if strategy.synchronous else 1
    )
    if case.sizes == "lognormal":
        updates = max(updates // 3, strategy.concurrency)
    updates -= updates % (strategy.concurrency if strategy.synchronous else 1)
    tasks = {name: case.task(model, clients) for name in EXECUTORS}
    chosen: dict[str, str] = {}

    def ours(name: str) -> None:
        run = fedfa.simulate(
            strategy, tasks[name], stop=fedfa.Stop(updates=updates),
            engine={"executor": name, "workers": 1, "evaluate_every": 10_000},
        )  # fmt: skip
        chosen[name] = run.manifest["executor"]

    ways = {"loop": partial(by_hand, case, model, clients, updates)} | {name: partial(ours, name) for name in EXECUTORS}
    rates = take_turns({name: partial(rate, updates, way) for name, way in ways.items()}, options.turns(5), tell)
    middles = {name: middle(found) for name, found in rates.items()}
    first = rates["auto"][0] / rates["loop"][0]
    best = max(middles[name] for name in EXECUTORS)
    return Row(
        str(case), "updates/s", middles["auto"], middles["loop"], "loop",
        f"auto takes {chosen['auto']}; first run {first:.2f}; " + ", ".join(
            f"{name} {middles[name] / middles['loop']:.2f}" for name in EXECUTORS[1:]
        ),
        {
            "model": case.model, "sizes": case.sizes, "strategy": case.strategy, "optimizer": case.optimizer,
            "updates": updates, "auto_takes": chosen["auto"], "rates": rates, "first_ratio": first,
            "auto_of_best": middles["auto"] / best,
        },
    )  # fmt: skip


# The loop by hand -----------------------------------------------------------------------------------------------------


def by_hand(case: Case, make: Callable[[], nn.Module], clients: Clients, updates: int) -> nn.Module:
    """The same strategy and delays, as one writes it for one experiment."""
    rng, strategy, model = np.random.default_rng(0), STRATEGIES[case.strategy], make()
    if strategy.synchronous:
        for _ in range(updates // strategy.concurrency):
            chosen = rng.choice(len(clients), strategy.concurrency, replace=False)
            trained = [_trained(case, copy.deepcopy(model), *clients[client]) for client in chosen]
            _average(model, trained, [len(clients[client][1]) for client in chosen])
        return model
    durations = 3 + rng.exponential(5, len(clients))
    idle, window, heap = list(range(len(clients))), deque[nn.Module](maxlen=WINDOW), []
    for number in range(updates + strategy.concurrency):
        now = 0.0
        if number >= strategy.concurrency:
            now, _, client, local = heapq.heappop(heap)
            window.append(_trained(case, local, *clients[client]))
            idle.append(client)
            if len(window) == WINDOW:
                _average(model, list(window), [1] * WINDOW)
        client = idle.pop(int(rng.integers(len(idle))))
        heapq.heappush(heap, (now + durations[client], number, client, copy.deepcopy(model)))
    return model


def _trained(case: Case, model: nn.Module, inputs: Tensor, targets: Tensor) -> nn.Module:
    local = case.local
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if local.optimizer == "adamw":
        optimizer: torch.optim.Optimizer = torch.optim.AdamW(trainable, lr=local.lr, weight_decay=local.weight_decay)
    else:
        optimizer = torch.optim.SGD(trainable, lr=local.lr, momentum=local.momentum)
    for _ in range(local.epochs):
        for batch in torch.randperm(len(targets)).split(local.batch_size):
            optimizer.zero_grad()
            F.cross_entropy(model(inputs[batch]), targets[batch]).backward()
            optimizer.step()
    return model


def _average(model: nn.Module, trained: list[nn.Module], weights: list[int]) -> None:
    states = [one.state_dict() for one in trained]
    shares = torch.tensor(weights, dtype=torch.float32) / sum(weights)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                tensor.copy_(sum(share * state[name] for share, state in zip(shares, states, strict=True)))  # pyright: ignore
