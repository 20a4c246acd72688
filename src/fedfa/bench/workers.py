"""One run on all cores: inline with a team of processes, and Ray where it is installed, against one process.

The clients have 9 to 64 examples, and each process one torch thread. The clock starts when the first updates have come,
and so leaves out what happens once: starting processes and capturing steps.
"""

import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import fedfa
from fedfa.bench.base import Options, Row, Tell, middle, take_turns
from fedfa.bench.cases import STRATEGIES, Case
from fedfa.executors.cores import machine_cores
from fedfa.simulation.engine import Simulation

UPDATES = {"mlp": 3000, "cnn-28": 600, "cnn-32": 600}
FIRST = 0.2
"""Of the updates, before the clock starts."""
CHOSEN = list(STRATEGIES)[:2]
RAY = ("cnn-32", CHOSEN[0])
"""Where Ray is measured, too."""


class Clock:
    """When so many updates had come; a simulation tells it some times a second."""

    def __init__(self) -> None:
        self.seen = [(0, time.perf_counter())]

    def __call__(self, simulation: Simulation) -> None:
        self.seen.append((simulation.accepted, time.perf_counter()))

    def rate(self) -> float:
        """Updates per second after the first ones."""
        last, end = self.seen[-1]
        first, start = max(entry for entry in self.seen if entry[0] <= FIRST * last)
        return (last - first) / (end - start)


def measure(options: Options, tell: Tell) -> list[Row]:
    rows, cores = [], machine_cores()
    ways: dict[str, dict[str, Any]] = {
        "one process": {"executor": "inline", "workers": 1},
        f"{cores} processes": {"executor": "inline", "workers": cores},
        "auto": {"executor": "inline"},
    }
    by_ray = {f"ray, {number}": {"executor": "ray", "workers": number} for number in (1, cores)}
    with_ray = bool(find_spec("ray")) and not options.quick
    for model, updates in UPDATES.items():
        for strategy in CHOSEN[:1] if options.quick else CHOSEN:
            case = Case(model, "9 to 64", strategy, "sgd")
            here = ways | by_ray if with_ray and (model, strategy) == RAY else ways
            rows += _rows(case, updates // (20 if options.quick else 1), here, options, tell)
    return sorted(rows, key=lambda row: row.ratio)


def _rows(case: Case, updates: int, ways: dict[str, dict[str, Any]], options: Options, tell: Tell) -> list[Row]:
    task = case.task(case.kind.make(Path()), case.data())

    def way(engine: dict[str, Any]) -> float:
        clock, settings = Clock(), engine | {"evaluate_every": 10**6}
        fedfa.simulate(case.rule, task, stop=fedfa.Stop(updates=updates), engine=settings, progress=clock)
        return clock.rate()

    rates = take_turns({name: partial(way, engine) for name, engine in ways.items()}, options.turns(5), tell)
    pairs = [(name, "one process") for name in ways if name != "one process" and not name.startswith("ray")]
    pairs += [(name, "ray, 1") for name in ways if name.startswith("ray") and name != "ray, 1"]
    rows = []
    for ours, baseline in pairs:
        ratios = [one / other for one, other in zip(rates[ours][1:], rates[baseline][1:], strict=True)]
        beside = f"turn by turn {min(ratios):.2f} to {max(ratios):.2f}, median {median(ratios):.2f}"
        details = {
            "model": case.kind.title,
            "way": ours,
            "rates": {name: rates[name] for name in (ours, baseline)},
            "ratios": ratios,
        }
        speeds = middle(rates[ours]), middle(rates[baseline])
        rows.append(Row(f"{case}; {ours}", "updates/s", *speeds, baseline, beside, details))
    return rows
