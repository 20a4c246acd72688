"""The paper's three workloads and two small ones, each at the paper's own scale and at one that a laptop can do.

Settings are those of an experiment file, by dotted key. Where the paper is silent: K = 5 with 10 clients in flight and
K = 2 with 5 (its seconds per round fit these), BatchNorm, and Dirichlet alpha = 5 for what it calls IID. Budgets
are a little more than its slowest strategy took; a target not reached within its budget is a failure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
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
    """Data, model and local training as the paper has them, and what to change for a quick try."""

    name: str
    title: str
    settings: Mapping[str, Any]
    smoke: Mapping[str, Any]
    splits: tuple[Split, ...]

    def table(self, split: Split, scale: Scale) -> dict[str, Any]:
        """The experiment as a table of settings."""
        target = split.smoke_target if scale == "smoke" else split.target
        settings = {
            "name": split.name,
            "data.dataset": self.name,
            "compare.target": target,
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
    },
    smoke={
        "data.fraction": 0.02,
        "data.clients": 20,
        "model.width": 8,
        "local.epochs": 3,
        "local.lr": 0.1,
        "engine.evaluate_every": 5,
        "stop.seconds": 60.0,
    },
    splits=(
        Split("cifar10-noniid", "non-IID, alpha = 0.1", 0.60, 0.16, {"data.alpha": 0.1, "stop.seconds": 12000.0}),
        Split("cifar10-iid", "IID, alpha = 5", 0.70, 0.20, {"data.alpha": 5.0, "stop.seconds": 6000.0}),
    ),
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
        Split("digits-iid", "IID, alpha = 5", 0.93, 0.85, {"data.alpha": 5.0}),
    ),
)

FEMNIST = Workload(
    name="femnist",
    title="FEMNIST, CNN",
    settings={
        "data.partition": "natural",
        "data.clients": 12,
        "model.name": "cnn",
        "local.epochs": 1,
        "local.batch_size": 32,
        "local.lr": 0.05,
        "strategy.concurrency": 5,
        "strategy.window": 3,
        "stop.seconds": 600.0,
        "engine.evaluate_every": 5,
    },
    smoke={"stop.seconds": 100.0},
    splits=(Split("femnist-natural", "natural, by writer", 0.97, 0.90),),
)

ALL = (CIFAR10, FEMNIST, DIGITS)
BY_NAME = {workload.name: workload for workload in ALL}
EMBEDDED = DIGITS


def workload(name: str) -> Workload:
    require(name in BY_NAME, f"--task {name}: {suggest(name, BY_NAME, 'must be one of')}")
    return BY_NAME[name]
