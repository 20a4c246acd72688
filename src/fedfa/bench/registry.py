"""``fedfa bench``: speed on this machine, ours against a baseline in the same run.

One file per measurement; each has ``measure(options, tell)``, which returns rows and reports its progress. To add one:
a file here, and a row in ``BENCHMARKS``. Nothing here imports torch before a measurement runs.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

from fedfa.bench.base import Options, Row
from fedfa.errors import ConfigError, require
from fedfa.report.grid import Grid
from fedfa.report.shapes import number
from fedfa.settings import suggest


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A measurement of ours against a baseline; its module has the same name."""

    title: str
    on_gpu: bool = False
    by_default: bool = True
    """Whether it runs if no measurement is named."""


BENCHMARKS: dict[str, Benchmark] = {
    "job": Benchmark("the digits job against a loop written by hand"),
    "start": Benchmark("from the start of a process to its first update, against a loop written by hand"),
    "grid": Benchmark(
        "models x client sizes x strategies, every executor against a loop by hand (an hour or two)",
        by_default=False,
    ),
    "together": Benchmark("the runs of a comparison side by side, against one after the other", by_default=False),
    "workers": Benchmark(
        "one run on all cores, by processes of its own and by Ray, against one process (minutes)", by_default=False
    ),
    "engine": Benchmark("a task that computes nothing, very many clients, against a bare numpy loop"),
    "aggregation": Benchmark("the server's work per arrival, d x K, against plain copying"),
    "checkpoint": Benchmark("saving the server's state, against writing as many bytes plainly"),
    "gpu": Benchmark("lanes against one client at a time, on the paper's workloads", on_gpu=True),
    "lanes": Benchmark("clients side by side against one, and a step's kernels", on_gpu=True, by_default=False),
    "growth": Benchmark("how cost grows with d, K, M_c and N, with a figure (minutes)", by_default=False),
}


def choose(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The requested measurements, each once, or all that this machine can make; and a line for each left out."""
    for name in names:
        require(name in BENCHMARKS, f"bench {name}: no such measurement; {suggest(name, BENCHMARKS, 'there are')}")
    wanted = [name for name, one in BENCHMARKS.items() if name in names or (not names and one.by_default)]
    for_gpu = [name for name in wanted if BENCHMARKS[name].on_gpu]
    if not for_gpu or _gpu():
        return wanted, []
    if names:
        raise ConfigError(
            f"bench {for_gpu[0]}: no GPU that torch can use; leave it out, or run it on a machine with one"
        )
    return (
        [name for name in wanted if name not in for_gpu],
        [f"{name}: left out, no GPU that torch can use." for name in for_gpu],
    )


def _gpu() -> bool:
    if find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()


def measured(wanted: Sequence[str], options: Options, tell: Callable[[str], None]) -> Iterator[tuple[str, list[Row]]]:
    """Each measurement's name with its rows, as soon as it is done."""
    for name in wanted:
        measure = import_module(f"fedfa.bench.{name}").measure
        yield name, measure(options, lambda text, name=name: tell(f"{name}: {text}"))


def as_grid(name: str, rows: Sequence[Row]) -> Grid:
    """The rows for a terminal."""
    return Grid(
        f"{name}: {BENCHMARKS[name].title}",
        ("case", "fedfa", "baseline", "ratio", "beside"),
        [
            (row.case, f"{number(row.ours)} {row.unit}", f"{number(row.baseline)} ({row.against})",
             f"{row.ratio:.2f}", row.beside)
            for row in rows
        ],
    )  # fmt: skip
