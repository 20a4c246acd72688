"""fedfa: fully asynchronous federated learning, simulated exactly and fast.

Names are loaded when first used, so that importing the package (and ``fedfa --help``) does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from fedfa.comparison import compare as compare
    from fedfa.core import Flight as Flight
    from fedfa.core import LocalRule as LocalRule
    from fedfa.core import Orders as Orders
    from fedfa.core import Strategy as Strategy
    from fedfa.core import Update as Update
    from fedfa.engine import Stop as Stop
    from fedfa.errors import ConfigError as ConfigError
    from fedfa.errors import EngineError as EngineError
    from fedfa.errors import FedfaError as FedfaError
    from fedfa.errors import RecordError as RecordError
    from fedfa.local import LocalTraining as LocalTraining
    from fedfa.record import Run as Run
    from fedfa.replayer import Arrival as Arrival
    from fedfa.replayer import replay as replay
    from fedfa.simulator import simulate as simulate
    from fedfa.strategies import FedAsync as FedAsync
    from fedfa.strategies import FedAvg as FedAvg
    from fedfa.strategies import FedBuff as FedBuff
    from fedfa.strategies import FedFaAgree as FedFaAgree
    from fedfa.strategies import FedFaDelta as FedFaDelta
    from fedfa.strategies import FedFaNova as FedFaNova
    from fedfa.strategies import FedFaParam as FedFaParam
    from fedfa.strategies import FedFaProx as FedFaProx
    from fedfa.strategies import FedNova as FedNova
    from fedfa.strategies import FedProx as FedProx
    from fedfa.strategies import Port as Port
    from fedfa.strategies import PortNonUrgent as PortNonUrgent
    from fedfa.strategies import PortUrgent as PortUrgent
    from fedfa.strategies.staleness import Constant as Constant
    from fedfa.strategies.staleness import Hinge as Hinge
    from fedfa.strategies.staleness import Polynomial as Polynomial
    from fedfa.task import Task as Task
    from fedfa.weather import Weather as Weather

_HOME = {
    "fedfa.comparison": ("compare",),
    "fedfa.core": ("Flight", "LocalRule", "Orders", "Strategy", "Update"),
    "fedfa.errors": ("ConfigError", "EngineError", "FedfaError", "RecordError"),
    "fedfa.local": ("LocalTraining",),
    "fedfa.record": ("Run",),
    "fedfa.replayer": ("Arrival", "replay"),
    "fedfa.engine": ("Stop",),
    "fedfa.simulator": ("simulate",),
    "fedfa.strategies": (
        "FedAsync",
        "FedAvg",
        "FedBuff",
        "FedFaAgree",
        "FedFaDelta",
        "FedFaNova",
        "FedFaParam",
        "FedFaProx",
        "FedNova",
        "FedProx",
        "Port",
        "PortNonUrgent",
        "PortUrgent",
    ),
    "fedfa.strategies.staleness": ("Constant", "Hinge", "Polynomial"),
    "fedfa.task": ("Task",),
    "fedfa.weather": ("Weather",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}
__all__ = ["__version__", *_MODULE_OF]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'fedfa' has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
