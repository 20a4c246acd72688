"""All executors by name. To add one: a file here, and a row in ``EXECUTORS``."""

from collections.abc import Callable

from fedfa.executors.base import Executor, Workers
from fedfa.executors.on_this_machine import auto, batched, inline, lanes
from fedfa.executors.ray import ray
from fedfa.learning.device import CPU, Device
from fedfa.learning.task import Task
from fedfa.settings import one_of

MakeExecutor = Callable[[Task, int, Device, bool, Workers], Executor]
"""From task, seed, device, ``compile`` and the number of processes that train."""

EXECUTORS: dict[str, MakeExecutor] = {
    "auto": auto,
    "inline": inline,
    "batched": batched,
    "lanes": lanes,
    "ray": ray,
}


def make_executor(
    name: str, task: Task, seed: int, device: Device = CPU, compile: bool = False, workers: Workers = 1
) -> Executor:
    """The executor of this name."""
    return EXECUTORS[one_of(EXECUTORS, name, "executor")](task, seed, device, compile, workers)
