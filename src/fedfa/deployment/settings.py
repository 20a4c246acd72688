"""The run config of a deployment."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from fedfa.errors import check
from fedfa.runs.stop import Stop
from fedfa.settings import build


@dataclass(frozen=True, slots=True)
class DeploymentSettings:
    """The run config of a deployment; its keys have hyphens instead of underscores."""

    out: str
    """Folder for the run's records, relative to the folder where the SuperLink was started."""
    strategy: str = "fedfa-param"
    """NAME:KEY=VALUE:..., as in 'fedfa compare'; 'fedfa strategies' lists them."""
    seed: int = 0
    """Of the initial model, and of the choice of nodes."""
    resume: bool = False
    """Continue the unfinished run in the folder."""
    stop_updates: int = 0
    """End after this many accepted updates; 0: no such limit."""
    stop_seconds: float = 0.0
    """End after this many seconds; 0: no such limit."""
    stop_accuracy: float = 0.0
    """End at this test accuracy; 0: no such limit."""
    target: float = 0.0
    """Reports give the time to this accuracy; 0: none."""
    evaluate_every: int = 10
    """Accepted updates between evaluations, which the server makes."""
    keep_updates: bool = False
    """Keep every update on disk, so that the whole aggregation can be computed again."""
    ttl_seconds: float = 3600.0
    """Seconds after which a client without an answer is given up."""
    bench_seconds: float = 5.0
    """Seconds without work for a node that failed, doubled with each failure in a row."""
    checkpoint_seconds: float = 60.0
    """Seconds between checkpoints; after a crash, all later journal entries are read again."""
    wire: Literal["flat", "named"] = "flat"
    """named: PyTorch's tensors by name, for stock Flower clients."""
    client_threads: int = 1
    """Threads per client."""

    def __post_init__(self) -> None:
        check(self.out != "", "out", self.out, "give the folder for the run's records")
        for name in ("ttl_seconds", "checkpoint_seconds", "client_threads"):
            check(getattr(self, name) > 0, name, getattr(self, name), "must be above 0")
        check(self.evaluate_every >= 1, "evaluate_every", self.evaluate_every, "must be at least 1")
        check(self.bench_seconds >= 0, "bench_seconds", self.bench_seconds, "must be 0 or more")
        for name in ("stop_updates", "stop_seconds", "stop_accuracy", "target"):
            check(getattr(self, name) >= 0, name, getattr(self, name), "must be 0 or more")

    @property
    def stop(self) -> Stop:
        return Stop(self.stop_updates or None, self.stop_seconds or None, self.stop_accuracy or None)

    @property
    def folder(self) -> Path:
        return Path(self.out).absolute()


def settings_of(run_config: Mapping[str, Any]) -> DeploymentSettings:
    """The settings in a run config; keys of the user's own are left to the app."""
    known = {f.name for f in fields(DeploymentSettings)}
    found = {key.replace("-", "_"): value for key, value in run_config.items()}
    return build(DeploymentSettings, {key: value for key, value in found.items() if key in known})
