"""FedBuff: buffer K differences, then take one step along their mean.

Nguyen et al., "Federated Learning with Buffered Asynchronous Aggregation", AISTATS 2022.

    buffer s(tau_k) D_k;   at K:   w <- w + eta_g (1/K) sum_k s(tau_k) D_k;   clear

D_k = w_k - w_base, s(tau) = (1 + tau)^-1/2, and every arrival hands out new work: this is how its authors define and
run it. Frameworks run other rules under this name. ``origin = "current"`` takes D_k = w_k - w_now; with constant s
this is the plain mean of K models. ``refill = "batch"`` hands out new work only after an aggregation.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fedfa.strategies.base import Flight, Origin, Refill, Update, Weighting, example_weight
from fedfa.strategies.buffered import Buffered
from fedfa.strategies.staleness import Staleness, function_of
from fedfa.strategies.vectors import Summand, Vector


@dataclass(kw_only=True, eq=False)
class FedBuff(Buffered):
    """One step along the mean of every K buffered differences."""

    name: ClassVar[str] = "fedbuff"
    paper: ClassVar[str] = "Nguyen et al., AISTATS 2022"

    refill: Refill = "immediate"
    """Hand out new work after each arrival, or after each aggregation."""
    staleness: Staleness = "polynomial"
    """How a difference's weight falls with staleness: constant, polynomial or hinge."""
    origin: Origin = "base"
    """Differences against the model the client started from, or against the current one."""
    weighting: Weighting = "uniform"
    """Weigh clients by their examples, or equally."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._s = function_of(self.staleness)

    @property
    def update_weight(self) -> float | None:
        return super().update_weight if self.origin == "base" else None

    def aggregate(self, update: Update, in_flight: Mapping[int, Flight]) -> Vector | None:
        n_k = example_weight(update, self.weighting)
        s = self._s(self.staleness_of(update))
        self.total.add(Summand(self.delta(update, self.origin), weight=n_k, head_weight=n_k * s))
        return self.spend() if self.total.count == self.buffer else None
