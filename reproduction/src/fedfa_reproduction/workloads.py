"""The paper's three workloads and some of our own, each at the paper's scale and at a scale for laptops.

Settings are those of an experiment file, by dotted key. Where the paper is silent: K = 5 with 10 clients in flight and
K = 2 with 5 (its seconds per round fit these), BatchNorm, clients of equal size, Dirichlet alpha = 5 for what it calls
IID, alpha = 0.5 for SST-2, and AdamW for both BERTs. Budgets are a little more than the paper's slowest strategy took;
a target not reached within its budget is a failure. Substitutes for missing weights or data are named with the numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from fedfa.errors import require
from fedfa.settings import override, suggest

Scale = Literal["smoke", "full"]


@dataclass(frozen=True, slots=True)
class Split:
    """A workload with one way to split its data: one column of the paper's tables."""

    name: str
    """Also its key in paper.toml, where the paper has it."""
    title: str
    target: float
    smoke_target: float
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Workload:
    """Data, model and local training as in the paper, and the changes for a quick try."""

    name: str
    title: str
    settings: Mapping[str, Any]
    smoke: Mapping[str, Any]
    splits: tuple[Split, ...]
    dataset: str = ""
    """The data set, if its name is not the workload's."""
    weights: tuple[str, ...] = ()
    """Folders with pretrained weights, inside the data folder: the first existing one is used."""
    smoke_weights: tuple[str, ...] = ()
    search: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the short runs that look for good settings, at full scale."""
    sweep: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the runs that vary K or M_c, at full scale."""
    same_time: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the runs that get the same time on the hardest split, at full scale; empty: all of its time."""

    def titled(self, split: Split) -> str:
        return f"{self.title}, {split.title}" if split.title else self.title

    def table(self, split: Split, scale: Scale) -> dict[str, Any]:
        """The experiment as a table of settings."""
        target = split.smoke_target if scale == "smoke" else split.target
        settings = {
            "name": split.name,
            "data.dataset": self.dataset or self.name,
            "compare.target": target,
            "data.size_sigma": 0.0,
            **self.settings,
            **split.settings,
            **(self.smoke if scale == "smoke" else {}),
        }
        table: dict[str, Any] = {}
        for key, value in settings.items():
            override(table, key.split("."), value)
        return table


CIFAR10 = Workload(
    name="cifar10",
    title="CIFAR-10, ResNet-18",
    settings={
        "data.clients": 100,
        "data.partition": "dirichlet",
        "model.name": "resnet18",
        "local.epochs": 10,
        "local.batch_size": 32,
        "local.lr": 0.01,
        "strategy.concurrency": 10,
        "strategy.window": 5,
        "engine.evaluate_every": 20,
        "engine.device": "auto",
        "stop.diverged_below": 0.2,
    },
    smoke={
        "data.fraction": 0.02,
        "data.clients": 20,
        "model.width": 8,
        "local.epochs": 2,
        "local.lr": 0.1,
        "engine.evaluate_every": 5,
        "stop.seconds": 60.0,
    },
    splits=(
        Split(
            "cifar10-noniid",
            "non-IID, alpha = 0.1",
            0.60,
            0.15,
            {"data.alpha": 0.1, "stop.seconds": 12000.0, "stop.diverged_updates": 1000},
        ),
        Split(
            "cifar10-iid",
            "IID, alpha = 5",
            0.70,
            0.18,
            {"data.alpha": 5.0, "stop.seconds": 6000.0, "stop.diverged_below": 0.3, "stop.diverged_updates": 300},
        ),
    ),
    search={"compare.target": 0.60, "stop.updates": 340, "stop.seconds": None, "stop.diverged_updates": 160},
    sweep={"stop.seconds": 500.0},
    same_time={"stop.seconds": 1000.0},
)

CIFAR10_NARROW = replace(
    CIFAR10,
    name="cifar10-narrow",
    title="CIFAR-10, narrow ResNet-18",
    dataset="cifar10",
    settings={**CIFAR10.settings, "model.width": 16, "engine.precision": "bf16"},
    smoke={**CIFAR10.smoke, "engine.precision": "auto"},
    splits=tuple(
        replace(split, name=split.name.replace("cifar10", "cifar10-narrow"), target=target)
        for split, target in zip(CIFAR10.splits, (0.40, 0.60), strict=True)
    ),
    same_time={"stop.seconds": 500.0},
)
"""The paper's own with a quarter of the channels: a CPU can run it in an hour."""

CIFAR10_CNN = Workload(
    name="cifar10-cnn",
    title="CIFAR-10, small CNN",
    dataset="cifar10",
    settings={
        "data.clients": 100,
        "data.partition": "dirichlet",
        "model.name": "cnn",
        "local.epochs": 2,
        "local.batch_size": 32,
        "local.lr": 0.1,
        "strategy.concurrency": 10,
        "strategy.window": 5,
        "engine.evaluate_every": 20,
        "engine.device": "auto",
        "stop.seconds": 1000.0,
        "stop.diverged_below": 0.15,
        "stop.diverged_updates": 300,
    },
    smoke={
        "data.fraction": 0.02,
        "data.clients": 20,
        "engine.evaluate_every": 5,
        "stop.seconds": 60.0,
    },
    splits=(
        Split("cifar10-cnn-noniid", "non-IID, alpha = 0.1", 0.40, 0.12, {"data.alpha": 0.1}),
        Split("cifar10-cnn-iid", "IID, alpha = 5", 0.55, 0.15, {"data.alpha": 5.0}),
    ),
    search={"compare.target": 0.50, "stop.updates": 300, "stop.seconds": None, "stop.diverged_updates": 160},
    sweep={"stop.seconds": 300.0},
)

SENT140 = Workload(
    name="sent140",
    title="Sent140, BERT-tiny",
    settings={
        "data.clients": 0,
        "data.partition": "natural",
        "data.min_examples": 90,  # of 100, every tenth is held out for testing
        "data.max_examples": 300,
        "model.name": "bert",
        "local.epochs": 15,
        "local.batch_size": 5,
        "local.lr": 4e-4,
        "local.optimizer": "adamw",
        "strategy.concurrency": 10,
        "strategy.window": 5,
        "stop.seconds": 1500.0,
        "stop.diverged_below": 0.6,  # a constant answer is right for 57 % of the available tweets
        "stop.diverged_updates": 200,
        "engine.evaluate_every": 10,
        "engine.device": "auto",
    },
    smoke={
        "data.fraction": 0.5,
        "data.clients": 1000,
        "data.partition": "dirichlet",
        "data.alpha": 5.0,
        "model.lora_rank": 8,
        "model.lora_alpha": 16.0,
        "local.epochs": 1,
        "local.lr": 2e-3,
        "stop.seconds": 40.0,
        "stop.diverged_updates": None,
        "stop.diverged_below": None,
    },
    splits=(Split("sent140-noniid", "", 0.71, 0.59),),
    weights=("bert-tiny",),
    smoke_weights=("bert-tiny",),
)

SST2 = Workload(
    name="sst2",
    title="SST-2, BERT with LoRA",
    settings={
        "data.clients": 10,
        "data.partition": "dirichlet",
        "data.alpha": 0.5,
        "model.name": "bert",
        "model.lora_rank": 1,
        "model.lora_alpha": 1.0,
        "local.epochs": 1,
        "local.batch_size": 32,
        "local.lr": 1e-4,
        "local.optimizer": "adamw",
        "strategy.concurrency": 5,
        "strategy.window": 2,
        "stop.seconds": 5000.0,
        "engine.evaluate_every": 5,
        "engine.device": "auto",
    },
    smoke={
        "data.clients": 200,
        "data.alpha": 5.0,
        "model.lora_rank": 8,
        "model.lora_alpha": 16.0,
        "local.lr": 3e-3,
        "strategy.window": 3,
        "stop.seconds": 40.0,
    },
    splits=(Split("sst2-noniid", "", 0.85, 0.60),),
    weights=("bert-base-uncased", "bert-base", "minilm-l6", "mpnet-base", "bert-tiny"),
    smoke_weights=("bert-tiny", "minilm-l6", "bert-base-uncased", "bert-base", "mpnet-base"),
    same_time={"stop.seconds": 300.0},
)

DIGITS = Workload(
    name="digits",
    title="Digits, MLP (embedded)",
    settings={
        "strategy.concurrency": 10,
        "strategy.window": 5,
        "stop.seconds": 1200.0,
    },
    smoke={"stop.seconds": 300.0, "engine.evaluate_every": 5},
    splits=(
        Split("digits-noniid", "non-IID, alpha = 0.1", 0.85, 0.70, {"data.alpha": 0.1}),
        Split("digits-iid", "IID, alpha = 5", 0.93, 0.80, {"data.alpha": 5.0}),
    ),
)

FEMNIST = Workload(
    name="femnist",
    title="FEMNIST, CNN",
    settings={
        "data.partition": "natural",
        "data.clients": 12,
        "model.name": "cnn",
        "local.epochs": 5,
        "local.batch_size": 32,
        "local.lr": 0.1,
        "strategy.concurrency": 5,
        "strategy.window": 3,
        "stop.seconds": 600.0,
        "engine.evaluate_every": 5,
    },
    smoke={"local.epochs": 3, "local.lr": 0.2, "stop.seconds": 100.0},
    splits=(Split("femnist-natural", "natural, by writer", 0.95, 0.80),),
)

THE_PAPERS = ("cifar10", "sent140", "sst2")
ALL = (CIFAR10, SENT140, SST2, CIFAR10_NARROW, CIFAR10_CNN, FEMNIST, DIGITS)
BY_NAME = {workload.name: workload for workload in ALL}
EMBEDDED = DIGITS


def workload_of(config: Mapping[str, Any]) -> str:
    """The workload of a run's experiment; if there is none, its data set."""
    own = (one.name for one in ALL for split in one.splits if split.name == config["name"])
    return next(own, config["data"]["dataset"])


def workload(name: str) -> Workload:
    require(name in BY_NAME, f"--task {name}: {suggest(name, BY_NAME, 'must be one of')}")
    return BY_NAME[name]
