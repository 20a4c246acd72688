"""Local training on one client: the settings, the update rules, and the order of the batches."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedfa.errors import check
from fedfa.learning.private_torch import fused_adamw, is_batched
from fedfa.randomness import BATCHES, EPOCHS, keyed

ADAM_BETAS = (0.9, 0.999)
ADAM_EPSILON = 1e-8


@dataclass(frozen=True, slots=True)
class LocalTraining:
    """How a client trains on one dispatch."""

    epochs: int = 5
    least_epochs: int = 0
    """Above 0: clients do unequal work; each has its own number of epochs, from this one up to ``epochs``."""
    batch_size: int = 32
    lr: float = 0.1
    optimizer: Literal["sgd", "adamw"] = "sgd"
    momentum: float = 0.0
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        check(self.epochs >= 1, "epochs", self.epochs, "must be at least 1")
        check(
            0 <= self.least_epochs <= self.epochs,
            "least_epochs",
            self.least_epochs,
            f"must be between 0 and epochs = {self.epochs}",
        )
        check(self.batch_size >= 1, "batch_size", self.batch_size, "must be at least 1")
        check(0 < self.lr < float("inf"), "lr", self.lr, "must be above 0, and finite")
        check(self.optimizer in ("sgd", "adamw"), "optimizer", self.optimizer, "must be sgd or adamw")
        check(0 <= self.momentum < 1, "momentum", self.momentum, "must be at least 0 and below 1")
        check(self.weight_decay >= 0, "weight_decay", self.weight_decay, "must be 0 or more")
        check(
            self.optimizer == "sgd" or self.momentum == 0,
            "momentum",
            self.momentum,
            "adamw has its own; leave momentum out or use optimizer = 'sgd'",
        )

    @property
    def plain(self) -> bool:
        """A step is only the gradient times the learning rate."""
        return self.optimizer == "sgd" and self.momentum == 0 and self.weight_decay == 0

    def epochs_of(self, seed: int, client: int) -> int:
        """This client's number of epochs, drawn once, uniformly; its training time depends on the weather alone."""
        if not self.least_epochs:
            return self.epochs
        return self.least_epochs + keyed(seed, EPOCHS, client) % (self.epochs - self.least_epochs + 1)

    def batch_sizes(self, num_examples: int) -> list[int]:
        """Sizes of one epoch's batches; the last one gets the rest."""
        full, rest = divmod(num_examples, self.batch_size)
        return [self.batch_size] * full + [rest] * (rest > 0)

    def effective_steps(self, steps: int, prox_mu: float) -> float:
        """FedNova's a_k: how far this many steps move the model per unit of gradient."""
        if self.optimizer != "sgd" or (self.momentum == 0 and prox_mu == 0):
            return float(steps)
        velocity = total = 0.0
        for _ in range(steps):
            velocity = self.momentum * velocity + 1.0
            total = (1.0 - self.lr * prox_mu) * total + velocity
        return total

    def new_memory(self, params: Tensor) -> tuple[Tensor, ...]:
        """The optimizer's initial state."""
        if self.optimizer == "adamw":
            return torch.zeros_like(params), torch.zeros_like(params), params.new_zeros((*params.shape[:-1], 1))
        return (torch.zeros_like(params),) if self.momentum else ()

    def step(
        self, params: Tensor, gradient: Tensor, memory: tuple[Tensor, ...], base: Tensor, prox_mu: float,
        lr: Tensor | None = None,
    ) -> None:  # fmt: skip
        """One optimizer step, in place, with FedProx's pull towards ``base``; ``lr`` is the client's own, if given."""
        if prox_mu:
            gradient = gradient + prox_mu * (params - base)
        if self.optimizer == "adamw":
            first, second, count = memory
            b1, b2 = ADAM_BETAS
            count.add_(1.0)
            if not is_batched(params):  # the same in one pass over memory
                fused_adamw(
                    params, gradient.to(params.dtype), first, second, count,
                    lr=self.lr, betas=ADAM_BETAS, weight_decay=self.weight_decay, epsilon=ADAM_EPSILON,
                )  # fmt: skip
                return
            first.mul_(b1).add_(gradient, alpha=1 - b1)
            second.mul_(b2).add_(gradient * gradient, alpha=1 - b2)
            rate = self.lr if lr is None else lr
            if self.weight_decay:
                params.mul_(1 - rate * self.weight_decay)
            scale = (second / (1 - b2**count)).sqrt_().add_(ADAM_EPSILON)
            params.sub_(scale.reciprocal_().mul_(first).mul_(rate / (1 - b1**count)))
            return
        if self.weight_decay:
            gradient = gradient + self.weight_decay * params
        if self.momentum:
            (velocity,) = memory
            gradient = velocity.mul_(self.momentum).add_(gradient)
        if lr is None:
            params.add_(gradient, alpha=-self.lr)
        else:
            params.sub_(gradient * lr)


def own_seed(seed: int, client: int, nth: int) -> int:
    """For random draws during a client's n-th dispatch, such as dropout."""
    return keyed(seed, BATCHES, client, nth, 1) >> 1


def shuffled(seed: int, client: int, nth: int, num_examples: int, epochs: int) -> np.ndarray:
    """The order in which a client's n-th dispatch visits its examples: one permutation per epoch."""
    generator = np.random.Generator(np.random.Philox(key=keyed(seed, BATCHES, client, nth)))
    return generator.permuted(np.tile(np.arange(num_examples), (epochs, 1)), axis=1)
