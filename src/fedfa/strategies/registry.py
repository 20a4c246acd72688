"""All strategies by name. To add one: a file here, and a row in ``STRATEGIES``."""

from fedfa.strategies.base import Strategy
from fedfa.strategies.fedasync import FedAsync
from fedfa.strategies.fedavg import FedAvg
from fedfa.strategies.fedbuff import FedBuff
from fedfa.strategies.fedfa import FedFaDelta, FedFaNova, FedFaParam, FedFaProx
from fedfa.strategies.fedfa_agree import FedFaAgree
from fedfa.strategies.fednova import FedNova
from fedfa.strategies.fedprox import FedProx
from fedfa.strategies.port import Port, PortNonUrgent, PortUrgent

STRATEGIES: dict[str, type[Strategy]] = {
    strategy.name: strategy
    for strategy in (
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
}
