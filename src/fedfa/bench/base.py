"""What the measurements share: options, rows, taking turns, and what the machine has."""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from fedfa.runs.machine import machine

Tell = Callable[[str], None]
"""Called with a few words about the current measurement."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of ``fedfa bench``."""

    quick: bool = False
    """Small sizes and few repeats, to test that it works."""
    repeats: int | None = None
    """Turns of each side; each measurement has its own default."""
    out: Path = Path("runs/bench")
    """Folder for figures."""
    models: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    precision: str = "bf16"
    updates: int = 100
    inline_updates: int = 12
    compile: bool = False

    def turns(self, usual: int) -> int:
        return self.repeats or (1 if self.quick else usual)


@dataclass(frozen=True, slots=True)
class Row:
    """Ours against a baseline: two rates in the same unit, more is better."""

    case: str
    unit: str
    ours: float
    baseline: float
    against: str
    beside: str = ""
    """Details to show with it."""
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        return self.ours / self.baseline

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"ratio": self.ratio}


def report(command: str, measurements: Mapping[str, Sequence[Row]]) -> bytes:
    """The file that keeps all numbers, with where they come from."""
    found = {name: [row.as_dict() for row in rows] for name, rows in measurements.items()}
    torch = sys.modules.get("torch")
    gpu = {"gpu": torch.cuda.get_device_name()} if torch and torch.cuda.is_available() else {}
    where = {"command": command, "date": date.today().isoformat(), "machine": machine() | gpu}
    return json.dumps(where | {"measurements": found}, indent=1).encode()


def take_turns(ways: Mapping[str, Callable[[], float]], repeats: int, tell: Tell) -> dict[str, list[float]]:
    """The rates of all ways, measured in turn, repeatedly; the first turn is a warm-up.

    A noisy machine slows neighbouring measurements equally, so ratios of measurements in turn are reliable.
    """
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(repeats + 1):
        for name, way in ways.items():
            tell(f"{name}, {f'turn {repeat} of {repeats}' if repeat else 'warming up'}")
            rates[name].append(way())
    return rates


def middle(rates: list[float]) -> float:
    """The median, without the warm-up."""
    return statistics.median(rates[1:])


def rate(count: float, work: Callable[[], object]) -> float:
    """``count`` per second of this work."""
    start = time.perf_counter()
    work()
    return count / (time.perf_counter() - start)


@contextmanager
def one_core() -> Iterator[None]:
    """One core for this process, where the system allows it (Linux), and torch with one thread."""
    import torch

    threads, cores = torch.get_num_threads(), os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    torch.set_num_threads(1)
    if cores:
        os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        if cores:
            os.sched_setaffinity(0, cores)


def peak_memory() -> int:
    """The most bytes this process has held in memory so far."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):  # not Linux, whose ru_maxrss would count the parent's memory, too
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def free_memory() -> int:
    """Bytes available without swapping; 4 GiB on systems that do not report it."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return 4 << 30
