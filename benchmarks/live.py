"""What ``live.json`` costs: the engine alone (as in ``fedfa bench engine``) with and without it, in turn.

Processor time of the run's own thread is compared, which other work on the machine disturbs least. Also printed: the
share of it inside of ``Live.tick``, without the packing of rows, which happens in any case (only a little later).
"""

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import fedfa.simulation.engine
from fedfa.bench.base import Row, report
from fedfa.bench.engine import Size, ours
from fedfa.cli.console import command_typed
from fedfa.runs.live import Live
from fedfa.runs.snapshot import State


class Timed(Live):
    seconds = 0.0
    written = 0
    size = 0

    def tick(self, run: Any, wall_seconds: float) -> None:
        if time.monotonic() >= self._due:
            run.record.updates.pack_if_due(rows=256)
        started = time.thread_time()
        super().tick(run, wall_seconds)
        Timed.seconds += time.thread_time() - started

    def _write(self, run: Any, state: State, ended: str = "") -> None:
        super()._write(run, state, ended)
        Timed.written += 1
        Timed.size = (self._folder / "live.json").stat().st_size


class Nothing:
    def __init__(self, *_: Any) -> None:
        pass

    def tick(self, *_: Any) -> None:
        pass

    end = tick


def seconds_of(live: type[Any], size: Size) -> float:
    fedfa.simulation.engine.Live = live  # pyright: ignore
    started = time.thread_time()
    ours(size)
    return time.thread_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=1_000_000)
    parser.add_argument("--in-flight", type=int, default=10_000)
    parser.add_argument("--updates", type=int, default=200_000)
    parser.add_argument("--length", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    size = Size(options.clients, options.in_flight, options.updates, options.length)
    seconds_of(Nothing, size)
    pairs = [(seconds_of(Timed, size), seconds_of(Nothing, size)) for _ in range(options.repeats)]
    seconds = {"with": [a for a, _ in pairs], "without": [b for _, b in pairs]}
    for name, values in seconds.items():
        print(f"{name} live.json: {', '.join(f'{value:.2f}' for value in values)} s")
    share, each = Timed.seconds / sum(seconds["with"]), 1e3 * Timed.seconds / Timed.written
    fast, slow = (size.updates / statistics.median(seconds[name]) for name in ("with", "without"))
    row = Row(
        "engine with live.json", "updates/s", fast, slow, "without",
        f"inside of the call {share:.2%} of the run, {each:.1f} ms per file of {Timed.size / 1000:.0f} kB",
        {"seconds": seconds, "inside": share, "ms_per_file": each, "bytes": Timed.size},
    )  # fmt: skip
    best = min(seconds["without"]) / min(seconds["with"])
    print(f"{row.beside}; speed with it: medians {row.ratio:.4f}, best against best {best:.4f}")
    if options.json:
        options.json.write_bytes(report(command_typed("python", "benchmarks/live.py"), {"live": [row]}))


if __name__ == "__main__":
    main()
