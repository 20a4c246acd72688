"""FedBuff: buffer K differences, then take one step along their mean.

Nguyen et al., "Federated Learning with Buffered Asynchronous Aggregation", AISTATS 2022.

    buffer s(tau_k) D_k;   at K:   w <- w + eta_g (1/K) sum_k s(tau_k) D_k;   clear

D_k = w_k - w_base (``origin = "base"``), or w_k - w_now (``"current"``): with the latter and constant s this is
the plain mean of K models. Refill is ``batch`` in the common frameworks and ``immediate`` in the paper.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from fedfa.core import Flight, Origin, Refill, Strategy, Update, Weighting, example_weight
from fedfa.errors import require
from fedfa.strategies.staleness import Staleness, staleness_function
from fedfa.vectors import Entry, Sum, Vector


@dataclass(kw_only=True, eq=False)
class FedBuff(Strategy):
    """One step along the mean of every K buffered differences."""

    name: ClassVar[str] = "fedbuff"
    paper: ClassVar[str] = "Nguyen et al., AISTATS 2022"

    buffer: int = 5
    """K: updates per aggregation."""
    server_lr: float = 1.0
    """eta_g: step along the buffer's mean difference."""
    staleness: Staleness = "constant"
    """How a difference's weight falls with staleness; the paper uses polynomial with a = 0.5."""
    origin: Origin = "base"
    """Differences against the model the client started from, or against the current one."""
    refill: Refill = "batch"
    """Hand out new work after each aggregation, or after each arrival."""
    weighting: Weighting = "uniform"
    """Weigh clients by their examples, or all alike."""

    total: Sum = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_buffer(self.buffer, self.concurrency, self.refill)
        require(self.server_lr > 0, f"server_lr = {self.server_lr}: must be above 0")
        self._s = staleness_function(self.staleness)

    @property
    def refill_policy(self) -> Refill:
        return self.refill

    @property
    def round_size(self) -> int:
        return self.buffer

    @property
    def update_weight(self) -> float | None:
        return self.server_lr / self.buffer

    def reset(self) -> None:
        self.total = Sum(self.model, self.num_trainable)

    def aggregate(self, update: Update, in_flight: Mapping[int, Flight]) -> Vector | None:
        n_k = example_weight(update, self.weighting)
        s = self._s(self.staleness_of(update))
        self.total.add(Entry(self.delta(update, self.origin), weight=n_k, head_weight=n_k * s))
        if self.total.count < self.buffer:
            return None
        model = self.total.step_from(self.model, self.server_lr / self.total.weight)
        self.total.clear()
        return model


def check_buffer(buffer: int, concurrency: int, refill: Refill) -> None:
    """A buffer that can never fill would leave the run waiting for ever."""
    require(buffer >= 1, f"buffer = {buffer}: must be at least 1")
    require(
        refill == "immediate" or buffer <= concurrency,
        f'buffer = {buffer}: with refill = "batch" it must not exceed concurrency = {concurrency}; '
        'lower it or set refill = "immediate"',
    )
