"""A run: its rows, and methods that answer questions about them."""

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fedfa.runs.recorder import ACCEPTED
from fedfa.runs.stop import INTERRUPTED, Ending


@dataclass(frozen=True)
class Run:
    """A run, usually finished: its rows, and methods that answer questions about them."""

    updates: pl.DataFrame
    evaluations: pl.DataFrame
    manifest: dict[str, Any]
    clients: pl.DataFrame = field(default_factory=pl.DataFrame)
    config: dict[str, Any] = field(default_factory=dict)
    folder: Path | None = None
    model: np.ndarray | None = None
    """The final global model; kept in memory only."""

    @property
    def label(self) -> str:
        return self.manifest["label"]

    @property
    def seed(self) -> int:
        return self.manifest["seed"]

    @property
    def ending(self) -> Ending:
        """How it ended."""
        return Ending.parse(self.manifest["ended"])

    @property
    def unfinished(self) -> bool:
        """Whether there is more to come: it was interrupted."""
        return self.ending == INTERRUPTED

    def labelled(self, label: str) -> "Run":
        return replace(self, manifest=self.manifest | {"label": label})

    def _first_at(self, accuracy: float) -> dict[str, Any] | None:
        hits = self.evaluations.filter(pl.col("accuracy") >= accuracy)
        return hits.row(0, named=True) if len(hits) else None

    def time_to(self, accuracy: float) -> float | None:
        """Virtual seconds until an evaluation first showed this accuracy; None if none did."""
        first = self._first_at(accuracy)
        return None if first is None else first["seconds"]

    def updates_to(self, accuracy: float) -> int | None:
        """Accepted updates until an evaluation first showed this accuracy; None if none did."""
        first = self._first_at(accuracy)
        return None if first is None else first["updates"]

    def rounds_to(self, accuracy: float) -> float | None:
        """Rounds (see ``round_size`` in the manifest) until this accuracy; None if it was not reached."""
        updates = self.updates_to(accuracy)
        return None if updates is None else updates / self.manifest["round_size"]

    @property
    def rounds(self) -> float:
        """Rounds at the end."""
        return len(self.accepted) / self.manifest["round_size"]

    @property
    def accepted(self) -> pl.DataFrame:
        return self.updates.filter(pl.col("outcome") == ACCEPTED)

    @property
    def best_accuracy(self) -> float:
        best = self.evaluations["accuracy"].max()
        return math.nan if best is None else float(best)  # pyright: ignore[reportArgumentType]

    @property
    def final_accuracy(self) -> float:
        return float(self.evaluations["accuracy"][-1]) if len(self.evaluations) else math.nan

    @property
    def seconds(self) -> float:
        """Virtual time at the end."""
        return self.manifest["seconds"]

    def summary(self, target: float | None = None) -> dict[str, Any]:
        """The run in a few numbers; JSON-ready."""
        staleness = self.accepted["staleness"]
        mean, most = (staleness.mean(), staleness.max()) if len(staleness) else (0.0, 0)
        numbers = {
            "label": self.label,
            "strategy": self.manifest["strategy"],
            "seed": self.seed,
            "ended": self.manifest["ended"],
            "seconds": self.seconds,
            "updates": len(self.accepted),
            "not_accepted": len(self.updates) - len(self.accepted),
            "version": self.manifest["version"],
            "best_accuracy": self.best_accuracy,
            "final_accuracy": self.final_accuracy,
            "mean_staleness": mean,
            "max_staleness": most,
            "num_frozen": self.manifest.get("num_frozen", 0),
            "bytes_up": int(self.updates["bytes_up"].sum()),
            "bytes_down": int(self.updates["bytes_down"].sum()),
            "wall_seconds": self.manifest["wall_seconds"],
        }
        if target is not None:
            numbers |= {
                "target": target,
                "time_to_target": self.time_to(target),
                "updates_to_target": self.updates_to(target),
                "rounds_to_target": self.rounds_to(target),
            }
        return numbers
