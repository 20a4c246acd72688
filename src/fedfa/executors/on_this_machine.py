"""Executors in this process, each with its fallback: a model that cannot be captured or batched is trained inline."""

from fedfa.errors import require
from fedfa.executors.base import Executor, Workers
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


def auto(task: Task, seed: int, device: Device, compile: bool, workers: Workers) -> Executor:
    """The faster one for the model and the device at hand, if little is pending."""
    name, _ = quickest(task, seed, device, pending=1)
    return {"inline": inline, "batched": batched, "lanes": lanes}[name](task, seed, device, compile, workers)


def quickest(task: Task, seed: int, device: Device, pending: int) -> tuple[str, str]:
    """The name of the fastest executor, and why it is; so many clients will usually be pending.

    By a rule fitted to ``fedfa bench grid``, not by the clock: the same run takes the same executor every time.
    """
    if device.kind != "cpu":
        return "lanes", "a GPU trains clients side by side"
    if device != CPU:
        return "inline", "bf16"
    layout = task.layout(task.build(seed))
    batches = [size for n in task.sizes for size in task.local.batch_sizes(n)]
    filled = sum(batches) / (len(batches) * max(batches))
    if layout.has_images or layout.num_trainable > LARGEST_STACKED:
        return "inline", f"{layout.num_trainable:,} parameters are bound by arithmetic"
    if pending < BATCHED_FROM:
        return "inline", f"{pending} clients pending at a time; a stack of models pays from {BATCHED_FROM}"
    if filled < LEAST_FILLED:
        return "inline", f"batches of unequal size would fill only {filled:.0%} of a stack"
    try:
        Batched(task, seed).close()
    except CannotBatch as reason:
        return "inline", f"cannot be batched: {reason}"
    return "batched", f"{pending} clients pending at a time, of {layout.num_trainable:,} parameters each"


def inline(task: Task, seed: int, device: Device, compile: bool, workers: Workers) -> Executor:
    """One client at a time."""
    return Inline(task, seed, device, workers)


def batched(task: Task, seed: int, device: Device, compile: bool, workers: Workers) -> Executor:
    """All pending clients side by side."""
    require(device.kind == "cpu", "executor = 'batched': is for the CPU; on a GPU take lanes or inline")
    require(device == CPU, "executor = 'batched': computes in fp32; with bf16 take inline")
    try:
        return Batched(task, seed, compile)
    except CannotBatch as reason:
        return _one_by_one(task, seed, CPU, workers, f"cannot be batched ({reason})")


def lanes(task: Task, seed: int, device: Device, compile: bool, workers: Workers) -> Executor:
    """All in-flight clients side by side on a GPU."""
    require(device.kind != "cpu", "executor = 'lanes': needs a GPU; set device = 'cuda', or take another executor")
    try:
        return Lanes.prepared(task, seed, device, compile)
    except CannotCapture as reason:
        return _one_by_one(task, seed, device, workers, f"has steps that cannot be captured ({reason})")


def _one_by_one(task: Task, seed: int, device: Device, workers: Workers, why: str) -> Executor:
    say_once(f"This model {why}; training clients one by one.")
    return Inline(task, seed, device, workers)
