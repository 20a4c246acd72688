"""What ``live.json`` costs: the engine alone (as in ``fedfa bench engine``) with and without it, in turn.

Processor time of the run's own thread is compared, which other work on the machine disturbs least. Also printed: the
share of it inside of ``Live.tick``, without the packing of rows, which happens in any case (only a little later).
"""

import argparse
import json
import statistics
import time
from typing import Any

import fedfa.simulation.engine
from fedfa.bench.engine import Size, ours
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
    options = parser.parse_args()
    size = Size(options.clients, options.in_flight, options.updates, options.length)
    seconds_of(Nothing, size)
    pairs = [(seconds_of(Timed, size), seconds_of(Nothing, size)) for _ in range(options.repeats)]
    ratios = [with_live / without for with_live, without in pairs]
    for name, seconds in (("with", [a for a, _ in pairs]), ("without", [b for _, b in pairs])):
        print(f"{name} live.json: {', '.join(f'{value:.2f}' for value in seconds)} s")
    share = Timed.seconds / sum(a for a, _ in pairs)
    print(json.dumps({"inside_tick": share, "ms_per_file": 1e3 * Timed.seconds / Timed.written, "bytes": Timed.size}))
    print(f"ratio of processor time: median {statistics.median(ratios):.4f}, best against best "
          f"{min(a for a, _ in pairs) / min(b for _, b in pairs):.4f}")  # fmt: skip


if __name__ == "__main__":
    main()
