"""When a run ends, and how it did."""

import math
from dataclasses import asdict, dataclass, fields
from typing import Literal, NamedTuple

from fedfa.errors import check, require

EndingKind = Literal["updates", "seconds", "accuracy", "wall time", "interrupted", "diverged", "hopeless"]


class Ending(NamedTuple):
    """How a run ended: by a limit, by a request to stop, or given up. Manifests hold it as one text."""

    kind: EndingKind
    reason: str = ""
    """Why it was given up."""

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}" if self.reason else self.kind

    @classmethod
    def parse(cls, text: str) -> "Ending":
        kind, _, reason = text.partition(": ")
        return cls(kind, reason)  # pyright: ignore[reportArgumentType]


BY_UPDATES, BY_SECONDS, BY_ACCURACY = Ending("updates"), Ending("seconds"), Ending("accuracy")
BY_WALL_TIME = Ending("wall time")
INTERRUPTED = Ending("interrupted")
"""The run was asked to stop before its end."""


@dataclass(frozen=True, slots=True)
class Stop:
    """When a run ends: at the first limit that it reaches."""

    updates: int | None = None
    """Accepted updates."""
    seconds: float | None = None
    """Virtual seconds."""
    accuracy: float | None = None
    """An evaluation shows at least this accuracy."""
    wall_seconds: float | None = None
    """Real seconds; the only limit that makes a run depend on the machine."""
    diverged_below: float | None = None
    """No evaluation reaches this accuracy ..."""
    diverged_updates: int | None = None
    """... for this many accepted updates in a row: the run has diverged. Set both or neither."""

    def __post_init__(self) -> None:
        limits = {f.name: getattr(self, f.name) for f in fields(self)}
        ends = [name for name in limits if not name.startswith("diverged")]
        require(any(limits[name] is not None for name in ends), f"set at least one of {', '.join(ends)}")
        for name, value in limits.items():
            check(value is None or 0 < value < math.inf, name, value, "must be above 0, and finite")
        require(
            (self.diverged_below is None) == (self.diverged_updates is None),
            "diverged_below: goes with diverged_updates; set both or neither",
            "diverged_below",
        )

    def share_done(self, updates: int, seconds: float, wall_seconds: float = 0.0) -> float:
        """Progress to the nearest limit, 0 to 1; the accuracy limit does not count."""
        limits = ((updates, self.updates), (seconds, self.seconds), (wall_seconds, self.wall_seconds))
        return min(1.0, max(done / limit if limit else 0.0 for done, limit in limits))

    @property
    def limits(self) -> dict[str, float]:
        """Those that are set."""
        return {name: value for name, value in asdict(self).items() if value is not None}
