"""FedFa-Agree: FedFa-Param with a longer step where clients agree. An extension by this project, not the paper's.

    w <- (1/K) sum_k w_base,k + eta_g (1/K) sum_k D_k,   1 <= eta_g <= 2

With eta_g = 1 this is FedFa-Param. A longer step is FedFa-Param extrapolated; the mean of the bases keeps pulling the
versions together.

eta_g follows from a lower bound on the clients' agreement. The squared length of a mean of K differences has a part
that all clients share and a random part, which the mean over K clients reduces:

    mean_k |D_k|^2 = common + chance        |mean_k D_k|^2 = common + chance / K

Both lengths are known. So every window gives rho = common / (common + chance), the correlation of two clients'
differences. The lower bound is its running mean over 4 M_c windows, minus the standard error of that mean, and

    eta_g = 4 common / (common + chance / K), at least 1 and at most 2

docs/fedfa-agree.md has the rule as pseudo-code, related work, and the evidence with its limits.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from fedfa.errors import check
from fedfa.strategies.base import Flight, Update, example_weight
from fedfa.strategies.fedprox import Proximal
from fedfa.strategies.vectors import Summand, Vector, Window, blend, distance, with_tail
from fedfa.strategies.windowed import Windowed

LONGEST_STEP = 2.0
"""With a longer one, a step may end farther from a client's optimum than it began (docs/theory.md)."""
GAIN = 4.0
"""The step over the share of the mean difference that clients have in common."""
GENERATIONS = 4
"""The running mean covers this many times M_c windows."""


@dataclass
class Agreement:
    """A lower bound on the correlation of two clients' differences, from the windows so far."""

    memory: float
    """The running mean covers this many windows."""
    windows: int = 0
    clients: float = 0.0
    """The effective number of clients in the window, given their weights."""
    mean: float = 0.0
    """Of the correlation."""
    variance: float = 0.0
    """Of the correlation."""

    def saw(self, mean_length: float, differences: Window) -> None:
        """Use a window: the length of its mean difference, and entries whose scalars are their squared lengths."""
        self.clients = differences.weight**2 / math.fsum(entry.weight**2 for entry in differences.entries)
        if self.clients <= 1.0 or differences.mean_scalar <= 0.0:
            return
        correlation = (self.clients * mean_length**2 / differences.mean_scalar - 1.0) / (self.clients - 1.0)
        self.windows += 1
        rate = 1.0 / min(self.windows, self.memory)
        change = min(correlation, 1.0) - self.mean
        self.mean += rate * change
        self.variance = (1.0 - rate) * (self.variance + rate * change**2)

    @property
    def correlation(self) -> float:
        """The running mean minus its standard error; 0 after a single window, which has no error estimate."""
        if self.windows < 2:
            return 0.0
        # an update is in K windows, so that only one in K of them is independent
        independent = min(self.windows, 2.0 * self.memory - 1.0) / self.clients
        return self.mean - math.sqrt(self.variance / max(independent, 1.0))

    @property
    def share(self) -> float:
        """The common part of a mean difference's squared length."""
        common = max(self.correlation, 0.0)
        return common / (common + (1.0 - common) / self.clients) if common else 0.0

    def state_dict(self) -> dict[str, float]:
        return dict(vars(self))

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        vars(self).update(state)


@dataclass(kw_only=True, eq=False)
class FedFaAgree(Proximal, Windowed):
    """FedFa-Param, extrapolated further the more the clients' differences agree."""

    name: ClassVar[str] = "fedfa-agree"
    paper: ClassVar[str] = "this project: an extension of FedFa-Param"

    server_lr: float | None = None
    """eta_g, a fixed step from the bases' mean; by default from 1 to 2, longer the more clients agree."""
    prox_mu: float = 0.0
    """mu: strength of FedProx's pull."""

    bases: Window = field(init=False, repr=False)
    agreement: Agreement = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.server_lr is None or self.server_lr > 0, "server_lr", self.server_lr, "must be above 0")

    def reset(self) -> None:
        super().reset()
        self.bases = self.new_window()
        self.agreement = Agreement(GENERATIONS * self.concurrency)

    def step(self) -> float:
        """eta_g for the window as it is."""
        if self.server_lr is not None:
            return self.server_lr
        return min(max(GAIN * self.agreement.share, 1.0), LONGEST_STEP)

    def aggregate(self, update: Update, in_flight: Mapping[int, Flight]) -> Vector | None:
        n_k = example_weight(update, self.weighting)
        self.bases.add(Summand(update.base, n_k, n_k, self.norm**2, update.client))
        return super().aggregate(update, in_flight)

    def entry(self, update: Update, n_k: float) -> Summand:
        return Summand(update.params, n_k, n_k, 0.0, update.client)

    def next_model(self) -> Vector:
        models, bases, parameters = self.results.mean(), self.bases.mean(), slice(0, self.num_trainable)
        self.agreement.saw(distance(models[parameters], bases[parameters]), self.bases)
        self.step_taken = step = self.step()
        if step == 1.0:
            return models
        return with_tail(blend(models, bases, 1.0 - step), models, self.num_trainable)
