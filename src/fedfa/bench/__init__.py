"""``fedfa bench``: what this machine does, ours against a baseline in the same run.

One file per measurement; each has ``measure(options, tell)``, which returns rows and tells what it is doing. To add
one: a file, and a line in ``MEASUREMENTS``. Nothing here imports torch before a measurement runs.
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
class Measurement:
    name: str
    title: str
    on_gpu: bool = False
    by_default: bool = True
    """Whether it is made where none is named."""


MEASUREMENTS = (
    Measurement("job", "the digits job against a loop written by hand"),
    Measurement("executors", "training in-flight clients in batches against one by one, models of growing size"),
    Measurement("engine", "a task that computes nothing, very many clients, against a bare numpy loop"),
    Measurement("aggregation", "the server's work per arrival, d x K, against plain copying"),
    Measurement("checkpoint", "saving the server's state, against writing as many bytes plainly"),
    Measurement("gpu", "lanes against one client at a time, on the paper's workloads", on_gpu=True),
    Measurement("lanes", "clients side by side against one, and a step's kernels", on_gpu=True, by_default=False),
    Measurement("growth", "how cost grows with d, K, M_c and N, with a figure (minutes)", by_default=False),
)
BY_NAME = {measurement.name: measurement for measurement in MEASUREMENTS}


def choose(names: Sequence[str]) -> tuple[list[Measurement], list[str]]:
    """The measurements asked for, each once, or all that this machine can make; and a line for each left out."""
    for name in names:
        require(name in BY_NAME, f"bench {name}: no such measurement; {suggest(name, BY_NAME, 'there are')}")
    wanted = [m for m in MEASUREMENTS if m.name in names or (not names and m.by_default)]
    if any(m.on_gpu for m in wanted) and not _gpu():
        if names:
            name = next(m.name for m in wanted if m.on_gpu)
            raise ConfigError(f"bench {name}: no GPU that torch can use; leave it out, or run it on a machine with one")
        left_out = [m for m in wanted if m.on_gpu]
        wanted = [m for m in wanted if not m.on_gpu]
        return wanted, [f"{m.name}: left out, no GPU that torch can use." for m in left_out]
    return wanted, []


def _gpu() -> bool:
    if find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()


def measured(
    wanted: Sequence[Measurement], options: Options, tell: Callable[[str], None]
) -> Iterator[tuple[Measurement, list[Row]]]:
    """Each measurement with its rows, as soon as it is done."""
    for measurement in wanted:
        measure = import_module(f"fedfa.bench.{measurement.name}").measure
        yield measurement, measure(options, lambda text, name=measurement.name: tell(f"{name}: {text}"))


def as_grid(measurement: Measurement, rows: Sequence[Row]) -> Grid:
    """The rows for a terminal."""
    return Grid(
        f"{measurement.name}: {measurement.title}",
        ("case", "fedfa", "baseline", "ratio", "beside"),
        [
            (row.case, f"{number(row.ours)} {row.unit}", f"{number(row.baseline)} ({row.against})",
             f"{row.ratio:.2f}", row.beside)
            for row in rows
        ],
    )  # fmt: skip
