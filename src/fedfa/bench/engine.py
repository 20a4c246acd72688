"""The engine alone: a task that computes nothing, very many clients, records on.

1,000,000 registered clients, 10,000 in flight, 200,000 updates of 1,000 floats, FedFa-Param with K = 10, against a
bare numpy loop that keeps only a heap and a window.
"""

import heapq
import multiprocessing
import statistics
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import fedfa
from fedfa.bench.base import Options, Row, Tell, peak_memory, rate
from fedfa.executors.base import KeepsNothing, Trained, WorkOrder
from fedfa.learning.device import CPU
from fedfa.learning.no_task import NoTask

RESULTS = 64  # different client results, handed out in turn


class NoExecutor(KeepsNothing):
    """Hands out prepared results."""

    name = "no-op"
    device = CPU

    def __init__(self, length: int) -> None:
        rng = np.random.default_rng(0)
        self._results = [Trained(rng.normal(size=length).astype(np.float32), 1, 1.0, 0.0) for _ in range(RESULTS)]

    def submit(self, order: WorkOrder) -> None:
        pass

    def result(self, dispatch: int) -> Trained:
        return self._results[dispatch % RESULTS]

    def discard(self, dispatch: int) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Size:
    clients: int = 1_000_000
    in_flight: int = 10_000
    updates: int = 200_000
    length: int = 1_000


def ours(size: Size) -> float:
    strategy = fedfa.FedFaParam(concurrency=size.in_flight, window=10)
    task, executor = NoTask(size.clients, size.length), NoExecutor(size.length)
    with TemporaryDirectory() as folder:
        run = partial(
            fedfa.simulate, strategy, task, stop=fedfa.Stop(updates=size.updates), executor=executor,
            engine={"evaluate_every": 1000}, out=Path(folder) / "run",
        )  # fmt: skip
        return rate(size.updates, run)


def bare(size: Size) -> float:
    """Only a heap and a window: no screen, no weather, no choice of clients, no records."""
    rng = np.random.default_rng(0)
    results = [rng.normal(size=size.length).astype(np.float32) for _ in range(RESULTS)]
    delays = 3 + rng.exponential(5, 1 << 16)

    def loop() -> None:
        heap = [(delays[i % len(delays)], i) for i in range(size.in_flight)]
        heapq.heapify(heap)
        window: deque[np.ndarray] = deque()
        total, model, number = np.zeros(size.length), np.zeros(size.length, np.float32), size.in_flight
        for _ in range(size.updates):
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

    return rate(size.updates, loop)


def turn(size: Size) -> tuple[float, float, int]:
    """Updates per second of both, and the bytes that ours used."""
    before = peak_memory()
    fast, after = ours(size), peak_memory()
    return fast, bare(size), after - before


def rows_of(sizes: Sequence[Size], repeats: int, tell: Tell) -> list[Row]:
    """All sizes in turn, repeatedly. Each turn has its own process, so that memory of other turns does not count."""
    turns: dict[Size, list[tuple[float, float, int]]] = {size: [] for size in sizes}
    alone = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), max_tasks_per_child=1)
    with alone:
        for repeat in range(repeats):
            for size in sizes:
                tell(f"{size.clients:,} clients, {size.in_flight:,} in flight, turn {repeat + 1} of {repeats}")
                turns[size].append(alone.submit(turn, size).result())
    rows = []
    for size, taken in turns.items():
        fast, slow, memory = map(statistics.median, zip(*taken, strict=True))
        rows.append(
            Row(
                f"{size.clients:,} clients, {size.in_flight:,} in flight", "updates/s", fast, slow, "bare numpy loop",
                f"{1e6 / fast:.1f} µs, {memory / 2**20:,.0f} MiB",
                asdict(size) | {"microseconds": 1e6 / fast, "bytes": memory, "all": [one[0] for one in taken]},
            )
        )  # fmt: skip
    return rows


def measure(options: Options, tell: Tell) -> list[Row]:
    return rows_of([Size(100_000, 1_000, 20_000) if options.quick else Size()], options.turns(5), tell)
