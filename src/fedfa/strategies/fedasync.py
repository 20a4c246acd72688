"""FedAsync: mix every arriving model into the global one, with less weight the staler it is.

Xie et al., "Asynchronous Federated Optimization", 2019, arXiv:1903.03934.

    w <- (1 - b) w + b w_k,   b = beta s(tau)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fedfa.errors import check
from fedfa.strategies.base import Flight, Strategy, Update
from fedfa.strategies.staleness import Staleness, function_of
from fedfa.strategies.vectors import Vector, blend


@dataclass(kw_only=True, eq=False)
class FedAsync(Strategy):
    """Mix each arriving model into the global one."""

    name: ClassVar[str] = "fedasync"
    paper: ClassVar[str] = "Xie et al., 2019"

    beta: float = 0.6
    """Mixing weight of a fresh update."""
    staleness: Staleness = "polynomial"
    """How the weight falls with staleness: constant, polynomial or hinge."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(0 < self.beta <= 1, "beta", self.beta, "must be above 0 and at most 1")
        self._s = function_of(self.staleness)

    def aggregate(self, update: Update, in_flight: Mapping[int, Flight]) -> Vector | None:
        return blend(self.model, update.params, self.beta * self._s(self.staleness_of(update)))
