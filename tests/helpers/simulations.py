"""Short simulations, a custom strategy, and interruptions after so many chances."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import fedfa
from fedfa import Stop, simulate
from fedfa.simulation.settings import EngineSettings
from fedfa.strategies.base import Flight, Strategy, Update


def quick(strategy: Any, task: fedfa.Task, **settings: Any) -> fedfa.Run:
    own = {key: settings.pop(key) for key in list(settings) if key in EngineSettings.__dataclass_fields__}
    engine = {"executor": "inline", "evaluate_every": 20} | own
    return simulate(strategy, task, **({"stop": Stop(updates=60), "engine": engine} | settings))


def sized(cls: type[Strategy], **settings: Any) -> Strategy:
    known = cls.__dataclass_fields__
    wanted = {"concurrency": 4, "window": 3, "buffer": 3} | settings
    return cls(**{key: value for key, value in wanted.items() if key in known})


@dataclass(kw_only=True, eq=False)
class Mine(Strategy):
    """A custom strategy, in a few lines."""

    name = "mine"
    rate: float = 0.5

    def aggregate(self, update: Update, in_flight: Mapping[int, Flight]) -> Any:
        return self.model + self.rate / (1 + self.staleness_of(update)) * self.delta(update)


class StopAfter:
    """Asks for an interruption at the n-th opportunity."""

    def __init__(self, times: int) -> None:
        self.left = times

    def __call__(self) -> bool:
        self.left -= 1
        return self.left <= 0


SMALL_EXPERIMENT = {
    "data": {"clients": 10},
    "model": {"hidden": 8},
    "strategy": {"concurrency": 4},
    "engine": {"device": "cpu"},
}
