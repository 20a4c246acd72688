"""fedfa: fully asynchronous federated learning, simulated exactly and fast.

Names are loaded when first used, so that importing the package (and ``fedfa --help``) does not import torch. The
imports below are the list of public names: type checkers read it, and ``__getattr__`` parses it once.
"""

import ast
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedfa.version import __version__ as __version__

if TYPE_CHECKING:
    from fedfa.analysis.server_step import server_step as server_step
    from fedfa.errors import ConfigError as ConfigError
    from fedfa.errors import EngineError as EngineError
    from fedfa.errors import FedfaError as FedfaError
    from fedfa.errors import RecordError as RecordError
    from fedfa.experiments.comparison import compare as compare
    from fedfa.learning.local import LocalTraining as LocalTraining
    from fedfa.learning.task import Task as Task
    from fedfa.report.plot import plot as plot
    from fedfa.runs.run import Run as Run
    from fedfa.runs.stop import Stop as Stop
    from fedfa.runs.store import find_runs as find_runs
    from fedfa.runs.store import read_run as read_run
    from fedfa.simulation.settings import EngineSettings as EngineSettings
    from fedfa.simulation.simulate import simulate as simulate
    from fedfa.simulation.weather import Weather as Weather
    from fedfa.strategies.base import Flight as Flight
    from fedfa.strategies.base import LocalRule as LocalRule
    from fedfa.strategies.base import Orders as Orders
    from fedfa.strategies.base import Strategy as Strategy
    from fedfa.strategies.base import Update as Update
    from fedfa.strategies.fedasync import FedAsync as FedAsync
    from fedfa.strategies.fedavg import FedAvg as FedAvg
    from fedfa.strategies.fedbuff import FedBuff as FedBuff
    from fedfa.strategies.fedfa import FedFaDelta as FedFaDelta
    from fedfa.strategies.fedfa import FedFaNova as FedFaNova
    from fedfa.strategies.fedfa import FedFaParam as FedFaParam
    from fedfa.strategies.fedfa import FedFaProx as FedFaProx
    from fedfa.strategies.fedfa_agree import FedFaAgree as FedFaAgree
    from fedfa.strategies.fednova import FedNova as FedNova
    from fedfa.strategies.fedprox import FedProx as FedProx
    from fedfa.strategies.port import Port as Port
    from fedfa.strategies.port import PortNonUrgent as PortNonUrgent
    from fedfa.strategies.port import PortUrgent as PortUrgent
    from fedfa.strategies.replay import Arrival as Arrival
    from fedfa.strategies.replay import replay as replay
    from fedfa.strategies.staleness import ConstantStaleness as ConstantStaleness
    from fedfa.strategies.staleness import HingeStaleness as HingeStaleness
    from fedfa.strategies.staleness import PolynomialStaleness as PolynomialStaleness


@cache
def _modules() -> dict[str, str]:
    """Where each public name is defined."""
    tree = ast.parse(Path(__file__).read_text("utf8"))
    listed = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in listed.body if isinstance(node, ast.ImportFrom)]
    return {name.name: str(node.module) for node in imports for name in node.names}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return ["__version__", *_modules()]
    if name not in _modules():
        raise AttributeError(f"module 'fedfa' has no attribute {name!r}")
    return getattr(import_module(_modules()[name]), name)


def __dir__() -> list[str]:
    return ["__version__", *sorted(_modules())]
