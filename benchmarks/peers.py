"""The digits job by other federated-learning simulators, each in an environment of its own, beside ours.

Digits, 50 clients, Dirichlet alpha 0.5, MLP 64-64-10, SGD lr 0.1, batch 32, 5 local epochs, one torch thread.
"equal": every client has 28 examples; "unequal": 9 to 64. "fedavg": rounds of 10 clients; "fedbuff": 10 in flight,
K = 5, for those that are asynchronous. All train on the same split and evaluate on the same 359 images after every 10
client trainings. Every worker (benchmarks/peers/by_NAME.py) is a process of its own that clocks itself after a
warm-up; imports, data and the start of worker processes are outside of the clock. Each has one core, Flower all. The
frameworks take turns. Prints client trainings per second and how many times faster ours is in the same turn, medians
and ranges.

    python benchmarks/peers.py --python pfl=VENV/bin/python --python flower=VENV/bin/python ...
"""

# pyright: reportMissingImports=false
# ruff: noqa: E402

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fedfa.bench.base import Row, report
from fedfa.cli.console import command_typed
from fedfa.learning.data import digits

WORKERS = Path(__file__).parent / "peers"
sys.path.insert(0, str(WORKERS))
from job import SPLITS, parts_of, sizes_of

MODES: dict[str, tuple[str, ...]] = {
    "fedavg": ("fedfa", "hand", "fluke", "pfl", "appfl", "fedlab", "fedml", "flgo", "flsim", "flower"),
    "fedbuff": ("fedfa", "flgo", "appfl", "flsim"),
}
TITLES = {
    "fedfa": "fedfa", "hand": "loop by hand", "fluke": "fluke", "pfl": "pfl-research", "appfl": "APPFL",
    "fedlab": "FedLab", "fedml": "FedML", "flgo": "FLGo", "flsim": "FLSim", "flower": "Flower",
}  # fmt: skip
FIRST = "fedfa, first run"
Turn = dict[str, Any]


def write_split(path: Path, split: str) -> None:
    generator = np.random.default_rng(0)
    data = digits.load(Path(), generator)
    targets = data.train_targets.numpy()
    sizes = sizes_of(split, len(targets), generator)
    order = parts_of(targets, sizes, generator)
    np.savez(
        path, inputs=data.train_inputs.numpy()[order], targets=targets[order], sizes=sizes,
        test_inputs=data.test_inputs.numpy(), test_targets=data.test_targets.numpy(),
    )  # fmt: skip


def one_core() -> None:
    """For all but Flower, which trains a client on each core."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def work(name: str, python: str, mode: str, split: Path, options: argparse.Namespace) -> Turn:
    """One run of a worker; what it says is shown only if it fails."""
    written = split.with_name("report.json")
    written.unlink(missing_ok=True)
    command = [python, str(WORKERS / f"by_{name}.py"), str(split), str(written), mode, str(options.rounds)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=options.limit, cwd=split.parent,
        preexec_fn=None if name == "flower" else one_core,
    )  # fmt: skip
    if done.returncode or not written.exists():
        raise SystemExit(f"{name} ({mode}, {split.stem}) failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    found = json.loads(written.read_text())
    if options.rounds >= 50 and not found["accuracy"] > 0.75:  # a shorter run is a quick try
        raise SystemExit(f"{name} ({mode}, {split.stem}) learned nothing; its speed means nothing: {found}")
    return found


def row_of(mode: str, split: str, name: str, fedfa: Sequence[Turn], theirs: Sequence[Turn], speed: str) -> Row:
    """``speed``: the key of theirs that counts."""
    ours, other = ([turn[key] for turn in turns] for turns, key in ((fedfa, "trainings_per_second"), (theirs, speed)))
    ratios = [a / b for a, b in zip(ours, other, strict=True)]
    last = theirs[-1]
    package, number = next(iter(last["versions"].items()))
    title = f"{TITLES[name]} {number}" if name in TITLES and package != "torch" else TITLES.get(name, name)
    beside = f"in the same turn {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    return Row(
        f"{mode}, {split}: {name}", "trainings/s", statistics.median(ours), statistics.median(other),
        title, beside,
        {
            "mode": mode, "split": split, "name": name, "ratios": ratios, "accuracy": last["accuracy"],
            "fedfa": ours, "turns": other, "versions": last["versions"], "python": last["python"],
            "executor": fedfa[-1]["executor"],
        },
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", default=[], metavar="NAME=PATH", help="a framework's interpreter")
    parser.add_argument("--split", choices=[*SPLITS, "both"], default="both")
    parser.add_argument("--modes", nargs="+", choices=list(MODES), default=list(MODES))
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds a worker may take")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    pythons = {"fedfa": sys.executable, "hand": sys.executable} | dict(one.split("=", 1) for one in options.python)
    if missing := [name for name in MODES["fedavg"] if name not in pythons]:
        print(f"Left out, without an environment (--python NAME=PATH): {', '.join(missing)}", flush=True)
    rows: list[Row] = []
    with TemporaryDirectory() as folder:
        splits = SPLITS if options.split == "both" else (options.split,)
        paths = {split: Path(folder) / f"{split}.npz" for split in splits}
        for split, path in paths.items():
            write_split(path, split)
        for mode in options.modes:
            names = [name for name in MODES[mode] if name in pythons]
            found: dict[tuple[str, str], list[Turn]] = {(split, name): [] for split in splits for name in names}
            for _ in range(options.repeats):
                for split, name in found:
                    found[split, name].append(work(name, pythons[name], mode, paths[split], options))
            for split in splits:
                ours = found[split, "fedfa"]
                for name in names:
                    rows.append(row_of(mode, split, name, ours, found[split, name], "trainings_per_second"))
                rows.append(row_of(mode, split, FIRST, ours, ours, "first"))
            print(as_text(mode, splits, rows), flush=True)
            if options.json:
                options.json.write_bytes(report(command_typed("python", "benchmarks/peers.py"), {"peers": rows}))


def as_text(mode: str, splits: Sequence[str], rows: Sequence[Row]) -> str:
    """The splits side by side."""
    lines = [f"{mode}: client trainings per second, and how many times faster fedfa is"]
    lines.append(" " * 18 + "".join(f"{split:34}" for split in splits))
    here = [row for row in rows if row.details["mode"] == mode]
    for name in dict.fromkeys(row.details["name"] for row in here):
        cells = [
            f"{row.baseline:8,.1f}  {statistics.median(row.details['ratios']):6.2f} "
            f"({min(row.details['ratios']):.2f} to {max(row.details['ratios']):.2f})"
            for row in here
            if row.details["name"] == name
        ]
        lines.append(f"  {name:16}" + "".join(f"{cell:34}" for cell in cells))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
