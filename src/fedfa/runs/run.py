"""A run: its rows, and the questions one asks of them."""

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fedfa.runs.recorder import ACCEPTED
from fedfa.runs.stop import Stop

STEADY_OVER = 3
"""An accuracy is steady where the mean of so many evaluations shows it."""
GIVEN_UP = ("diverged", "hopeless")
"""How the end of a run begins that made no sense to go on with."""
INTERRUPTED = "interrupted"
"""How a run ended that was asked to stop before its end."""


@dataclass(frozen=True)
class Run:
    """A run, as a rule to its end: its rows, and the questions one asks of them."""

    updates: pl.DataFrame
    evaluations: pl.DataFrame
    manifest: dict[str, Any]
    clients: pl.DataFrame = field(default_factory=pl.DataFrame)
    config: dict[str, Any] = field(default_factory=dict)
    folder: Path | None = None
    model: np.ndarray | None = None
    """The final global model; kept in memory only."""
    whole: "Run | None" = None
    """The run that this is the beginning of, where it was cut."""

    @property
    def label(self) -> str:
        return self.manifest["label"]

    @property
    def seed(self) -> int:
        return self.manifest["seed"]

    @property
    def unfinished(self) -> bool:
        """Whether there is more to come: it was interrupted."""
        return self.manifest["ended"] == INTERRUPTED

    def labelled(self, label: str) -> "Run":
        return replace(self, manifest=self.manifest | {"label": label})

    def _first_at(self, accuracy: float) -> dict[str, Any] | None:
        hits = self.evaluations.filter(pl.col("accuracy") >= accuracy)
        return hits.row(0, named=True) if len(hits) else None

    def time_to(self, accuracy: float) -> float | None:
        """Virtual seconds until an evaluation first showed this accuracy; None if none did."""
        first = self._first_at(accuracy)
        return None if first is None else first["seconds"]

    def steady_time_to(self, accuracy: float, over: int = STEADY_OVER) -> float | None:
        """Virtual seconds until the mean of so many evaluations in a row first showed this accuracy.

        A single evaluation may be lucky, and luck favours rules whose accuracy jumps up and down.
        """
        means = self.evaluations.with_columns(pl.col("accuracy").rolling_mean(over))
        hits = means.filter(pl.col("accuracy") >= accuracy)
        return hits["seconds"][0] if len(hits) else None

    def level(self, span: float, by: float = math.inf) -> float:
        """The mean of the evaluations of so many seconds up to a time, or to the end; if there is none, the last."""
        until = min(by, self.seconds)
        known = self.evaluations.filter(pl.col("seconds") <= until)
        recent = known.filter(pl.col("seconds") > until - span)
        last = (recent if len(recent) else known.tail(1))["accuracy"]
        return float(last.mean()) if len(last) else math.nan  # pyright: ignore[reportArgumentType]

    def jumps(self, over: int = 20) -> float:
        """How far accuracy goes up or down between two evaluations, in the mean over the last so many."""
        steps = self.evaluations["accuracy"].diff().drop_nulls().abs().tail(over)
        return float(steps.mean()) if len(steps) else math.nan  # pyright: ignore[reportArgumentType]

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

    def cut(self, stop: "Stop") -> "Run | None":
        """This run as it would have ended by other limits; None where it did not go that far.

        A run that was given up would have been so under them, too. Its last evaluation is the last before its end.
        """
        accepted, target = self.accepted["seconds"], stop.accuracy and self.time_to(stop.accuracy)
        ends: list[tuple[float, str]] = [] if target is None else [(target, "accuracy")]
        if stop.updates is not None and len(accepted) >= stop.updates:
            ends.append((accepted[stop.updates - 1], "updates"))
        if stop.seconds is not None and self.seconds >= stop.seconds:
            ends.append((stop.seconds, "seconds"))
        if not ends:
            return self if self.manifest["ended"].startswith(GIVEN_UP) else None
        seconds, ended = min(ends)
        updates, evaluations = (rows.filter(pl.col("seconds") <= seconds) for rows in (self.updates, self.evaluations))
        facts = {"stop": stop.limits, "ended": ended, "seconds": seconds, "version": evaluations["version"][-1]}
        manifest = self.manifest | facts
        return replace(self, updates=updates, evaluations=evaluations, manifest=manifest, model=None, whole=self)

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
