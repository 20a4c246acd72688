"""Lanes alone, without a simulation around them: clients side by side against one, and where a step's time goes.

ResNet-18 at batch 32 as in ``gpu``. With one lane a step's kernels run one after the other; the profile shows how long
each kind takes then. Many lanes use the capacity that small kernels leave idle.
"""

import time
from collections import Counter
from functools import partial
from typing import Any

import torch

import fedfa
from fedfa.bench.base import Options, Row, Tell, middle, take_turns
from fedfa.bench.gpu import images
from fedfa.executors.base import WorkOrder
from fedfa.executors.lanes import Lanes
from fedfa.learning.device import Device

COUNTS = (1, 2, 4, 6, 10)
CONVOLUTION = ("conv", "fprop", "dgrad", "wgrad", "cudnn")
"""A kernel whose name holds one of these belongs to a convolution."""


def together(task: fedfa.Task, lanes: Lanes, count: int, epochs: int = 1) -> float:
    """Examples per second of this many clients, all started at once."""
    orders = [WorkOrder(client, 0, client, 0, lanes.shared.initial, epochs, 0.0, 0.0) for client in range(count)]
    with lanes.device.prepared():
        begun = time.perf_counter()
        for order in orders:
            lanes.submit(order)
        for order in orders:
            lanes.result(order.dispatch)
        return sum(task.sizes[:count]) * epochs / (time.perf_counter() - begun)


def kinds(task: fedfa.Task, lanes: Lanes) -> dict[str, Any]:
    """Microseconds of a step that kernels of convolutions and others take, and how many there are, with one lane."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        together(task, lanes, 1)
    steps = len(task.local.batch_sizes(task.sizes[0]))
    spent, number = Counter[str](), Counter[str]()
    for event in seen.key_averages():
        kind = "convolution" if any(word in event.key.lower() for word in CONVOLUTION) else "other"
        spent[kind] += event.self_device_time_total
        number[kind] += event.count
    return {kind: {"us": spent[kind] / steps, "kernels": number[kind] / steps} for kind in ("convolution", "other")}


def measure(options: Options, tell: Tell) -> list[Row]:
    task, device = images(), Device.of("cuda", options.precision)
    found: list[Row] = []
    for name, compiled in (("lanes", False), ("compiled lanes", True))[: 1 + options.compile]:
        lanes = Lanes.prepared(task, 0, device, compiled)
        ways = {str(count): partial(together, task, lanes, count) for count in COUNTS}
        rates = {way: middle(turns) for way, turns in take_turns(ways, options.turns(3), tell).items()}
        profile = kinds(task, lanes)
        beside = ", ".join(f"{kind} {one['us']:,.0f} µs ({one['kernels']:.0f})" for kind, one in profile.items())
        for count in COUNTS:
            alone = f"a step alone: {beside}" if count == 1 else ""
            found.append(
                Row(f"{count} {name}", "images/s", rates[str(count)], rates["1"], "one lane", alone, {"step": profile})
            )
        torch.cuda.synchronize()
    return found
