"""fedfa's server on Flower against the asynchronous loop one would write by hand, for models of 1 MB and 45 MB.

A real SuperLink and real SuperNodes on loopback, the same client app for both, whose training takes no time: what is
left is the way of a model to a client and back. Ours also keeps its journal (every update is on disk before it counts).
The two take turns on the same federation. Prints seconds per update, from the first answer of the second wave on, and
the ratio of the medians last.
"""

import argparse
import json
import statistics
from pathlib import Path

from fedfa.flower.local import Federation

APP = Path(__file__).parent / "flower_apps" / "overhead"
WIDTHS = {"1 MB": 512, "45 MB": 3354}


def seconds_per_update(
    federation: Federation, folder: Path, by_hand: bool, width: int, options: argparse.Namespace
) -> float:
    config = {
        "by-hand": by_hand, "width": width, "nodes": options.nodes, "stop-updates": options.updates,
        "strategy": f"fedfa-param:concurrency={options.nodes}:window=2", "out": str(folder),
    }  # fmt: skip
    process = federation.start_run(APP, config, quiet=True)
    if process.wait():
        raise SystemExit(f"flwr run failed; see {federation.folder / 'run.log'}")
    arrived = json.loads((folder / "arrived.json").read_text())
    counted = arrived[options.nodes :]
    return (counted[-1] - counted[0]) / (len(counted) - 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--updates", type=int, default=14)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sizes", nargs="+", choices=list(WIDTHS), default=list(WIDTHS))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = {}
    with Federation(nodes=options.nodes) as federation:
        for size in options.sizes:
            times: dict[str, list[float]] = {"by hand": [], "fedfa": []}
            for repeat in range(options.repeats):
                for way, spent in times.items():
                    folder = federation.folder / "runs" / f"{size.replace(' ', '')}-{way.replace(' ', '-')}-{repeat}"
                    spent.append(seconds_per_update(federation, folder, way == "by hand", WIDTHS[size], options))
                    print(f"{size}, {way}: {spent[-1]:.2f} s per update", flush=True)
            middle = {way: statistics.median(spent) for way, spent in times.items()}
            found[size] = {"times": times, "median": middle, "ratio": middle["fedfa"] / middle["by hand"]}
    for size, one in found.items():
        median = one["median"]
        print(f"{size}: by hand {median['by hand']:.2f} s, fedfa {median['fedfa']:.2f} s, ratio {one['ratio']:.3f}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
