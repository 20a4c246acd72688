"""FedFa: a sliding window of the last K results, and a new model at every arrival.

Xu et al., "FedFa: A Fully Asynchronous Training Paradigm for Federated Learning", IJCAI 2024.

    FedFa-Param    window of models:        w <- (1/K) sum_k w_k
    FedFa-Delta    window of differences:   w <- w + eta_g (1/K) sum_k D_k,   D_k = w_k - w_base
    with FedProx   FedFa-Delta whose clients add mu (w - w_base) to every gradient
    with FedNova   window of D_k / a_k:     w <- w + eta_g mean(a_k) (1/K) sum_k D_k / a_k

Every difference is in K windows at 1/K, so its total weight is eta_g. M_c clients train at the same time, on models
that do not contain each other's work. With eta_g = 1/M_c, the default, one generation of clients moves the model as far
as one FedAvg round does. eta_g = 1, as printed in the paper, moves it M_c times as far.
"""

from dataclasses import dataclass
from typing import ClassVar

from fedfa.errors import check
from fedfa.strategies.base import Origin, Update
from fedfa.strategies.fedprox import Proximal
from fedfa.strategies.staleness import Staleness, function_of
from fedfa.strategies.vectors import Summand, Vector
from fedfa.strategies.windowed import Windowed

PAPER = "Xu et al., IJCAI 2024"


@dataclass(kw_only=True, eq=False)
class FedFaParam(Windowed):
    """The mean of the last K models, published at every arrival."""

    name: ClassVar[str] = "fedfa-param"
    paper: ClassVar[str] = PAPER

    def entry(self, update: Update, n_k: float) -> Summand:
        return Summand(update.params, n_k, n_k, 0.0, update.client)

    def next_model(self) -> Vector:
        return self.results.mean()


@dataclass(kw_only=True, eq=False)
class FedFaDelta(Windowed):
    """A step along the mean of the last K differences, at every arrival."""

    name: ClassVar[str] = "fedfa-delta"
    paper: ClassVar[str] = PAPER

    server_lr: float | None = None
    """eta_g; by default 1/concurrency, FedAvg's step. 1.0 is as printed in the paper."""
    origin: Origin = "base"
    """Differences against the model the client started from, or against the current one."""
    staleness: Staleness = "constant"
    """How a difference's weight falls with staleness."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.server_lr is None or self.server_lr > 0, "server_lr", self.server_lr, "must be above 0")
        self._s = function_of(self.staleness)

    @property
    def step_size(self) -> float:
        """eta_g"""
        return 1.0 / self.concurrency if self.server_lr is None else self.server_lr

    @property
    def update_weight(self) -> float | None:
        return self.step_size if self.origin == "base" else None

    def entry(self, update: Update, n_k: float) -> Summand:
        s = self._s(self.staleness_of(update))
        return Summand(self.delta(update, self.origin), weight=n_k, head_weight=n_k * s, client=update.client)

    def next_model(self) -> Vector:
        self.step_taken = self.step_size
        return self.results.step_from(self.model, self.step_taken * self.scale / self.results.weight)

    @property
    def scale(self) -> float:
        """What the mean of the entries is multiplied by to give a mean difference."""
        return 1.0


@dataclass(kw_only=True, eq=False)
class FedFaProx(Proximal, FedFaDelta):
    """FedFa-Delta whose clients are pulled towards the model they started from."""

    name: ClassVar[str] = "fedfa-prox"


@dataclass(kw_only=True, eq=False)
class FedFaNova(FedFaDelta):
    """FedFa-Delta on differences per local step."""

    name: ClassVar[str] = "fedfa-nova"

    def entry(self, update: Update, n_k: float) -> Summand:
        entry = super().entry(update, n_k)
        entry.scalar = update.num_steps
        entry.head_weight /= update.num_steps
        return entry

    @property
    def scale(self) -> float:
        return self.results.mean_scalar
