"""The digits job by other federated-learning simulators, each in an environment of its own, beside ours.

Digits, 50 clients, Dirichlet alpha 0.5, MLP 64-64-10, SGD lr 0.1, batch 32, 5 local epochs, one torch thread.
"fedavg": rounds of 10 clients; "fedbuff": 10 in flight, K = 5, for those that are asynchronous. All train on the same
split and evaluate on the same 359 images after every 10 client trainings. Every worker (benchmarks/peers/by_NAME.py)
is a process of its own that clocks itself after a warm-up; imports, data and the start of worker processes are
outside of the clock. The frameworks take turns. Prints client trainings per second and how many times faster ours is
in the same turn, medians and ranges.

    python benchmarks/peers.py --python pfl=VENV/bin/python --python flower=VENV/bin/python ...
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fedfa.learning.data_task import named_task

WORKERS = Path(__file__).parent / "peers"
MODES: dict[str, tuple[str, ...]] = {
    "fedavg": ("fedfa", "hand", "fluke", "pfl", "appfl", "fedlab", "fedml", "flgo", "flsim", "flower"),
    "fedbuff": ("fedfa", "flgo", "appfl", "flsim"),
}


def write_split(path: Path) -> None:
    task = named_task("digits", 0)
    np.savez(
        path, inputs=task.inputs.numpy(), targets=task.targets.numpy(), sizes=task.sizes,
        test_inputs=task.test_inputs.numpy(), test_targets=task.test_targets.numpy(),
    )  # fmt: skip


def work(name: str, python: str, mode: str, rounds: int, folder: Path, limit: float) -> dict[str, Any]:
    """One run of a worker; what it says is shown only if it fails."""
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    command = [python, str(WORKERS / f"by_{name}.py"), str(folder / "split.npz"), str(report), mode, str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit, cwd=folder)
    if done.returncode or not report.exists():
        raise SystemExit(f"{name} ({mode}) failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    found = json.loads(report.read_text())
    assert found["accuracy"] > 0.8, (name, mode, found)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", default=[], metavar="NAME=PATH", help="a framework's interpreter")
    parser.add_argument("--modes", nargs="+", choices=list(MODES), default=list(MODES))
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds a worker may take")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    pythons = {"fedfa": sys.executable, "hand": sys.executable} | dict(one.split("=", 1) for one in options.python)
    report: dict[str, Any] = {}
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_split(folder / "split.npz")
        for mode in options.modes:
            names = [name for name in MODES[mode] if name in pythons]
            found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
            for _ in range(options.repeats):
                for name in names:
                    found[name].append(work(name, pythons[name], mode, options.rounds, folder, options.limit))
            rates = {name: [one["trainings_per_second"] for one in runs] for name, runs in found.items()}
            print(f"{mode}: client trainings per second, median of {options.repeats} ({options.rounds} rounds)")
            for name, values in rates.items():
                ratios = [ours / theirs for ours, theirs in zip(rates["fedfa"], values, strict=True)]
                speed = f"{statistics.median(values):8,.1f} ({min(values):,.1f} to {max(values):,.1f})"
                ratio = f"{statistics.median(ratios):6.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
                last = found[name][-1]
                print(f"  {name:8} {speed}   fedfa is faster by {ratio}   accuracy {last['accuracy']:.3f}")
                versions = ", ".join(f"{package} {number}" for package, number in last["versions"].items())
                print(f"           Python {last['python']}, {versions}", flush=True)
            report[mode] = found
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
