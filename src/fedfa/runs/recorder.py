"""The rows of a run in progress: one per arrival, one per evaluation."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl

ACCEPTED = "accepted"
"""The kind of outcome that counts."""
OutcomeKind = Literal["accepted", "refused", "failed", "lost"]


class Outcome(NamedTuple):
    """The outcome of an arrival. Records and journals hold it as one text, "kind" or "kind: reason"."""

    kind: OutcomeKind
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}" if self.reason else self.kind

    @classmethod
    def parse(cls, text: str) -> "Outcome":
        kind, _, reason = text.partition(": ")
        return cls(kind, reason)  # pyright: ignore[reportArgumentType]


TAKEN = Outcome(ACCEPTED)
"""The outcome of an update that counts."""

UPDATE_COLUMNS: dict[str, Any] = {
    "seconds": np.float64,  # virtual time of the arrival
    "client": np.int64,
    "dispatch": np.int64,  # running number of the work order it answers
    "dispatched_seconds": np.float64,
    "base_version": np.int64,
    "staleness": np.int64,
    "version": np.int64,  # right after the arrival
    "outcome": np.int32,  # "accepted", or why not
    "train_loss": np.float64,
    "delta_norm": np.float64,
    "num_examples": np.int64,
    "num_steps": np.float64,
    "bytes_up": np.int64,
    "bytes_down": np.int64,
}
EVALUATION_COLUMNS: dict[str, Any] = {
    "updates": np.int64,  # accepted so far
    "seconds": np.float64,
    "version": np.int64,
    "accuracy": np.float64,
    "loss": np.float64,
    "step": np.float64,  # the strategy's own at that time
}


class Table:
    """Rows of numbers: new rows are plain lists, packed into arrays from time to time to save memory.

    All values are float64, exact for whole numbers up to 2^53, and get their own type at the end.
    """

    PACK = 8192

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self._columns = dict(columns)
        self._packed: list[np.ndarray] = []
        self._numbers: list[float] = []
        self.append = self._numbers.extend

    def __len__(self) -> int:
        return sum(map(len, self._packed)) + len(self._numbers) // len(self._columns)

    def pack_if_due(self, rows: int = PACK) -> None:
        if len(self._numbers) >= max(1, rows * len(self._columns)):
            numbers = np.fromiter(self._numbers, np.float64, len(self._numbers))
            self._packed.append(numbers.reshape(-1, len(self._columns)))
            self._numbers.clear()

    def array(self) -> np.ndarray:
        self.pack_if_due(rows=0)
        self._packed = [np.concatenate([np.empty((0, len(self._columns))), *self._packed])]
        return self._packed[0]

    def since(self, start: int) -> list[np.ndarray]:
        """The rows from number ``start`` on, in pieces, without copying or reading the earlier ones."""
        self.pack_if_due(rows=256)
        missing, pieces = len(self) - start, []
        for piece in (np.array(self._numbers).reshape(-1, len(self._columns)), *reversed(self._packed)):
            if missing <= 0:
                break
            pieces.append(piece[-missing:])
            missing -= len(piece)
        return pieces[::-1]

    def columns(self) -> dict[str, np.ndarray]:
        array = self.array()
        return {name: array[:, i].astype(dtype) for i, (name, dtype) in enumerate(self._columns.items())}

    def restore(self, array: np.ndarray) -> None:
        self._packed = [array]
        self._numbers.clear()


class Recorder:
    """Collects the rows of one run."""

    def __init__(self) -> None:
        self.updates = Table(UPDATE_COLUMNS)
        self.evaluations = Table(EVALUATION_COLUMNS)
        self._outcomes = {ACCEPTED: 0}

    def code_of(self, outcome: Outcome) -> int:
        """The number that stands for this outcome in the packed rows."""
        return self._outcomes.setdefault(str(outcome), len(self._outcomes))

    @property
    def outcomes(self) -> list[str]:
        """All outcomes so far, by number."""
        return list(self._outcomes)

    def update_frame(self) -> pl.DataFrame:
        columns = self.updates.columns()
        texts = pl.Series(list(self._outcomes), dtype=pl.String)
        return pl.DataFrame({**columns, "outcome": texts.gather(columns["outcome"])})

    def evaluation_frame(self) -> pl.DataFrame:
        return pl.DataFrame(self.evaluations.columns())

    def state_dict(self) -> dict[str, Any]:
        return {
            "updates": self.updates.array(),
            "evaluations": self.evaluations.array(),
            "outcomes": list(self._outcomes),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.updates.restore(state["updates"])
        self.evaluations.restore(state["evaluations"])
        self._outcomes = {text: number for number, text in enumerate(state["outcomes"])}
