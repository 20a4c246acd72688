"""The cost of saving the server: a strategy's state in one file, against writing as many bytes plainly.

FedFa-Param with d = 11,000,000 and K = 10: 12 + 4 K bytes per parameter. The clock stops when the data is on disk, not
only in the cache.
"""

import os
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from fedfa.bench.aggregation import arrivals, strategy_of
from fedfa.bench.base import Options, Row, Tell, middle, rate, take_turns
from fedfa.runs.checkpoint import write_tree


def measure(options: Options, tell: Tell) -> list[Row]:
    length, window = (100_000, 10) if options.quick else (11_000_000, 10)
    rng = np.random.default_rng(0)
    results = [rng.random(length, np.float32) for _ in range(window)]
    strategy = strategy_of("fedfa-param", window)
    arrivals(strategy, results, np.zeros(length, np.float32), 1)()
    size = (12 + 4 * window) * length
    with TemporaryDirectory() as folder:
        ours, plain = Path(folder) / "ours.npz", Path(folder) / "plain"
        rates = take_turns(
            {
                "checkpoint": partial(rate, size, lambda: write_tree(ours, strategy.state_dict())),
                "plain file": partial(rate, size, lambda: write_plainly(plain, results[0], size)),
            },
            options.turns(5),
            tell,
        )
    fast, slow = middle(rates["checkpoint"]), middle(rates["plain file"])
    case = f"fedfa-param, d = {length:,}, K = {window}"
    return [Row(case, "GB/s", fast / 1e9, slow / 1e9, "plain file", f"{size / 1e9:.2g} GB, {size / fast:.2g} s")]


def write_plainly(path: Path, vector: np.ndarray, size: int) -> None:
    with path.open("wb") as file:
        for _ in range(size // vector.nbytes):
            file.write(vector.data)
        file.flush()
        os.fsync(file.fileno())
