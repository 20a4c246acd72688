"""FedNova: average the differences per local step, so that clients doing more steps do not pull harder.

Wang et al., "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization", NeurIPS 2020.

    w <- w + (sum_k p_k a_k) sum_k p_k D_k / a_k,   D_k = w_k - w_base,   a_k = (effective) local steps
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fedfa.errors import check
from fedfa.strategies.base import Flight, Update, example_weight
from fedfa.strategies.fedavg import FedAvg
from fedfa.strategies.vectors import Summand, Vector


@dataclass(kw_only=True, eq=False)
class FedNova(FedAvg):
    """Synchronous averaging of differences per local step."""

    name: ClassVar[str] = "fednova"
    paper: ClassVar[str] = "Wang et al., NeurIPS 2020"

    server_lr: float = 1.0
    """Step along the averaged difference."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.server_lr > 0, "server_lr", self.server_lr, "must be above 0")

    @property
    def update_weight(self) -> float | None:
        return self.server_lr / self.concurrency

    def aggregate(self, update: Update, in_flight: Mapping[int, Flight]) -> Vector | None:
        n_k, a_k = example_weight(update, self.weighting), update.num_steps
        self.total.add(Summand(self.delta(update), weight=n_k, head_weight=n_k / a_k, scalar=a_k))
        if self.total.count < self.concurrency:
            return None
        mean_steps = self.total.mean_scalar
        model = self.total.step_from(self.model, self.server_lr * mean_steps / self.total.weight)
        self.total.clear()
        return model
