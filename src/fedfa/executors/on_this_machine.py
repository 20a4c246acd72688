"""Executors in this process, each with its fallback: a model that cannot be captured or batched is trained inline."""

from fedfa.errors import require
from fedfa.executors.base import Executor
from fedfa.executors.batched import Batched, CannotBatch, flops_per_step
from fedfa.executors.capture import CannotCapture
from fedfa.executors.inline import Inline
from fedfa.executors.lanes import Lanes
from fedfa.learning.device import CPU, Device
from fedfa.learning.probe import say_once
from fedfa.learning.task import Task

OVERHEAD_BOUND_FLOPS = 80e6
"""A local step with less arithmetic than this spends most of its time in the framework: batching pays.

Measured on one CPU core (benchmarks/README.md), 10 in flight: steps of 1, 5 and 54 MFLOP gain 3.2x, 2.4x and 1.5x;
of 189 MFLOP they lose, 0.7x."""


def auto(task: Task, seed: int, device: Device, compile: bool, workers: int) -> Executor:
    """The faster one for the model and the device at hand."""
    if device.kind != "cpu":
        return lanes(task, seed, device, compile, workers)
    if device != CPU:
        return Inline(task, seed, device)
    try:
        return Inline(task, seed) if flops_per_step(task, seed) > OVERHEAD_BOUND_FLOPS else Batched(task, seed)
    except CannotBatch as reason:
        return _one_by_one(task, seed, CPU, f"cannot be batched ({reason})")


def inline(task: Task, seed: int, device: Device, compile: bool, workers: int) -> Executor:
    """One client at a time, with plain PyTorch."""
    return Inline(task, seed, device)


def batched(task: Task, seed: int, device: Device, compile: bool, workers: int) -> Executor:
    """All pending clients together."""
    require(device.kind == "cpu", "executor = 'batched': is for the CPU; on a GPU take lanes or inline")
    require(device == CPU, "executor = 'batched': computes in fp32; with bf16 take inline")
    try:
        return Batched(task, seed)
    except CannotBatch as reason:
        return _one_by_one(task, seed, CPU, f"cannot be batched ({reason})")


def lanes(task: Task, seed: int, device: Device, compile: bool, workers: int) -> Executor:
    """All in-flight clients side by side on a GPU."""
    require(device.kind != "cpu", "executor = 'lanes': needs a GPU; set device = 'cuda', or take another executor")
    try:
        return Lanes.prepared(task, seed, device, compile)
    except CannotCapture as reason:
        return _one_by_one(task, seed, device, f"has steps that cannot be captured ({reason})")


def _one_by_one(task: Task, seed: int, device: Device, why: str) -> Executor:
    say_once(f"This model {why}; training clients one by one.")
    return Inline(task, seed, device)
