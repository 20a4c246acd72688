"""FedFa: a sliding window of the last K results; a new model at every arrival, and nobody waits.

Xu et al., "FedFa: A Fully Asynchronous Training Paradigm for Federated Learning", IJCAI 2024.

    FedFa-Param    window of models:        w <- (1/K) sum_k w_k
    FedFa-Delta    window of differences:   w <- w + eta_g (1/K) sum_k D_k
                   from their bases:        w <- (1/K) sum_k w_base,k + eta_g (1/K) sum_k D_k
    with FedProx   FedFa-Delta whose clients add mu (w - w_base) to every gradient
    with FedNova   window of D_k / a_k:     w <- w + eta_g mean(a_k) (1/K) sum_k D_k / a_k

The K-th arrival publishes version 1; until then the initial model stays, for partial means would show single
updates. Every difference sits in K windows at 1/K, so its total weight is eta_g, and M_c clients move the model at
the same time: eta_g = 1/M_c (the default) makes one generation of clients move it as far as one FedAvg round,
eta_g = 1 is the formula as printed in the paper. From the models that these clients started from instead, eta_g = 1 is
FedFa-Param, and a longer step is FedFa-Param extrapolated: their mean keeps pulling the versions together. It lies
M_c + (K - 1) / 2 arrivals back, so there eta_g = 1 + (K - 1) / (2 M_c) (the default, at most 2) keeps FedAvg's pace.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from fedfa.core import Flight, Origin, Strategy, Update, Weighting, example_weight
from fedfa.errors import require
from fedfa.strategies.fedavg import Proximal
from fedfa.strategies.staleness import Staleness, staleness_function
from fedfa.vectors import Entry, Vector, Window

PAPER = "Xu et al., IJCAI 2024"
LONGEST_FROM_BASES = 2.0
"""Beyond it a step may end farther from a client's optimum than it began (docs/theory.md)."""

Anchor = Literal["model", "bases"]


@dataclass(kw_only=True, eq=False)
class SlidingWindow(Strategy, ABC):
    """What all variants share: the window, and a publication at every arrival once it is full."""

    paper: ClassVar[str] = PAPER

    window: int = 5
    """K: how many results the window holds."""
    weighting: Weighting = "uniform"
    """Weigh clients by their examples, or all alike."""
    one_slot_per_client: bool = False
    """A client's new result replaces its older one in the window."""

    results: Window = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.window >= 1, f"window = {self.window}: must be at least 1")

    @property
    def round_size(self) -> int:
        return self.window

    def check_clients(self, num_clients: int) -> None:
        super().check_clients(num_clients)
        require(
            not self.one_slot_per_client or self.window <= num_clients,
            f"window = {self.window}: with one_slot_per_client it never fills from {num_clients} clients; lower it",
        )

    def reset(self) -> None:
        self.results = Window(self.model, self.num_trainable, self.window, self.one_slot_per_client)

    def aggregate(self, update: Update, in_flight: Mapping[int, Flight]) -> Vector | None:
        self.results.add(self.entry(update, example_weight(update, self.weighting)))
        return self.next_model() if self.results.count == self.window else None

    @abstractmethod
    def entry(self, update: Update, n_k: float) -> Entry:
        """What the window keeps of an update."""

    @abstractmethod
    def next_model(self) -> Vector:
        """The new global model, from the full window."""


@dataclass(kw_only=True, eq=False)
class FedFaParam(SlidingWindow):
    """The mean of the last K models, published at every arrival."""

    name: ClassVar[str] = "fedfa-param"

    def entry(self, update: Update, n_k: float) -> Entry:
        return Entry(update.params, n_k, n_k, 0.0, update.client)

    def next_model(self) -> Vector:
        return self.results.mean()


@dataclass(kw_only=True, eq=False)
class FedFaDelta(SlidingWindow):
    """A step along the mean of the last K differences, at every arrival."""

    name: ClassVar[str] = "fedfa-delta"

    server_lr: float | None = None
    """eta_g; by default FedAvg's pace, 1/concurrency from the model, 1 + (K - 1) / (2 concurrency) from the bases."""
    anchor: Anchor = "model"
    """Step from the current model, or from the mean of the models that the window's clients started from."""
    origin: Origin = "base"
    """Differences against the model the client started from, or against the current one."""
    staleness: Staleness = "constant"
    """How a difference's weight falls with staleness."""

    bases: Window | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.server_lr is None or self.server_lr > 0, f"server_lr = {self.server_lr}: must be above 0")
        require(
            self.anchor == "model" or self.origin == "base",
            "anchor = 'bases': goes with differences against them; set origin = 'base'",
        )
        self._s = staleness_function(self.staleness)

    def reset(self) -> None:
        super().reset()
        anchored = self.anchor == "bases"
        self.bases = Window(self.model, self.num_trainable, self.window, self.one_slot_per_client) if anchored else None

    @property
    def step_size(self) -> float:
        if self.server_lr is not None:
            return self.server_lr
        if self.anchor == "model":
            return 1.0 / self.concurrency
        return min(1.0 + (self.window - 1) / (2 * self.concurrency), LONGEST_FROM_BASES)

    @property
    def update_weight(self) -> float | None:
        return self.step_size if (self.anchor, self.origin) == ("model", "base") else None

    def aggregate(self, update: Update, in_flight: Mapping[int, Flight]) -> Vector | None:
        if self.bases is not None:
            n_k = example_weight(update, self.weighting)
            self.bases.add(Entry(update.base, n_k, n_k, 0.0, update.client))
        return super().aggregate(update, in_flight)

    def entry(self, update: Update, n_k: float) -> Entry:
        s = self._s(self.staleness_of(update))
        return Entry(self.delta(update, self.origin), weight=n_k, head_weight=n_k * s, client=update.client)

    def next_model(self) -> Vector:
        return self.results.step_from(self.start(), self.step_size / self.results.weight)

    def start(self) -> Vector:
        """What the step is taken from."""
        return self.model if self.bases is None else self.bases.mean()


@dataclass(kw_only=True, eq=False)
class FedFaProx(Proximal, FedFaDelta):
    """FedFa-Delta whose clients are pulled towards the model they started from."""

    name: ClassVar[str] = "fedfa-prox"


@dataclass(kw_only=True, eq=False)
class FedFaNova(FedFaDelta):
    """FedFa-Delta on differences per local step."""

    name: ClassVar[str] = "fedfa-nova"

    def entry(self, update: Update, n_k: float) -> Entry:
        entry = super().entry(update, n_k)
        entry.steps = update.num_steps
        entry.head_weight /= update.num_steps
        return entry

    def next_model(self) -> Vector:
        mean_steps = self.results.weighted_steps / self.results.weight
        return self.results.step_from(self.start(), self.step_size * mean_steps / self.results.weight)
