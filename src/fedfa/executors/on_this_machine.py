"""Executors in this process, each with its fallback: a model that cannot be captured or batched is trained inline."""

from fedfa.errors import require
from fedfa.executors.base import Executor
from fedfa.executors.batched import Batched
from fedfa.executors.capture import CannotCapture
from fedfa.executors.inline import Inline
from fedfa.executors.lanes import Lanes
from fedfa.executors.stack import CannotBatch
from fedfa.learning.device import CPU, Device
from fedfa.learning.probe import say_once
from fedfa.learning.task import Task

BATCHED_FROM = 24
"""Pending clients from which a stack of small models is faster than a captured loop for each (``fedfa bench grid``)."""
LARGEST_STACKED = 50_000
"""Parameters of a model that is small enough for that: larger ones are bound by arithmetic, not by overhead."""
LEAST_FILLED = 0.4
"""Examples that count, as a share of all that a stack computes: the rest only fills batches up."""


def auto(task: Task, seed: int, device: Device, compile: bool, workers: int, pending: int) -> Executor:
    """The faster one for the model and the device at hand."""
    if device.kind != "cpu":
        return lanes(task, seed, device, compile, workers, pending)
    return _quickest_on_cpu(task, seed, device, workers, pending)


def inline(task: Task, seed: int, device: Device, compile: bool, workers: int, pending: int) -> Executor:
    """One client at a time."""
    return Inline(task, seed, device, workers)


def batched(task: Task, seed: int, device: Device, compile: bool, workers: int, pending: int) -> Executor:
    """All pending clients side by side."""
    require(device.kind == "cpu", "executor = 'batched': is for the CPU; on a GPU take lanes or inline")
    require(device == CPU, "executor = 'batched': computes in fp32; with bf16 take inline")
    try:
        return Batched(task, seed)
    except CannotBatch as reason:
        return _one_by_one(task, seed, CPU, workers, f"cannot be batched ({reason})")


def lanes(task: Task, seed: int, device: Device, compile: bool, workers: int, pending: int) -> Executor:
    """All in-flight clients side by side on a GPU."""
    require(device.kind != "cpu", "executor = 'lanes': needs a GPU; set device = 'cuda', or take another executor")
    try:
        return Lanes.prepared(task, seed, device, compile)
    except CannotCapture as reason:
        return _one_by_one(task, seed, device, workers, f"has steps that cannot be captured ({reason})")


def _quickest_on_cpu(task: Task, seed: int, device: Device, workers: int, pending: int) -> Executor:
    """By a rule, not by the clock: the same run takes the same executor every time."""
    layout = task.layout(task.build(seed))
    batches = [size for n in task.sizes for size in task.local.batch_sizes(n)]
    filled = sum(batches) / (len(batches) * max(batches))
    small = layout.num_trainable <= LARGEST_STACKED and not layout.has_images
    if device == CPU and pending >= BATCHED_FROM and small and filled >= LEAST_FILLED:
        try:
            return Batched(task, seed)
        except CannotBatch:  # nothing is lost that the user asked for
            pass
    return Inline(task, seed, device, workers)


def _one_by_one(task: Task, seed: int, device: Device, workers: int, why: str) -> Executor:
    say_once(f"This model {why}; training clients one by one.")
    return Inline(task, seed, device, workers)
