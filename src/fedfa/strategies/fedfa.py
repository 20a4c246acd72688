"""FedFa: a sliding window of the last K results; a new model at every arrival, and nobody waits.

Xu et al., "FedFa: A Fully Asynchronous Training Paradigm for Federated Learning", IJCAI 2024.

    FedFa-Param    window of models:        w <- (1/K) sum_k w_k
    FedFa-Delta    window of differences:   w <- w + eta_g (1/K) sum_k D_k
                   from their bases:        w <- (1/K) sum_k w_base,k + eta_g (1/K) sum_k D_k   (the default)
    with FedProx   FedFa-Delta whose clients add mu (w - w_base) to every gradient
    with FedNova   window of D_k / a_k:     w <- w + eta_g mean(a_k) (1/K) sum_k D_k / a_k

The K-th arrival publishes version 1; until then the initial model stays, for partial means would show single
updates. Every difference sits in K windows at 1/K, so its total weight is eta_g, and M_c clients move the model at
the same time: from the model eta_g = 1/M_c makes one generation of clients move it as far as one FedAvg round, and
eta_g = 1 is the formula as printed in the paper. From the models that these clients started from instead, eta_g = 1 is
FedFa-Param, and a longer step is FedFa-Param extrapolated: their mean keeps pulling the versions together.

From the bases the step is as long as the clients surely agree, unless it is given. Of the squared length of a mean of
K differences, a part is common to all clients and the rest is chance, which K clients average down but never out:

    mean_k |D_k|^2 = common + chance        |mean_k D_k|^2 = common + chance / K

Both lengths are known, so every window tells rho = common / (common + chance), the correlation of two clients'
differences. Its mean over four generations of clients, less the standard error of that mean, stands for what they
agree on, and eta_g = 4 common / (common + chance / K), at least 1 and at most 2: twice FedFa-Param's step while half or
more of the mean difference is common, and FedFa-Param itself, bit for bit, below a quarter.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from fedfa.core import Flight, Origin, Strategy, Update, Weighting, example_weight
from fedfa.errors import require
from fedfa.strategies.fedavg import Proximal
from fedfa.strategies.staleness import Constant, Staleness, staleness_function
from fedfa.vectors import Entry, Vector, Window, blend, distance, with_tail

PAPER = "Xu et al., IJCAI 2024"
LONGEST_FROM_BASES = 2.0
"""Beyond it a step may end farther from a client's optimum than it began (docs/theory.md)."""
GAIN = 4.0
"""The step from the bases over the share of the mean difference that clients have in common."""
GENERATIONS = 4
"""The agreement is averaged over so many times M_c arrivals."""

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


@dataclass
class Agreement:
    """How far clients agree, as far as that can be told: a lower bound on the correlation of their differences."""

    memory: float
    """Over so many windows it is averaged."""
    windows: int = 0
    clients: float = 0.0
    """How many equal ones a mean difference comes to."""
    mean: float = 0.0
    """Of the correlation."""
    variance: float = 0.0

    def saw(self, mean_length: float, differences: Window) -> None:
        """A window, whose entries bring their squared lengths along."""
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
        """The running mean, less its standard error; nothing can be told from a single window."""
        if self.windows < 2:
            return 0.0
        counted = min(self.windows, 2.0 * self.memory - 1.0) / self.clients  # an update is in so many windows
        return self.mean - math.sqrt(self.variance / max(counted, 1.0))

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
class FedFaDelta(SlidingWindow):
    """A step along the mean of the last K differences, at every arrival."""

    name: ClassVar[str] = "fedfa-delta"

    server_lr: float | None = None
    """eta_g; by default 1/concurrency from the model, and from the bases between 1 and 2, as far as clients agree."""
    anchor: Anchor | None = None
    """Step from the current model or the bases' mean: the default, unless server_lr, origin or staleness is set."""
    origin: Origin = "base"
    """Differences against the model the client started from, or against the current one."""
    staleness: Staleness = "constant"
    """How a difference's weight falls with staleness."""

    bases: Window | None = field(init=False, repr=False)
    agreement: Agreement = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.server_lr is None or self.server_lr > 0, f"server_lr = {self.server_lr}: must be above 0")
        self._s = staleness_function(self.staleness)
        plain = self.origin == "base" and isinstance(self._s, Constant)
        if self.anchor is None:
            self.anchor = "bases" if plain and self.server_lr is None else "model"
        require(
            self.anchor == "model" or plain,
            "anchor = 'bases': goes with plain differences against them; leave origin and staleness out",
        )

    def reset(self) -> None:
        super().reset()
        anchored = self.anchor == "bases"
        self.bases = Window(self.model, self.num_trainable, self.window, self.one_slot_per_client) if anchored else None
        self.agreement = Agreement(GENERATIONS * self.concurrency)

    @property
    def step_size(self) -> float | None:
        """eta_g, where it does not depend on what comes in."""
        return 1.0 / self.concurrency if (self.anchor, self.server_lr) == ("model", None) else self.server_lr

    def step(self) -> float:
        """eta_g for the window as it is."""
        if self.step_size is not None:
            return self.step_size
        return min(max(GAIN * self.agreement.share, 1.0), LONGEST_FROM_BASES)

    @property
    def update_weight(self) -> float | None:
        return self.step_size if (self.anchor, self.origin) == ("model", "base") else None

    def aggregate(self, update: Update, in_flight: Mapping[int, Flight]) -> Vector | None:
        if self.bases is not None:
            n_k = example_weight(update, self.weighting)
            self.bases.add(Entry(update.base, n_k, n_k, self.norm**2, update.client))
        return super().aggregate(update, in_flight)

    def entry(self, update: Update, n_k: float) -> Entry:
        if self.bases is not None:
            return Entry(update.params, n_k, n_k, 0.0, update.client)
        s = self._s(self.staleness_of(update))
        return Entry(self.delta(update, self.origin), weight=n_k, head_weight=n_k * s, client=update.client)

    def next_model(self) -> Vector:
        if self.bases is None:
            self.step_taken = self.step()
            return self.results.step_from(self.model, self.step_taken * self.scale / self.results.weight)
        models, bases, parameters = self.results.mean(), self.bases.mean(), slice(0, self.num_trainable)
        self.agreement.saw(distance(models[parameters], bases[parameters]), self.bases)
        self.step_taken = step = self.step()
        return models if step == 1.0 else with_tail(blend(models, bases, 1.0 - step), models, self.num_trainable)

    @property
    def scale(self) -> float:
        """Times the mean of the window's entries it is a mean difference."""
        return 1.0


@dataclass(kw_only=True, eq=False)
class FedFaProx(Proximal, FedFaDelta):
    """FedFa-Delta whose clients are pulled towards the model they started from."""

    name: ClassVar[str] = "fedfa-prox"


@dataclass(kw_only=True, eq=False)
class FedFaNova(FedFaDelta):
    """FedFa-Delta on differences per local step, from the model."""

    name: ClassVar[str] = "fedfa-nova"

    anchor: Anchor | None = "model"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.anchor == "model", "anchor: differences per local step go with the model alone; leave it out")

    def entry(self, update: Update, n_k: float) -> Entry:
        entry = super().entry(update, n_k)
        entry.scalar = update.num_steps
        entry.head_weight /= update.num_steps
        return entry

    @property
    def scale(self) -> float:
        return self.results.mean_scalar
