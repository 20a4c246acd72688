"""A task without data or training, to measure everything except learning."""

import numpy as np
import polars as pl

from fedfa.learning.base import Evaluator, Initial, Score
from fedfa.learning.device import CPU, Device
from fedfa.learning.local import LocalTraining


class NoTask:
    """A model of zeros that is never trained."""

    name = "no-op"
    local = LocalTraining(epochs=1)

    def __init__(self, num_clients: int, length: int) -> None:
        self.num_clients, self.length = num_clients, length

    def initial(self, seed: int) -> Initial:
        return Initial(np.zeros(self.length, np.float32), self.length)

    def evaluator(self, seed: int, device: Device = CPU) -> Evaluator:
        return lambda vector, meanwhile: Score(0.0, 0.0)

    def digest(self, seed: int) -> str:
        return "nothing to change"

    def label_counts(self) -> pl.DataFrame:
        return pl.DataFrame(schema={"client": pl.Int64, "label": pl.String, "examples": pl.Int64})
