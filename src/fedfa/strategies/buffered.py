"""What strategies with a buffer share: it fills, is spent in one step, and is empty again."""

from abc import ABC
from dataclasses import dataclass, field

from fedfa.errors import check, require
from fedfa.strategies.base import Refill, Strategy
from fedfa.strategies.vectors import Sum, Vector


@dataclass(kw_only=True, eq=False)
class Buffered(Strategy, ABC):
    """A sum of K weighted differences, and one step along it."""

    buffer: int = 5
    """K: updates per aggregation."""
    server_lr: float = 1.0
    """eta_g: step along the buffer's mean difference."""
    refill: Refill = "batch"
    """Hand out new work after each aggregation, or after each arrival."""

    total: Sum = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.buffer >= 1, "buffer", self.buffer, "must be at least 1")
        require(
            self.refill == "immediate" or self.buffer <= self.concurrency,
            f'buffer = {self.buffer}: with refill = "batch" it would never fill, for concurrency = {self.concurrency}; '
            'lower it or set refill = "immediate"',
            "buffer",
        )
        check(self.server_lr > 0, "server_lr", self.server_lr, "must be above 0")

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

    def spend(self) -> Vector:
        """w + eta_g times the weighted mean of the buffer, which is empty afterwards."""
        model = self.total.step_from(self.model, self.server_lr / self.total.weight)
        self.total.clear()
        return model
