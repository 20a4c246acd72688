"""How a run is computed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedfa.errors import check
from fedfa.executors.base import Executor
from fedfa.executors.compiled import COMPILED_FROM
from fedfa.executors.cores import machine_cores
from fedfa.executors.on_this_machine import quickest
from fedfa.executors.registry import EXECUTORS, make_executor
from fedfa.learning.device import CPU, Device, DeviceName, PrecisionName
from fedfa.learning.task import Task
from fedfa.settings import build, one_of


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
    compile: bool | str = "auto"
    """Let torch.compile fuse the steps of batched and lanes, which takes up to half a minute at the start; auto: on the
    CPU, for runs so long that it pays."""
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
        check(self.compile in (True, False, "auto"), "compile", self.compile, "must be auto, true or false")
        check(self.checkpoint_seconds > 0, "checkpoint_seconds", self.checkpoint_seconds, "must be above 0")

    @classmethod
    def of(cls, table: "EngineSettings | Mapping[str, Any] | None") -> "EngineSettings":
        """From a table as in an experiment file."""
        return table if isinstance(table, cls) else build(cls, table or {}, "engine")

    def place(self) -> Device:
        """Where clients are trained; a ConfigError says if it is not there."""
        return Device.of(self.device, self.precision, elsewhere=self.executor == "ray")

    @property
    def front(self) -> Device:
        """Where the server's own work is done: workers of a cluster return models to the CPU."""
        return CPU if self.executor == "ray" else self.place()

    def decided(
        self, task: Task, seed: int, pending: int, steps_ahead: Callable[[], float]
    ) -> tuple["EngineSettings", str]:
        """The same with an executor instead of "auto", and why; so many clients are usually ``pending``."""
        name, why = self.executor, "chosen by the settings"
        if name == "auto":
            name, why = quickest(task, seed, self.place(), pending)
        compile = self.compile
        if name == "batched" and compile == "auto" and (compile := (steps := steps_ahead()) >= COMPILED_FROM):
            why += f"; some {steps:,.0f} local steps, which repay compiling them"
        return replace(self, executor=name, compile=compile), why

    def as_begun(self, executor: str | None) -> "EngineSettings | None":
        """The same for a run that began with the executor of this name; None if that leaves something to decide.

        What is set otherwise stays, and such a run is not continued.
        """
        name, _, compiled = (executor or "").partition(", ")
        if name not in EXECUTORS or self.executor not in ("auto", name):
            return None
        compile = self.compile
        if name == "batched" and compile is not False:  # true may have found no compiler
            compile = bool(compiled)
        return replace(self, executor=name, compile=compile)

    def make_executor(self, task: Task, seed: int, cores: Callable[[], int] = machine_cores) -> Executor:
        """``cores`` says how many there are for this run at present."""
        workers = self.workers if isinstance(self.workers, int) else cores
        return make_executor(self.executor, task, seed, self.place(), self.compile is True, workers)
