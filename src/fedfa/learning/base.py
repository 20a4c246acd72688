"""What an engine needs from a task. :class:`fedfa.Task` learns; others measure everything except learning."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import polars as pl

from fedfa.learning.device import Device
from fedfa.learning.local import LocalTraining
from fedfa.strategies.vectors import Vector

Meanwhile = Callable[[], None]
"""Called repeatedly while a GPU works."""


class Initial(NamedTuple):
    """The initial flat model."""

    vector: np.ndarray
    num_trainable: int
    """The number of trainable parameters, its first entries; the others are buffers."""
    num_frozen: int = 0
    """Parameters that are not in the vector: they are never trained and stay with the clients."""


@dataclass(frozen=True, slots=True)
class Score:
    """How good a model is on the test data."""

    accuracy: float
    loss: float


Evaluator = Callable[[Vector, Meanwhile], Score]


class EngineTask(Protocol):
    """Data, a model and its evaluation, as engines see them."""

    @property
    def name(self) -> str: ...

    @property
    def local(self) -> LocalTraining: ...

    @property
    def num_clients(self) -> int: ...

    def initial(self, seed: int) -> Initial:
        """The model that a run of this seed starts from."""
        ...

    def evaluator(self, seed: int, device: Device) -> Evaluator:
        """Evaluates flat models that are kept on this device."""
        ...

    def digest(self, seed: int) -> str:
        """Changes with the data, its split, or the initial model."""
        ...

    def label_counts(self) -> pl.DataFrame:
        """Examples per client and label; empty where there are no class numbers."""
        ...
