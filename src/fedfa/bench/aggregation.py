"""The server's work per arrival for large models: flat in K, and near the machine's memory speed.

An arrival of d floats is screened and added to the window or buffer, and the rule may publish a new model. The bytes
that this must read and write (``BYTES``) over its time are its GB/s. The baseline is a plain copy on this machine. All
measurements take turns: each K, each strategy, and the copy.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count

import numpy as np

import fedfa
from fedfa.bench.base import Options, Row, Tell, free_memory, middle, rate, take_turns
from fedfa.strategies import vectors
from fedfa.strategies.base import Flight, Strategy, Update
from fedfa.strategies.registry import STRATEGIES

SCREEN, DIFFERENCE, RENEWAL = 8.0, 12.0, 1.0
"""Bytes per coordinate: result and base read; both read and the difference written; a quarter of an entry re-read."""

BYTES: Mapping[str, Callable[[int], float]] = {
    "fedfa-param": lambda k: SCREEN + 24 + RENEWAL + 12,  # new, oldest, sum read and written; sum read, model written
    "fedfa-delta": lambda k: SCREEN + DIFFERENCE + 24 + RENEWAL + 16,  # ... of differences; model read, too
    "fedfa-agree": lambda k: SCREEN + 2 * (24 + RENEWAL + 12) + 8,  # ... of models and bases; their means compared
    "fedbuff": lambda k: SCREEN + DIFFERENCE + 20 + 24 / k,  # new, sum; every K-th time: sum, two models, sum cleared
    "port": lambda k: SCREEN + 2 * DIFFERENCE + 16 + 20 + 24 / k,  # ... and the drift, with three dot products
    "fedavg": lambda k: SCREEN + 20 + 20 / k,
    "fedasync": lambda k: SCREEN + 12,  # two models read, one written
}
"""Bytes per coordinate and arrival that each strategy reads and writes, for a window or buffer of K."""

COPY = 1 << 24  # float64 entries: far larger than any cache
LENGTHS, WINDOWS = (11_000_000, 110_000_000), (5, 10, 100)


def strategy_of(name: str, k: int) -> Strategy:
    kept = {"window", "buffer"} & STRATEGIES[name].__dataclass_fields__.keys()
    return STRATEGIES[name](concurrency=k, **dict.fromkeys(kept, k))


def arrivals(strategy: Strategy, results: Sequence[np.ndarray], base: np.ndarray, number: int) -> Callable[[], None]:
    """Work that delivers this many results, one after the other; the window is full before."""
    strategy.begin(base)
    dispatches = count(1)

    def arrive(times: int) -> None:
        for _ in range(times):
            dispatch = next(dispatches)
            update = Update(1, dispatch, 0, results[dispatch % len(results)], base, 1, 1.0)
            orders = strategy.receive(update, {1: Flight(dispatch, 0)})
            if orders.refused:
                raise fedfa.EngineError(f"{strategy.name}: {orders.refused}")

    arrive(strategy.round_size)
    return partial(arrive, number)


def copying() -> Callable[[], float]:
    """Bytes per second, read or written, of a plain copy: the faster of one thread and those aggregation uses."""
    source, target = np.ones(COPY), np.empty(COPY)

    def part(low: int, high: int) -> None:
        target[low:high] = source[low:high]

    return lambda: max(
        rate(16 * COPY, lambda: vectors.over_blocks(source, part)), rate(16 * COPY, lambda: np.copyto(target, source))
    )


def rows_of(length: int, cases: Sequence[tuple[str, int]], repeats: int, tell: Tell) -> list[Row]:
    """One length; cases are (strategy, K). Empty if even a few such vectors do not fit into half of the memory."""
    most = max(k for _, k in cases) + 1
    room = free_memory() // 2 - 12 * length * len(cases) - 16 * COPY
    distinct = min(most, room // (4 * length))
    if distinct < 3:
        return []
    rng = np.random.default_rng(0)
    results = [rng.random(length, np.float32) for _ in range(distinct)]
    base = np.zeros(length, np.float32)
    number = math.ceil(3e7 / length)  # enough to spread the window's renewals evenly
    ways: dict[str, Callable[[], float]] = {"copy": copying()}
    for name, k in cases:
        touched = BYTES[name](k) * length * number
        ways[f"{name} {k}"] = partial(rate, touched, arrivals(strategy_of(name, k), results, base, number))
    rates = take_turns(ways, repeats, lambda text: tell(f"d = {length:,}: {text}"))
    copied = middle(rates["copy"])
    rows = []
    for name, k in cases:
        speed = middle(rates[f"{name} {k}"])
        milliseconds = 1e3 * BYTES[name](k) * length / speed
        beside = f"{milliseconds:,.3g} ms per arrival"
        if distinct <= k:
            beside += f", with {distinct} vectors in rotation: {k} do not fit"
        details = {
            "strategy": name, "d": length, "K": k, "milliseconds": milliseconds,
            "bytes_per_coordinate": BYTES[name](k), "distinct_vectors": distinct,
        }  # fmt: skip
        rows.append(
            Row(f"{name}, d = {length:,}, K = {k}", "GB/s", speed / 1e9, copied / 1e9, "plain copy", beside, details)
        )
    return rows


def measure(options: Options, tell: Tell) -> list[Row]:
    if options.quick:
        return rows_of(1_000_000, [(name, 5) for name in BYTES], options.turns(1), tell)
    everyone = [(name, 10) for name in BYTES if name != "fedfa-param"]
    rows = []
    for length in LENGTHS:
        windows = [("fedfa-param", k) for k in WINDOWS]
        rows += rows_of(length, windows, options.turns(15), tell)
    return rows + rows_of(LENGTHS[0], everyone, options.turns(15), tell)
