"""Lanes against the eager inline executor on one GPU: examples per second in simulations of the paper's workloads.

FedFa-Param with the paper's concurrency, local epochs and batch size, evaluation every 20 updates, random data of the
real shapes (speed does not depend on its content). Capturing and compiling are outside of the clock: every executor
first runs a few updates. Executors take turns, best of --repeats.
"""

import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

import fedfa
from fedfa.bench.base import Options, Row, Tell
from fedfa.errors import require
from fedfa.executors.registry import make_executor
from fedfa.learning.device import Device
from fedfa.learning.models.resnet import ResNet18
from fedfa.settings import suggest

SQUARE = 8192
"""Rows and columns of the matrix product that measures the GPU's best rate."""


def images() -> fedfa.Task:
    """100 clients with 500 images of CIFAR-10's shape."""
    generator = torch.Generator().manual_seed(0)

    def part(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        labels = torch.randint(0, 10, (count,), generator=generator)
        return torch.randn(count, 3, 32, 32, generator=generator), labels

    local = fedfa.LocalTraining(epochs=10, batch_size=32, lr=0.01)
    return fedfa.Task(model=ResNet18, clients=[part(500) for _ in range(100)], test=part(10_000), local=local)


def texts(layers: int, width: int, heads: int, length: int, local: fedfa.LocalTraining, rank: int) -> fedfa.Task:
    """Clients with texts for a BERT of these sizes, with random weights."""
    from transformers import BertConfig, BertModel

    from fedfa.learning.models.bert import Bert

    folder = Path(tempfile.mkdtemp())
    config = BertConfig(
        hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * width
    )
    BertModel(config).save_pretrained(folder)
    generator = torch.Generator().manual_seed(0)

    def part(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        ids = torch.randint(1000, 30_000, (count, length), generator=generator)
        return ids.int(), torch.randint(0, 2, (count,), generator=generator)

    clients = [part(100 if rank == 0 else 640) for _ in range(50 if rank == 0 else 10)]
    return fedfa.Task(model=lambda: Bert(str(folder), 2, rank), clients=clients, test=part(1000), local=local)


WORKLOADS: dict[str, tuple[Callable[[], fedfa.Task], int]] = {
    "resnet18": (images, 10),
    "bert-tiny": (
        lambda: texts(2, 128, 2, 32, fedfa.LocalTraining(epochs=15, batch_size=5, lr=4e-4, optimizer="adamw"), 0),
        10,
    ),
    "minilm-lora": (
        lambda: texts(6, 384, 12, 32, fedfa.LocalTraining(epochs=1, batch_size=32, lr=1e-4, optimizer="adamw"), 1),
        5,
    ),
}


def rate(task: fedfa.Task, executor: Any, concurrency: int, updates: int) -> dict[str, float]:
    """Examples per second of one simulation."""
    strategy = fedfa.FedFaParam(concurrency=concurrency, window=min(5, concurrency))
    run = fedfa.simulate(
        strategy, task, stop=fedfa.Stop(updates=updates), engine={"executor": executor, "evaluate_every": 20}
    )
    seconds = run.manifest["wall_seconds"]
    examples = int(run.accepted["num_examples"].sum()) * task.local.epochs
    return {"examples_per_second": examples / seconds, "seconds": seconds, "loss": float(run.evaluations["loss"][-1])}


def flops_of(task: fedfa.Task) -> float:
    """Floating-point operations of one example, forward and backward."""
    from torch.utils.flop_counter import FlopCounterMode

    module = task.build(0).to("cuda")
    inputs, targets = task.inputs[:8].to("cuda"), task.targets[:8].to("cuda")
    counter = FlopCounterMode(display=False)
    with counter:
        task.loss(module(inputs), targets).backward()
    return counter.get_total_flops() / 8


def ceiling(precision: str, products: int = 50) -> float:
    """Operations per second of one large matrix product."""
    with Device.of("cuda", precision).prepared():
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        a, b = (torch.randn(SQUARE, SQUARE, device="cuda", dtype=dtype) for _ in range(2))
        torch.mm(a, b)
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(products):
            torch.mm(a, b)
        torch.cuda.synchronize()
        return 2 * SQUARE**3 * products / (time.perf_counter() - begun)


def possible() -> list[str]:
    """All workloads, or those that need no extra library where it is missing."""
    return [name for name in WORKLOADS if name == "resnet18" or find_spec("transformers")]


def measure(options: Options, tell: Tell) -> list[Row]:
    device = Device.of("cuda", options.precision)
    best_possible = ceiling(device.precision)
    tell(f"one large matrix product: {best_possible / 1e12:,.0f} TFLOP/s")
    found: list[Row] = []
    for name in options.workloads or possible():
        require(name in WORKLOADS, f"--workloads {name}: {suggest(name, WORKLOADS, 'must be one of')}")
        make, concurrency = WORKLOADS[name]
        task = make()
        kinds: dict[str, tuple[Any, int]] = {
            "inline": (make_executor("inline", task, 0, device), options.inline_updates),
            "lanes": (make_executor("lanes", task, 0, device), options.updates),
        }
        if options.compile:
            kinds["lanes, compiled"] = (make_executor("lanes", task, 0, device, compile=True), options.updates)
        best: dict[str, dict[str, float]] = {}
        for kind, (executor, updates) in kinds.items():
            begun = time.perf_counter()
            rate(task, executor, concurrency, min(updates, 3 * concurrency))
            tell(f"{name}: {kind} ({executor.name}) ready after {time.perf_counter() - begun:.1f} s")
        for _ in range(options.turns(2)):
            for kind, (executor, updates) in kinds.items():
                one = rate(task, executor, concurrency, updates)
                if kind not in best or one["examples_per_second"] > best[kind]["examples_per_second"]:
                    best[kind] = one
        slow, flops = best["inline"]["examples_per_second"], flops_of(task)
        for kind, one in best.items():
            speed = one["examples_per_second"]
            done = speed * flops
            if kind != "inline":
                beside = f"{done / 1e12:.1f} TFLOP/s, {done / best_possible:.1%} of a large matrix product's"
                details = one | {"precision": device.precision, "flops": done, "ceiling": best_possible}
                found.append(Row(f"{name}, {kind}", "examples/s", speed, slow, "eager inline", beside, details))
    return found
