"""Port: weigh buffered differences by examples, freshness and agreement; optionally wait for the laggards.

Su and Li, "How Asynchronous can Federated Learning Be?", IWQoS 2022.

    at K:   w <- w + sum_k a_k D_k,   a_k ~ p_k [ sim_w (cos_k + 1)/2 + stale_w B/(tau_k + B) ],   sum a_k = 1

cos_k is taken between D_k and (w_now - w_base), and is 1 where tau_k = 0. No version appears while the buffer
fills, so tau_k and cos_k are known at arrival, and only the running sum is kept.

``laggards``: what to do when an aggregation would leave a client that is still training more than B versions
behind. ``wait`` for it (Port-Non-Urgent); ``recall`` it, so that it reports at the end of its current local epoch,
and wait for that (Port-Urgent); or ``ignore`` it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from fedfa.errors import check, require
from fedfa.strategies.base import Flight, Orders, Update, Weighting, example_weight
from fedfa.strategies.buffered import Buffered
from fedfa.strategies.vectors import Summand, Vector, cosine, difference


@dataclass(kw_only=True, eq=False)
class Port(Buffered):
    """Buffered differences, weighted by examples, freshness and agreement."""

    name: ClassVar[str] = "port"
    paper: ClassVar[str] = "Su and Li, IWQoS 2022"

    staleness_bound: int = 10
    """B: versions a client may fall behind."""
    similarity_weight: float = 1.0
    """sim_w: how much agreement with the model's recent movement counts."""
    staleness_weight: float = 1.0
    """stale_w: how much freshness counts."""
    laggards: Literal["ignore", "wait", "recall"] = "ignore"
    """What to do about a client about to fall more than B versions behind: ignore, wait or recall."""
    weighting: Weighting = "examples"
    """Weigh clients by their examples, or equally."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.staleness_bound >= 1, "staleness_bound", self.staleness_bound, "must be at least 1")
        require(
            min(self.similarity_weight, self.staleness_weight) >= 0 < self.similarity_weight + self.staleness_weight,
            f"similarity_weight = {self.similarity_weight}, staleness_weight = {self.staleness_weight}: "
            "must be 0 or more, and not both 0",
            "similarity_weight",
        )

    def aggregate(self, update: Update, in_flight: Mapping[int, Flight]) -> Vector | None:
        delta, tau, bound = self.delta(update), self.staleness_of(update), self.staleness_bound
        if tau == 0:
            cos = 1.0
        else:
            drift = difference(self.model, update.base)
            cos = cosine(delta[: self.num_trainable], drift[: self.num_trainable])
        a_k = example_weight(update, self.weighting) * max(
            self.similarity_weight * (cos + 1) / 2 + self.staleness_weight * bound / (tau + bound),
            1e-9,  # a buffer of exact opposites only must still have a mean
        )
        self.total.add(Summand(delta, weight=a_k, head_weight=a_k))
        return self._model_if_due(update.client, in_flight)

    def lost(self, client: int, in_flight: Mapping[int, Flight]) -> Orders:
        """The lost client may be the one that the aggregation waits for."""
        model = self._model_if_due(client, in_flight)
        if model is None:
            return super().lost(client, in_flight)
        orders = self._publish(model, in_flight)
        batch = self.refill_policy == "batch"
        return Orders(start=orders.start + 1 if batch else 1, published=True)

    @property
    def may_recall(self) -> bool:
        return self.laggards == "recall"

    def recalls(self, in_flight: Mapping[int, Flight]) -> tuple[int, ...]:
        due = self.may_recall and self.total.count >= self.buffer
        return self._laggards(in_flight) if due else ()

    def _model_if_due(self, arrived: int, in_flight: Mapping[int, Flight]) -> Vector | None:
        if self.total.count < self.buffer:
            return None
        if self.laggards != "ignore" and any(client != arrived for client in self._laggards(in_flight)):
            return None
        return self.spend()

    def _laggards(self, in_flight: Mapping[int, Flight]) -> tuple[int, ...]:
        oldest_allowed = self.version + 1 - self.staleness_bound
        return tuple(client for client, flight in in_flight.items() if flight.base_version < oldest_allowed)


@dataclass(kw_only=True, eq=False)
class PortNonUrgent(Port):
    """Port that waits for clients about to fall too far behind."""

    name: ClassVar[str] = "port-non-urgent"
    laggards: Literal["ignore", "wait", "recall"] = "wait"


@dataclass(kw_only=True, eq=False)
class PortUrgent(Port):
    """Port that calls back clients about to fall too far behind."""

    name: ClassVar[str] = "port-urgent"
    laggards: Literal["ignore", "wait", "recall"] = "recall"
