"""The digits job as every framework's worker gets it: the split from a file, the model, and where to report.

A worker is called as ``python by_NAME.py SPLIT REPORT MODE ROUNDS`` with a Python that has the framework, and needs
nothing but torch and numpy besides. MODE is "fedavg" (ROUNDS rounds of 10 clients) or "fedbuff" (10 in flight,
K = 5, ROUNDS times 10 updates). It evaluates after every 10 client trainings and reports what it has clocked.
"""

import json
import sys
import time
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

COHORT, BUFFER, EPOCHS, BATCH, LR = 10, 5, 5, 32, 0.1
WARM_UP = 2
"""Rounds before the clock starts: workers are started, threads spun up, caches filled."""


SPLITS = ("equal", "unequal")


def sizes_of(split: str, examples: int, generator: np.random.Generator, clients: int = 50) -> np.ndarray:
    """Equal: the same for all. Unequal: lognormal, from 9 to 64 examples."""
    if split == "equal":
        return np.full(clients, examples // clients)
    sizes = np.exp(generator.normal(np.log(26), 0.6, clients)).astype(int).clip(9, 64)
    while sizes.sum() > examples:
        sizes = np.maximum(9, sizes - (sizes < 64))  # the largest stay as they are
    return sizes


def parts_of(labels: np.ndarray, sizes: np.ndarray, generator: np.random.Generator, alpha: float = 0.5) -> np.ndarray:
    """Positions, client after client: each draws its class proportions from Dir(alpha), and takes from what is left."""
    pools = [list(generator.permutation(np.flatnonzero(labels == label))) for label in range(10)]
    taken: list[int] = []
    for size in sizes:
        wanted = generator.dirichlet(np.full(10, alpha))
        for _ in range(size):
            share = np.where([len(pool) > 0 for pool in pools], wanted + 1e-12, 0.0)
            taken.append(pools[generator.choice(10, p=share / share.sum())].pop())
    return np.array(taken)


def new_model() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


class Job:
    def __init__(self, split: str, report: str = "", mode: str = "fedavg", rounds: str = "50") -> None:
        self.report, self.mode, self.rounds = report, mode, int(rounds)
        data = np.load(split)
        starts = np.cumsum([0, *data["sizes"]])
        inputs, targets = torch.from_numpy(data["inputs"]), torch.from_numpy(data["targets"])
        self.clients = [(inputs[a:b], targets[a:b]) for a, b in pairwise(starts)]
        self.test = torch.from_numpy(data["test_inputs"]), torch.from_numpy(data["test_targets"])
        self.trainings = 0
        """Clients trained so far, where a framework's rounds are not of 10."""
        self.seen: list[tuple[float, int, float]] = []
        """When, after how many trainings, and how well."""
        torch.set_num_threads(1)

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> float:
        """Called after every 10 client trainings; the clock is read here, too."""
        model.eval()
        accuracy = float((model(self.test[0]).argmax(1) == self.test[1]).float().mean())
        model.train()
        self.saw(accuracy)
        return accuracy

    def saw(self, accuracy: float) -> None:
        self.seen.append((time.perf_counter(), self.trainings or COHORT * (len(self.seen) + 1), accuracy))

    def finish(self, *packages: str) -> None:
        """Reports the speed from the end of the warm-up to the last evaluation."""
        assert len(self.seen) == self.rounds + WARM_UP, (
            f"{len(self.seen)} evaluations instead of {self.rounds} + {WARM_UP}"
        )
        (begun, before, _), (ended, after, accuracy) = self.seen[WARM_UP - 1], self.seen[-1]
        self.write((after - before) / (ended - begun), accuracy, *packages)

    def write(self, trainings_per_second: float, accuracy: float, *packages: str, **more: Any) -> None:
        found = {
            **more,
            "trainings_per_second": trainings_per_second,
            "accuracy": accuracy,
            "versions": {name: version(name) for name in (*packages, "torch", "numpy")},
            "python": sys.version.split()[0],
        }
        Path(self.report).write_text(json.dumps(found))


def local_training(model: nn.Module, inputs: Tensor, targets: Tensor) -> None:
    """For frameworks that leave a client's training to their users, as their examples write it."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(targets)).split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs[batch]), targets[batch]).backward()
            optimizer.step()


def job() -> Job:
    return Job(*sys.argv[1:])
