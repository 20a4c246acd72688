"""Writes the measured figures into README.md and benchmarks/README.md, from benchmarks/results/*.json.

The files there are what ``fedfa bench NAME --json FILE`` and the scripts beside this one write. Whatever stands between
``<!-- table: NAME -->`` and ``<!-- end -->`` is written anew.

    python benchmarks/tables.py
"""

import json
import re
import statistics
import textwrap
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGES = (HERE.parent / "README.md", HERE / "README.md")
BLOCK = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
Row = dict[str, Any]


def kept(name: str) -> dict[str, Any]:
    return json.loads((HERE / "results" / f"{name}.json").read_text("utf8"))


def rows_of(name: str) -> list[Row]:
    return kept(name)["measurements"][name]


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.3g}"


def spread(values: Sequence[float], digits: int = 1) -> str:
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


def wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(text, 119, subsequent_indent=indent, break_on_hyphens=False)


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [" |".join(headers), "|".join(["---"] * len(headers)), *(" |".join(cells) for cells in rows)]


def source(name: str) -> str:
    """How a file came about; the machine is named where it is not that of the grid."""
    found, usual = kept(name), _machine(kept("grid"))
    command = re.sub(r" --(json|python) \S+", "", found["command"])
    words = [f"`{command}`, {found['date']}"]
    if name == "grid" or _machine(found) != usual:
        words.append(_machine(found))
    return ", ".join(words) + (f"; {found['note']}." if "note" in found else ".")


def _machine(found: dict[str, Any]) -> str:
    machine = found["machine"]
    cores = f"{machine['cpus']} cores {machine['cpu']}".strip()
    version = re.split(r"[ +]", machine["torch"])[0]
    return ", ".join(filter(None, (machine.get("gpu"), cores, f"torch {version}")))


def plain(*names: str) -> list[str]:
    """Measurements as they are; of one with many rows those with the lowest and the highest ratio."""
    cells = []
    for name in names:
        rows = sorted(rows_of(name), key=lambda row: row["ratio"])
        for row in (rows[0], rows[-1]) if len(rows) > MANY else rows_of(name):
            where = f"{name}: {row['case']}" if len(names) > 1 else row["case"]
            ours, theirs = f"{number(row['ours'])} {row['unit']}", f"{number(row['baseline'])} ({row['against']})"
            cells.append((where, ours, theirs, f"{row['ratio']:.2f}"))
    headers = ("case", "fedfa", "baseline", "ratio")
    return [*table(headers, cells), "", *map(source, names)]


MANY = 5


def start() -> list[str]:
    return [*(f"- {row['case']}: {row['beside']}" for row in rows_of("start")), "", source("start")]


# The grid -------------------------------------------------------------------------------------------------------------


def grid() -> list[str]:
    """A row for each model, optimizer and strategy, the one with the worst cell first."""
    lines: dict[tuple[str, str, str], dict[str, Row]] = {}
    for row in rows_of("grid"):  # the worst first
        one = row["details"]
        lines.setdefault((one["model"], one["optimizer"], one["strategy"]), {})[_column(one["sizes"])] = row
    cells = []
    for (model, optimizer, strategy), found in lines.items():
        takes = " or ".join(sorted({row["details"]["auto_takes"] for row in found.values()}))
        name = model if optimizer == "sgd" else f"{model}, {optimizer}"
        cells.append(
            (
                name,
                strategy.removesuffix(" in flight").replace(", ", ":"),
                *(_cell(found.get(one)) for one in COLUMNS),
                takes,
            )
        )
    headers = ("model", "strategy:in flight", *COLUMNS, "`auto` takes")
    return [*wrapped(_summary(rows_of("grid"))), "", *table(headers, cells), "", source("grid")]


COLUMNS = ("equal", "unequal", "lognormal")


def _column(sizes: str) -> str:
    return sizes if sizes in COLUMNS else "equal" if sizes.startswith("all") else "unequal"


def _cell(row: Row | None) -> str:
    return "–" if row is None else f"{row['ratio']:.2f} ({row['details']['first_ratio']:.2f})"


def _summary(rows: Sequence[Row]) -> str:
    ratios, best = [row["ratio"] for row in rows], [row["details"]["auto_of_best"] for row in rows]
    lines = [
        f"{len(rows)} cells: {spread(ratios, 2)} times the loop, median {statistics.median(ratios):.2f}; "
        f"slower than the loop in {sum(ratio < 1 for ratio in ratios)}. "
        f"`auto` is at least 0.95 of the best executor in {sum(one >= 0.95 for one in best)} cells, "
        f"at worst {min(best):.2f}."
    ]
    if large := [row["details"] for row in rows if "models" in row["details"]]:
        most = max(large, key=lambda one: one["models"] - one["most_models"])
        lines.append(
            f"Memory of a run, in models: {spread([one['models'] for one in large])} (the loop "
            f"{spread([one['loop_models'] for one in large])}); nearest to its bound: {most['models']:.1f} of "
            f"{most['most_models']} ({most['strategy']}, {most['optimizer']})."
        )
    return " ".join(lines)


# Other simulators -----------------------------------------------------------------------------------------------------

KINDS = {
    (mode, split): f"{title}, {split}"
    for mode, title in (("fedavg", "FedAvg"), ("fedbuff", "FedBuff"))
    for split in ("equal", "unequal")
}


def peers() -> list[str]:
    """The splits side by side, the fastest other simulator first."""
    lines: dict[str, dict[tuple[str, str], Row]] = {}
    for row in rows_of("peers"):
        one = row["details"]
        lines.setdefault(row["against"], {})[one["mode"], one["split"]] = row
    order = sorted(lines, key=lambda name: median_ratio(lines[name].get(("fedavg", "unequal"))))
    cells = [(name, *(_speed(lines[name].get(kind)) for kind in KINDS)) for name in order]
    accuracies = [row["details"]["accuracy"] for row in rows_of("peers")]
    words = f"Accuracies: {min(accuracies):.0%} to {max(accuracies):.0%}."
    return [*table(("way", *KINDS.values()), cells), "", f"{words} {source('peers')}"]


def median_ratio(row: Row | None) -> float:
    """Of the ratios in the same turn."""
    return statistics.median(row["details"]["ratios"]) if row else 0.0


def _speed(row: Row | None) -> str:
    if row is None:
        return "–"
    speed, ratios = number(row["baseline"]), row["details"]["ratios"]
    if row["details"]["name"] == "fedfa":
        return speed
    return f"{speed}: **{median_ratio(row):.1f}** ({min(ratios):.1f}–{max(ratios):.1f})"


def others(mode: str, split: str) -> dict[str, float]:
    """How many times faster fedfa is than each other simulator."""
    rows = [row for row in rows_of("peers") if row["details"]["mode"] == mode and row["details"]["split"] == split]
    return {
        row["against"]: median_ratio(row) for row in rows if not row["details"]["name"].startswith(("fedfa", "hand"))
    }


# README ---------------------------------------------------------------------------------------------------------------


def why() -> list[str]:
    """Ranges and worst cases, for README."""
    cells, (engine,), (runs,) = rows_of("grid"), rows_of("engine"), rows_of("together")
    teams = [row["ratio"] for row in rows_of("workers") if row["details"]["way"] == "auto" and "CNN" in row["case"]]
    worst, ratios = min(cells, key=lambda row: row["ratio"]), [row["ratio"] for row in cells]
    firsts = [row["details"]["first_ratio"] for row in cells]
    models = len({row["details"]["model"] for row in cells})
    gpu, (pfl, *_) = [row["ratio"] for row in rows_of("gpu")], rows_of("pfl")
    unequal, equal, later = others("fedavg", "unequal"), others("fedavg", "equal"), others("fedbuff", "unequal")
    closest = min(unequal, key=lambda name: unequal[name])
    points = [
        f"- **One CPU core, against a loop written by hand.** {spread(ratios, 2)} times as fast over {len(cells)} "
        f"cells: {models} models, clients of equal and unequal size, rounds and asynchronous. The median is "
        f"{statistics.median(ratios):.2f}. The worst: {worst['case']}. First runs, preparation included: "
        f"{spread(firsts, 2)}.",
        f"- **Other simulators.** With clients of 9 to 64 examples fedfa trains {spread([*unequal.values()])} times as "
        f"many clients per second as {len(unequal)} others in rounds ({closest} is closest), and "
        f"{spread([*later.values()])} times as many as {len(later)} asynchronous ones. With clients of equal size: "
        f"{spread([*equal.values()])}.",
        f"- **Many runs.** {runs['case']}, one core: side by side, runs are {runs['ratio']:.1f} times as fast as one "
        f"after the other, with the same events.",
        f"- **All cores.** One run of a CNN on {kept('workers')['machine']['cpus']} cores: {spread(teams, 2)} times as "
        f"fast as on one, with the same bytes in the records.",
        f"- **The engine alone.** {engine['case']}: {number(engine['ours'])} updates per second, records included. "
        f"That is {engine['ratio']:.2f} of a bare numpy loop.",
        f"- **One H200.** Every client in flight is a captured graph on a stream of its own: {spread(gpu)} times as "
        f"fast as one client at a time. pfl-research's own benchmark runs {pfl['ratio']:.1f} times as fast as in pfl.",
    ]
    return [line for point in points for line in wrapped(point, "  ")]


TABLES: dict[str, Callable[[], list[str]]] = {
    "why": why, "grid": grid, "job": partial(plain, "job"), "start": start,
    "runs": partial(plain, "together", "workers"), "peers": peers,
    "gpu": partial(plain, "gpu"), "pfl": partial(plain, "pfl"),
    "server": partial(plain, "engine", "aggregation", "checkpoint", "live", "flower"),
}  # fmt: skip


def filled(text: str) -> str:
    """The page with its tables as the results are now."""
    return BLOCK.sub(lambda found: "\n".join([found[1].rstrip("\n"), *TABLES[found[2]](), found[3]]), text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(filled(page.read_text("utf8")), "utf8")
