"""Server aggregation for a large model: flat in K, and near the machine's memory speed.

One FedFa-Param ``receive`` of d floats: the screen reads the result and its base; the window's float64 sum takes the
new result in and the oldest out; the new model is written. Against it stands the time the machine needs to stream
as many bytes in plain copies, with the same number of threads. Prints the ratios last.
"""

import argparse
import json
import time
from collections.abc import Callable

import numpy as np

import fedfa
from fedfa import vectors
from fedfa.core import Flight, Update


def best_of(repeats: int, work: Callable[[], object]) -> float:
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def receive_seconds(length: int, window: int, repeats: int) -> float:
    """Seconds for one arrival once the window is full."""
    rng = np.random.default_rng(0)
    results = [rng.random(length, np.float32) for _ in range(3)]
    strategy = fedfa.FedFaParam(concurrency=10, window=window)
    base = np.zeros(length, np.float32)
    strategy.begin(base)
    number = 0

    def arrive() -> None:
        nonlocal number
        number += 1
        # a copy per arrival, as if it had come over a network; made outside of the timed part below
        orders = strategy.receive(Update(1, number, 0, queue.pop(), base, 1, 1.0), {1: Flight(number, 0)})
        assert not orders.refused

    queue = [results[i % 3].copy() for i in range(window)]
    while queue:
        arrive()
    times = []
    for i in range(repeats):
        queue.append(results[i % 3].copy())
        start = time.perf_counter()
        arrive()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


def copy_seconds_per_byte(length: int, repeats: int) -> float:
    """Seconds per byte read or written, copying with the threads that aggregation uses."""
    source, target = np.ones(length, np.float64), np.empty(length, np.float64)

    def part(low: int, high: int) -> None:
        target[low:high] = source[low:high]

    seconds = min(
        best_of(repeats, lambda: vectors.over_blocks(source, part)), best_of(repeats, lambda: np.copyto(target, source))
    )
    return seconds / (16 * length)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=11_000_000)
    parser.add_argument("--windows", type=int, nargs="+", default=[5, 10, 100])
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    d = options.length
    # screen: result + base; window: result, oldest, sum read and written; publication: sum read, model written
    touched = 4 * d + 4 * d + 4 * d + 4 * d + 8 * d + 8 * d + 8 * d + 4 * d
    seconds = {k: receive_seconds(d, k, options.repeats) for k in options.windows}
    per_byte = copy_seconds_per_byte(d, options.repeats)
    stream = per_byte * touched
    print(
        f"d = {d:,}; copy bandwidth {1e-9 / per_byte:.1f} GB/s; {touched / 1e6:.0f} MB touched: {stream * 1e3:.1f} ms"
    )
    for k, value in seconds.items():
        print(f"K = {k:>3}: {value * 1e3:6.1f} ms per arrival, {value / stream:.2f}x the streaming time")
    print(json.dumps({"ms": {k: v * 1e3 for k, v in seconds.items()}, "streaming_ms": stream * 1e3}))
    first, last = options.windows[0], options.windows[-1]
    print(f"ratio K = {last} to K = {first}: {seconds[last] / seconds[first]:.2f}")
    print(f"ratio to the streaming time, worst: {max(seconds.values()) / stream:.2f}")


if __name__ == "__main__":
    main()
