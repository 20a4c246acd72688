"""One file per paper. To add a strategy: one file, one row in ``ALL``, one paragraph in docs/strategies.md."""

from fedfa.core import Strategy
from fedfa.strategies.fedasync import FedAsync
from fedfa.strategies.fedavg import FedAvg
from fedfa.strategies.fedbuff import FedBuff
from fedfa.strategies.fedfa import FedFaDelta, FedFaNova, FedFaParam, FedFaProx
from fedfa.strategies.fedfa_agree import FedFaAgree
from fedfa.strategies.fednova import FedNova
from fedfa.strategies.fedprox import FedProx
from fedfa.strategies.port import Port, PortNonUrgent, PortUrgent

ALL: tuple[type[Strategy], ...] = (
    FedAvg,
    FedProx,
    FedNova,
    FedAsync,
    FedBuff,
    Port,
    PortNonUrgent,
    PortUrgent,
    FedFaParam,
    FedFaDelta,
    FedFaProx,
    FedFaNova,
    FedFaAgree,
)
BY_NAME: dict[str, type[Strategy]] = {strategy.name: strategy for strategy in ALL}
