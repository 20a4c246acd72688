"""FedAvg: wait for every client of the round, then average.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017.

    w <- sum_k p_k w_k,   p_k = n_k / sum n
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from fedfa.strategies.base import Flight, Refill, Strategy, Update, Weighting, example_weight
from fedfa.strategies.vectors import Sum, Summand, Vector


@dataclass(kw_only=True, eq=False)
class FedAvg(Strategy):
    """Synchronous averaging of all clients of a round."""

    name: ClassVar[str] = "fedavg"
    paper: ClassVar[str] = "McMahan et al., AISTATS 2017"
    synchronous: ClassVar[bool] = True

    weighting: Weighting = "examples"
    """Weigh clients by their examples, or equally."""

    total: Sum = field(init=False, repr=False)

    @property
    def refill_policy(self) -> Refill:
        return "batch"

    @property
    def round_size(self) -> int:
        return self.concurrency

    @property
    def update_weight(self) -> float | None:
        return 1.0 / self.concurrency

    def reset(self) -> None:
        self.total = Sum(self.model, self.num_trainable)

    def aggregate(self, update: Update, in_flight: Mapping[int, Flight]) -> Vector | None:
        n_k = example_weight(update, self.weighting)
        self.total.add(Summand(update.params, weight=n_k, head_weight=n_k))
        if self.total.count < self.concurrency:
            return None
        model = self.total.mean()
        self.total.clear()
        return model
