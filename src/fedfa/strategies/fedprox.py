"""FedProx: clients are pulled towards the model they started from.

Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020.

    client:   add mu (w - w_base) to every gradient; w_base is a constant
    server:   FedAvg's rule
"""

from abc import ABC
from dataclasses import dataclass
from typing import ClassVar

from fedfa.errors import check
from fedfa.strategies.base import LocalRule, Strategy
from fedfa.strategies.fedavg import FedAvg


@dataclass(kw_only=True, eq=False)
class Proximal(Strategy, ABC):
    """FedProx's client side, for any server rule."""

    prox_mu: float = 0.01
    """mu: strength of the pull."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.prox_mu >= 0, "prox_mu", self.prox_mu, "must be 0 or more")

    @property
    def local(self) -> LocalRule:
        return LocalRule(prox_mu=self.prox_mu)


@dataclass(kw_only=True, eq=False)
class FedProx(Proximal, FedAvg):
    """FedAvg whose clients are pulled towards the model they started from."""

    name: ClassVar[str] = "fedprox"
    paper: ClassVar[str] = "Li et al., MLSys 2020"
