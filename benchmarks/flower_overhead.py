"""fedfa's server on Flower against the asynchronous loop one would write by hand, for models of 1 MB and 45 MB.

A real SuperLink and real SuperNodes on loopback, the same initial model and the same client app for both, whose
training takes no time: what is left is the way of a model to a client and back. Ours also keeps its journal (every
update is on disk before it counts). The two take turns, each time with daemons of their own: what a run leaves on its
way would hold up the next one. Prints, for each run,

    seconds per update, from the first answer of the second wave on;
    the round trip of a dispatch, from its sending to the server having the answer, median (least to most);
    of that the time after training, and the processor time of the client's process up to there;

and last the ratio of the medians, and the most memory that each kind of process has taken.
"""

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedfa.bench.base import Row, report
from fedfa.cli.console import command_typed
from fedfa.deployment.flower.federation import Federation

APP = Path(__file__).parent / "flower_apps" / "overhead"
WIDTHS = {"20 kB": 70, "1 MB": 512, "2 MB": 724, "45 MB": 3354}
PROGRAMS = ("flower-superlink", "flower-supernode", "flwr-serverapp", "flwr-clientapp")


def one_run(by_hand: bool, width: int, options: argparse.Namespace, peaks: dict[str, int]) -> dict[str, Any]:
    with Federation(nodes=options.nodes) as federation:
        out = federation.folder / "run"
        config = {
            "by-hand": by_hand, "width": width, "zeros": options.zeros, "nodes": options.nodes,
            "strategy": f"fedfa-param:concurrency={options.nodes}:window=2", "stop-updates": options.updates,
            "out": str(out),
        }  # fmt: skip
        process = federation.start_run(APP, config, quiet=True)
        while process.poll() is None:
            note_memory(federation, peaks)
            time.sleep(1)
        if process.returncode:
            raise SystemExit(f"flwr run failed: {(federation.folder / 'run.log').read_text()[-2000:]}")
        exchanges = json.loads(Path(f"{out}.exchanges").read_text())
        lines = Path(f"{out}.trained").read_text().splitlines()
    trained = {int(dispatch): (float(at), float(spent)) for dispatch, at, spent in map(str.split, lines)}
    counted = exchanges[options.nodes :]
    return {
        "seconds per update": (counted[-1][2] - counted[0][2]) / (len(counted) - 1),
        "round trip": [arrived - sent for _, sent, arrived in counted],
        "after training": [arrived - trained[dispatch][0] for dispatch, _, arrived in counted],
        "client's processor": [trained[dispatch][1] for dispatch, _, _ in counted],
    }


def note_memory(federation: Federation, peaks: dict[str, int]) -> None:
    """Raise the peak of each program (MB) to the highest of its processes; Linux keeps it for those that live."""
    for program in PROGRAMS:
        for process in federation.processes(program):
            try:
                status = Path(f"/proc/{process}/status").read_text()
            except OSError:  # ended meanwhile
                continue
            if "VmHWM:" in status:
                peaks[program] = max(peaks.get(program, 0), int(status.split("VmHWM:")[1].split()[0]) // 1000)


def spread(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.2f} ({min(seconds):.2f} to {max(seconds):.2f}) s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--updates", type=int, default=14)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sizes", nargs="+", choices=list(WIDTHS), default=["1 MB", "45 MB"])
    parser.add_argument("--zeros", action="store_true", help="begin with zeros, whose pieces Flower moves only once")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    for size in options.sizes:
        ways: dict[str, list[dict[str, Any]]] = {"by hand": [], "fedfa": []}
        peaks: dict[str, int] = {}
        for _ in range(options.repeats):
            for way, done in ways.items():
                done.append(one_run(way == "by hand", WIDTHS[size], options, peaks))
                words = ", ".join(f"{key} {spread(done[-1][key])}" for key in list(done[-1])[1:])
                print(f"{size}, {way}: {done[-1]['seconds per update']:.2f} s per update; {words}", flush=True)
        middle = {way: statistics.median(run["seconds per update"] for run in done) for way, done in ways.items()}
        rows.append(
            Row(
                size, "updates/min", 60 / middle["fedfa"], 60 / middle["by hand"], "loop by hand",
                f"{middle['fedfa']:.2f} and {middle['by hand']:.2f} s per update", {"runs": ways, "peak MB": peaks},
            )
        )  # fmt: skip
    for row in rows:
        print(f"{row.case}: {row.beside}, fedfa is faster by {row.ratio:.3f}")
        print(f"{row.case}: at most", ", ".join(f"{name} {peak} MB" for name, peak in row.details["peak MB"].items()))
    if options.json:
        options.json.write_bytes(report(command_typed("python", "benchmarks/flower_overhead.py"), {"flower": rows}))


if __name__ == "__main__":
    main()
