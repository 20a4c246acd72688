"""The engine alone: a task that computes nothing, very many clients, records on.

1,000,000 registered clients, 10,000 in flight, 200,000 updates of 1,000 floats, FedFa-Param with K = 10, against a
bare numpy loop that keeps only a heap and a window. Prints updates per second, peak memory and their ratio.
"""

import argparse
import heapq
import json
import resource
import time
from collections import deque
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

import fedfa
from fedfa.executors.base import Trained, WorkOrder
from fedfa.place import CPU, Place
from fedfa.task import Initial, Score

RESULTS = 64  # different client results, handed out in turn


class NoTask:
    """What the engine asks of a task, with nothing behind it."""

    name = "no-op"
    local = fedfa.LocalTraining(epochs=1)

    def __init__(self, num_clients: int, length: int) -> None:
        self.num_clients, self.length = num_clients, length

    def initial(self, seed: int) -> Initial:
        return Initial(np.zeros(self.length, np.float32), self.length)

    def evaluator(self, seed: int, place: Place = CPU) -> Any:
        return lambda vector, meanwhile: Score(0.0, 0.0)

    def digest(self, seed: int) -> str:
        return "nothing to change"

    def label_counts(self) -> pl.DataFrame:
        return pl.DataFrame(schema={"client": pl.Int64, "label": pl.String, "examples": pl.Int64})


class NoExecutor:
    """Hands out prepared results."""

    name = "no-op"
    place = CPU

    def __init__(self, length: int) -> None:
        rng = np.random.default_rng(0)
        self._results = [Trained(rng.normal(size=length).astype(np.float32), 1, 1.0, 0.0) for _ in range(RESULTS)]

    def submit(self, order: WorkOrder) -> None:
        pass

    def result(self, dispatch: int) -> Trained:
        return self._results[dispatch % RESULTS]

    def discard(self, dispatch: int) -> None:
        pass

    def finished(self) -> dict[int, Trained]:
        return {}

    def restore(self, finished: dict[int, Trained]) -> None:
        pass

    def meanwhile(self) -> None:
        pass


def ours(clients: int, in_flight: int, updates: int, length: int) -> float:
    strategy = fedfa.FedFaParam(concurrency=in_flight, window=10)
    with TemporaryDirectory() as folder:
        start = time.perf_counter()
        run = fedfa.simulate(
            strategy, NoTask(clients, length), stop=fedfa.Stop(updates=updates), executor=NoExecutor(length),
            evaluate_every=1000, out=Path(folder) / "run",
        )  # fmt: skip
        seconds = time.perf_counter() - start
    assert len(run.updates) == updates
    return updates / seconds


def bare(clients: int, in_flight: int, updates: int, length: int) -> float:
    rng = np.random.default_rng(0)
    results = [rng.normal(size=length).astype(np.float32) for _ in range(RESULTS)]
    delays = 3 + rng.exponential(5, 1 << 16)
    start = time.perf_counter()
    heap = [(delays[i % len(delays)], i) for i in range(in_flight)]
    heapq.heapify(heap)
    window: deque[np.ndarray] = deque()
    total, model, number = np.zeros(length), np.zeros(length, np.float32), in_flight
    for _ in range(updates):
        now, dispatch = heapq.heappop(heap)
        result = results[dispatch % RESULTS]
        window.append(result)
        total += result
        if len(window) > 10:
            total -= window.popleft()
            model = (total / 10).astype(np.float32)
        heapq.heappush(heap, (now + delays[number % len(delays)], number))
        number += 1
    assert np.isfinite(model).all()
    return updates / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=1_000_000)
    parser.add_argument("--in-flight", type=int, default=10_000)
    parser.add_argument("--updates", type=int, default=200_000)
    parser.add_argument("--length", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    size = (options.clients, options.in_flight, options.updates, options.length)
    rates: dict[str, list[float]] = {"fedfa": [], "bare numpy loop": []}
    for _ in range(options.repeats):
        rates["fedfa"].append(ours(*size))
        rates["bare numpy loop"].append(bare(*size))
    best = {name: max(values) for name, values in rates.items()}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    for name, values in rates.items():
        print(f"{name:16s} {best[name]:>10,.0f} updates/s   (all: {', '.join(f'{v:,.0f}' for v in values)})")
    print(json.dumps({"updates_per_second": best, "peak_memory_mib": round(peak)}))
    print(f"ratio to the bare loop: {best['fedfa'] / best['bare numpy loop']:.2f}")


if __name__ == "__main__":
    main()
