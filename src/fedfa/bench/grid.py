"""Models, sizes of clients and strategies: every executor beside a loop written by hand, the worst case first.

The loop is what a user would write: ``copy.deepcopy`` of the model for each client, ``torch.optim``, batches by
``torch.randperm``. Both train with one torch thread on one core, 5 local epochs and batches of 32. Each cell has a
process of its own: a first run includes everything that fedfa prepares for a model, the later runs share it. The
memory of large models is that of a run in another process, in models above what the imported libraries take.
"""

import copy
import heapq
import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fedfa
from fedfa.bench import engine
from fedfa.bench.base import Options, Row, Tell, middle, one_core, peak_memory, take_turns
from fedfa.bench.cases import WINDOW, Case, Clients, cases
from fedfa.errors import ConfigError
from fedfa.executors.registry import EXECUTORS

WAYS = [name for name in EXECUTORS if name not in ("lanes", "ray")]
"""Those that need neither a GPU nor several cores. A large model is not stacked: the first two are for it."""
RARELY = {"evaluate_every": 10_000}


def measure(options: Options, tell: Tell) -> list[Row]:
    rows = []
    alone = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), max_tasks_per_child=1)
    with alone:
        for case in cases(options.models, options.quick):
            tell(str(case))
            try:
                memory = {way: alone.submit(memory_of, case, way).result() for way in _large(case)}
                rows.append(alone.submit(row_of, case, options, _bounded(case, memory)).result())
            except ConfigError as error:  # a library is missing
                tell(str(error))
    return sorted(rows, key=lambda row: row.ratio)


def _large(case: Case) -> tuple[str, ...]:
    return ("auto", "loop") if case.kind.large else ()


def _bounded(case: Case, memory: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Models that ours and the loop take, and how many ours may take."""
    if not memory:
        return {}
    ours = memory["auto"]
    kept = getattr(case.rule, "window", 0) + ours["in_flight"]
    return {
        "parameters": ours["parameters"], "models": ours["models"], "loop_models": memory["loop"]["models"],
        "most_models": kept + 8 + 2 * (case.optimizer == "adamw"),
    }  # fmt: skip


@contextmanager
def _alone(case: Case) -> Iterator[tuple[Callable[[], nn.Module], Clients]]:
    """The model and its clients, on one core."""
    with one_core(), TemporaryDirectory() as folder:
        yield case.kind.make(Path(folder)), case.data()


def row_of(case: Case, options: Options, memory: Mapping[str, Any]) -> Row:
    """One cell, in this process."""
    updates, chosen = case.updates(options.quick), dict[str, str]()
    names = WAYS[:2] if case.kind.large else WAYS

    def ours(name: str, task: fedfa.Task) -> int:
        run = fedfa.simulate(case.rule, task, stop=fedfa.Stop(updates=updates), engine={"executor": name, **RARELY})
        chosen[name] = run.manifest["executor"]
        return int(run.updates["num_examples"].sum())

    with _alone(case) as (model, clients):
        engine.ours(engine.Size(10, 1, 1, 10))  # imports what a run imports, and prepares no model
        ways = {"loop": partial(by_hand, case, model, clients, updates)}
        ways |= {name: partial(ours, name, case.task(model, clients)) for name in names}
        rates = take_turns(
            {name: partial(_examples_per_second, way) for name, way in ways.items()}, options.turns(5), lambda _: None
        )
    middles = {name: middle(found) for name, found in rates.items()}
    first = rates["auto"][0] / middles["loop"]
    able = [name for name in names if name != "auto" and chosen[name].startswith(name)]  # the others fell back
    beside = [f"auto takes {chosen['auto']}", f"first run {first:.2f}"]
    beside += [f"{name} {middles[name] / middles['loop']:.2f}" for name in able]
    if memory:
        beside.append(f"{memory['models']:.1f} models in memory, the loop {memory['loop_models']:.1f}")
    return Row(
        str(case), "examples/s", middles["auto"], middles["loop"], "loop", ", ".join(beside),
        {
            "model": case.kind.title, "sizes": case.sizes, "strategy": case.strategy, "optimizer": case.optimizer,
            "updates": updates, "auto_takes": chosen["auto"], "rates": rates, "first_ratio": first,
            "auto_of_best": middles["auto"] / max(middles[name] for name in ["auto", *able]), "took": chosen, **memory,
        },
    )  # fmt: skip


def _examples_per_second(way: Callable[[], int]) -> float:
    """Updates would not do: a short run of each way happens to meet clients of other sizes."""
    start = time.perf_counter()
    examples = way()
    return examples / (time.perf_counter() - start)


def memory_of(case: Case, way: str) -> dict[str, float]:
    """The most memory of one run in this fresh process, in models above the libraries and the data."""
    in_flight = 0

    def look(run: Any) -> None:
        nonlocal in_flight
        in_flight = max(in_flight, len({id(flight.base) for flight in run.in_flight.values()}))

    with _alone(case) as (model, clients):
        with torch.device("meta"):
            parameters = sum(one.numel() for one in model().parameters() if one.requires_grad)
        fedfa.simulate(case.rule, stop=fedfa.Stop(updates=case.rule.concurrency))  # imports what a run imports
        before, updates = forget_peak(), case.rule.concurrency + 2 * WINDOW
        if way == "loop":
            by_hand(case, model, clients, updates)
        else:
            fedfa.simulate(
                case.rule, case.task(model, clients), stop=fedfa.Stop(updates=updates),
                engine={"executor": way, **RARELY}, progress=look,
            )  # fmt: skip
    return {"models": (peak_memory() - before) / (4 * parameters), "parameters": parameters, "in_flight": in_flight}


def forget_peak() -> int:
    """Bytes held now; where the system can (Linux), later peaks count from here."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass
    return peak_memory()


# The loop by hand -----------------------------------------------------------------------------------------------------


def by_hand(case: Case, make: Callable[[], nn.Module], clients: Clients, updates: int) -> int:
    """The same strategy and delays, as one writes it for one experiment; the examples of all trained clients."""
    rng, strategy, model, examples = np.random.default_rng(0), case.rule, make().train(), 0
    if strategy.synchronous:
        for _ in range(updates // strategy.concurrency):
            chosen = rng.choice(len(clients), strategy.concurrency, replace=False)
            trained = [_trained(case, copy.deepcopy(model), *clients[client]) for client in chosen]
            sizes = [len(clients[client][1]) for client in chosen]
            _average(model, trained, sizes)
            examples += sum(sizes)
        return examples
    durations = 3 + rng.exponential(5, len(clients))
    idle, window, heap = list(range(len(clients))), deque[nn.Module](maxlen=WINDOW), []
    for number in range(updates + strategy.concurrency):
        now = 0.0
        if number >= strategy.concurrency:
            now, _, client, local = heapq.heappop(heap)
            window.append(_trained(case, local, *clients[client]))
            examples += len(clients[client][1])
            idle.append(client)
            if len(window) == WINDOW:
                _average(model, list(window), [1] * WINDOW)
        client = idle.pop(int(rng.integers(len(idle))))
        heapq.heappush(heap, (now + durations[client], number, client, copy.deepcopy(model)))
    return examples


def _trained(case: Case, model: nn.Module, inputs: Tensor, targets: Tensor) -> nn.Module:
    local = case.local
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if local.optimizer == "adamw":
        optimizer: torch.optim.Optimizer = torch.optim.AdamW(trainable, lr=local.lr, weight_decay=local.weight_decay)
    else:
        optimizer = torch.optim.SGD(trainable, lr=local.lr, momentum=local.momentum)
    for _ in range(local.epochs):
        for batch in torch.randperm(len(targets)).split(local.batch_size):
            optimizer.zero_grad()
            F.cross_entropy(model(inputs[batch]), targets[batch]).backward()
            optimizer.step()
    return model


def _average(model: nn.Module, trained: list[nn.Module], weights: list[int]) -> None:
    states = [one.state_dict() for one in trained]
    shares = torch.tensor(weights, dtype=torch.float32) / sum(weights)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                tensor.copy_(sum(share * state[name] for share, state in zip(shares, states, strict=True)))  # pyright: ignore
