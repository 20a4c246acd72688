"""What an engine asks of a task. :class:`fedfa.Task` is the one that learns; others measure everything but learning."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import polars as pl

from fedfa.learning.device import Device
from fedfa.learning.local import LocalTraining
from fedfa.strategies.vectors import Vector

Meanwhile = Callable[[], None]
"""Called again and again while a GPU works."""


class Initial(NamedTuple):
    """The initial flat model."""

    vector: np.ndarray
    num_trainable: int
    """How many of its entries, the first ones, are trainable parameters; the others are buffers."""
    num_frozen: int = 0
    """Parameters that are not in it, because they are never trained and stay with the clients."""


@dataclass(frozen=True, slots=True)
class Score:
    """How good a model is on the test data."""

    accuracy: float
    loss: float


Evaluator = Callable[[Vector, Meanwhile], Score]


class EngineTask(Protocol):
    """Data, a model and its evaluation, as far as engines are concerned."""

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
        """Judges flat models that are kept on this device."""
        ...

    def digest(self, seed: int) -> str:
        """Changes with the data, who holds it, or the initial model."""
        ...

    def label_counts(self) -> pl.DataFrame:
        """Examples per client and label; empty where there are no class numbers."""
        ...
