"""How local training is computed. What happens when is the engine's business alone.

What an in-flight client computes depends only on the model it was handed and on its own seed, both fixed at
dispatch; when it arrives is fixed by the weather. So an executor may compute any submitted work early, late or
together, and the run is the same.
"""

from typing import Literal, Protocol, get_args

from fedfa.errors import require
from fedfa.executors.base import Trained, WorkOrder
from fedfa.place import CPU, Place
from fedfa.probe import say_once
from fedfa.task import Task

ExecutorName = Literal["auto", "inline", "batched", "lanes", "ray"]

OVERHEAD_BOUND_FLOPS = 80e6
"""A local step with less arithmetic than this spends most of its time in the framework: batching pays.

Measured on one CPU core (benchmarks/README.md), 10 in flight: steps of 1, 5 and 54 MFLOP gain 3.2x, 2.4x and 1.5x;
of 189 MFLOP they lose, 0.7x."""


class Executor(Protocol):
    name: str
    place: Place
    """Where models are kept, and so in which form they are handed over."""

    def submit(self, order: WorkOrder) -> None:
        """Work that may be computed from now on."""
        ...

    def result(self, dispatch: int) -> Trained:
        """The outcome of a submitted order; may compute many orders at once. Each is asked for once."""
        ...

    def discard(self, dispatch: int) -> None:
        """This order's outcome will not be asked for."""
        ...

    def finished(self) -> dict[int, Trained]:
        """Outcomes that were computed but not asked for yet: what a checkpoint must keep."""
        ...

    def restore(self, finished: dict[int, Trained]) -> None:
        """Put such outcomes back; the orders themselves are submitted again first."""
        ...

    def meanwhile(self) -> None:
        """Called again and again while the engine waits for something else, as an evaluation on a GPU."""
        ...

    def close(self) -> None:
        """The run is over."""
        ...


def make_executor(
    name: str, task: Task, seed: int, place: Place = CPU, compile: bool = False, workers: int = 0
) -> Executor:
    """The executor of this name; ``auto`` takes the faster one for the model and place at hand."""
    from fedfa.executors.batched import Batched, CannotBatch, flops_per_step
    from fedfa.executors.capture import CannotCapture
    from fedfa.executors.inline import Inline
    from fedfa.executors.lanes import Lanes

    names = get_args(ExecutorName)
    require(name in names, f"executor = {name!r}: must be one of {', '.join(names)}")
    on_gpu = place.device != "cpu"
    require(on_gpu or name != "lanes", "executor = 'lanes': needs a GPU; set device = 'cuda', or take another executor")
    require(not on_gpu or name != "batched", "executor = 'batched': is for the CPU; on a GPU take lanes or inline")
    require(name != "batched" or place == CPU, "executor = 'batched': computes in fp32; with bf16 take inline")
    if name == "ray":
        from fedfa.executors.ray import RayWorkers

        return RayWorkers(task, seed, workers, place, compile)
    if name == "inline":
        return Inline(task, seed, place)
    if on_gpu:
        try:
            return Lanes.prepared(task, seed, place, compile)
        except CannotCapture as reason:
            say_once(f"This model's steps cannot be captured ({reason}); training clients one by one.")
            return Inline(task, seed, place)
    if place != CPU:
        return Inline(task, seed, place)
    try:
        if name == "auto" and flops_per_step(task, seed) > OVERHEAD_BOUND_FLOPS:
            return Inline(task, seed)
        return Batched(task, seed)
    except CannotBatch as reason:
        say_once(f"This model cannot be batched ({reason}); training clients one by one.")
        return Inline(task, seed)
