"""How a run is computed."""

from dataclasses import dataclass

from fedfa.errors import check
from fedfa.executors.registry import EXECUTORS
from fedfa.learning.device import DeviceName, PrecisionName
from fedfa.settings import one_of


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How the run is computed; no setting here changes its events."""

    executor: str = "auto"
    """auto, inline, batched, lanes or ray."""
    workers: int | str = "auto"
    """Processes that train clients, of inline and of ray; auto: one per core, or one per GPU of a Ray cluster."""
    device: DeviceName = "cpu"
    """auto: the GPU, if there is one."""
    precision: PrecisionName = "auto"
    """auto: bf16 on a GPU, fp32 on the CPU."""
    compile: bool = False
    """Let torch.compile fuse the steps of lanes: takes half a minute at the start, then runs are faster."""
    evaluate_every: int = 10
    """Accepted updates between evaluations."""
    threads: int = 1
    """Torch threads."""
    checkpoint_seconds: float = 10.0
    """Real seconds between checkpoints."""

    def __post_init__(self) -> None:
        one_of(EXECUTORS, self.executor, "executor")
        check(self.evaluate_every >= 1, "evaluate_every", self.evaluate_every, "must be at least 1")
        check(1 <= self.threads <= 1024, "threads", self.threads, "must be between 1 and 1024")
        known = 1 <= self.workers <= 10_000 if isinstance(self.workers, int) else self.workers == "auto"
        check(known, "workers", self.workers, "must be auto, or between 1 and 10,000")
        check(self.checkpoint_seconds > 0, "checkpoint_seconds", self.checkpoint_seconds, "must be above 0")
