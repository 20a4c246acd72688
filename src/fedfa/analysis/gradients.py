"""Gradients of single clients at some models, and the constants of the paper's bound that they show.

    f          mean of the clients' losses F_k, all alike, weight decay included
    G          the largest |grad F_k|^2
    sigma_g^2  mean over clients of |grad F_k - grad f|^2; the largest over the models
    sigma_l^2  mean over clients and mini-batches of |g_k - grad F_k|^2; the largest over the models
    L          the largest |grad f(w) - grad f(v)| / |w - v|, between models and in short steps around each

All are taken at the models given, so they are at most what the theorem asks for everywhere; L is that of f, and a
single client's can be larger.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedfa.errors import EngineError, in_a_line, require
from fedfa.learning.task import EVALUATION_BATCH, Task

MOST_CLIENTS = 50
"""Most clients that give gradients; if there are more, this many are drawn at random."""
MOST_BATCHES = 8
"""Mini-batches per client and model."""
PROBES = 3
"""Short steps around each model: along the gradient first, then each time along the change of the gradient."""
PROBE_LENGTH = 1e-3
"""The length of such a step, in lengths of the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """Measurements from gradients at some models of a run; models with gradients that are not finite are left out."""

    losses: tuple[float, ...]
    """f at each model"""
    norms: tuple[float, ...]
    """|grad f|^2 at each model"""
    smoothness: float
    """L"""
    gradient_bound: float
    """G"""
    local_variance: float
    """sigma_l^2"""
    global_variance: float
    """sigma_g^2"""
    least: float
    """The value used for f*: 0 for cross-entropy, its lower bound; else the smallest f of the models."""
    least_is_known: bool
    clients: int
    """The number of clients that gave gradients."""

    @property
    def gap(self) -> float:
        """f(w_0) - f*"""
        return self.losses[0] - self.least

    @property
    def finite(self) -> bool:
        return all(map(math.isfinite, self.norms))


class ClientGradients:
    """Losses and gradients of single clients, in train mode as in training; no model's buffers change."""

    def __init__(self, task: Task, seed: int, clients: Sequence[int]) -> None:
        self._task, self._seed, self.clients = task, seed, clients
        self._bound = task.flat_module(task.build(seed))
        self.num_trainable = len(self._bound.trainable)

    def at(self, model: np.ndarray, chunks: Sequence[Tensor]) -> tuple[float, np.ndarray]:
        """Loss and gradient over the examples at these positions."""
        task, bound, decay = self._task, self._bound, self._task.local.weight_decay
        bound.load(torch.from_numpy(model))
        gradient = torch.zeros(self.num_trainable, dtype=torch.float64)
        total, value = sum(map(len, chunks)), 0.0
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # the same draws (of dropout) everywhere: differences then come only from the model
            for chunk in chunks:
                loss = task.loss(bound.module(task.inputs[chunk]), task.targets[chunk]) * (len(chunk) / total)
                gradient += bound.layout.joined(bound.gradients(loss))
                value += float(loss.detach())
        weights = bound.trainable.detach().double()
        return value + decay / 2 * float(weights @ weights), (gradient + decay * weights).numpy()

    def whole(self, model: np.ndarray, client: int) -> tuple[float, np.ndarray]:
        """F_k and its gradient."""
        rows = torch.cat(self._task.batches(self._seed, client, 0, 1)).sort().values
        try:
            return self.at(model, rows.split(EVALUATION_BATCH))
        except Exception as error:  # code of the user's own
            raise EngineError(f"client {client}: the gradient of its loss raised {in_a_line(error)}") from error

    def mean(self, model: np.ndarray) -> np.ndarray:
        """grad f"""
        return sum((self.whole(model, client)[1] for client in self.clients), np.zeros(self.num_trainable)) / len(
            self.clients
        )

    def noise(self, model: np.ndarray, client: int, nth: int, whole: np.ndarray) -> float:
        """Mean of |g_k - grad F_k|^2 over some of the batches that the client's n-th dispatch would see."""
        task = self._task
        if len(task.local.batch_sizes(task.sizes[client])) == 1:
            return 0.0
        batches = task.batches(self._seed, client, nth, task.local.epochs)
        chosen = np.random.default_rng([self._seed, client, nth]).permutation(len(batches))[:MOST_BATCHES]
        return float(np.mean([_square(self.at(model, [batches[number]])[1] - whole) for number in chosen]))


def measure(
    task: Task, models: Iterable[np.ndarray], seed: int, measured: Callable[[str], None] = lambda text: None
) -> Constants:
    """The bound's constants from gradients at these models, the initial one first."""
    with np.errstate(over="ignore", invalid="ignore"):  # of a run that diverged
        return _measure(task, models, seed, measured)


def _measure(task: Task, models: Iterable[np.ndarray], seed: int, measured: Callable[[str], None]) -> Constants:
    drawn = np.random.default_rng(seed).permutation(task.num_clients)[:MOST_CLIENTS]
    gradients = ClientGradients(task, seed, sorted(drawn.tolist()))
    losses, norms, between, within = [], [], [], []
    largest = smoothness = 0.0
    seen: list[tuple[np.ndarray, np.ndarray]] = []
    for nth, model in enumerate(models):
        total, values, squares, noises = np.zeros(gradients.num_trainable), [], [], []
        for client in gradients.clients:
            value, gradient = gradients.whole(model, client)
            total += gradient
            values.append(value)
            squares.append(_square(gradient))
            noises.append(gradients.noise(model, client, nth, gradient))
        mean = total / len(gradients.clients)
        losses.append(float(np.mean(values)))
        norms.append(_square(mean))
        measured(f"loss {losses[-1]:.3g}")
        if not math.isfinite(norms[-1] + max(squares)):
            continue
        largest = max(largest, *squares)
        between.append(max(0.0, float(np.mean(squares)) - norms[-1]))
        within.append(float(np.mean(noises)))
        smoothness = max(smoothness, _curvature(gradients, model, mean))
        seen.append((model[: gradients.num_trainable], mean))
    require(len(seen) > 0, "no model of the run has finite gradients, not even the first; look at the task's loss")
    for (here, slope), (there, other) in combinations(seen, 2):
        smoothness = max(smoothness, _quotient(here, slope, there, other))
    known = task.loss is F.cross_entropy or isinstance(task.loss, nn.CrossEntropyLoss)
    return Constants(
        losses=tuple(losses),
        norms=tuple(norms),
        smoothness=smoothness,
        gradient_bound=largest,
        local_variance=max(within),
        global_variance=max(between),
        least=0.0 if known else min(filter(math.isfinite, losses)),
        least_is_known=known,
        clients=len(gradients.clients),
    )


def _curvature(gradients: ClientGradients, model: np.ndarray, slope: np.ndarray) -> float:
    """The largest change of grad f per length, in a few short steps towards the direction of the largest change."""
    split, largest, direction = gradients.num_trainable, 0.0, slope
    length = PROBE_LENGTH * max(1.0, math.sqrt(_square(model[:split])))
    for _ in range(PROBES):
        size = math.sqrt(_square(direction))
        if not 0 < size < math.inf:
            break
        moved = model.copy()
        moved[:split] += (length / size * direction).astype(model.dtype)
        there = gradients.mean(moved)
        largest = max(largest, _quotient(model[:split], slope, moved[:split], there))
        direction = there - slope
    return largest


def _quotient(here: np.ndarray, slope: np.ndarray, there: np.ndarray, other: np.ndarray) -> float:
    """|grad f(w) - grad f(v)| / |w - v|; 0 if that has no meaning."""
    rise, run = _square(other - slope), _square(there.astype(np.float64) - here)
    return math.sqrt(rise / run) if run > 0 and math.isfinite(rise / run) else 0.0


def _square(vector: np.ndarray) -> float:
    """|v|^2, in double precision."""
    wide = vector.astype(np.float64, copy=False)
    return float(wide @ wide)
