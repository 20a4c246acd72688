"""Runs whose every row can be worked out by hand."""

import math
from collections.abc import Sequence

import polars as pl

from fedfa.runs.recorder import TAKEN, Outcome, Recorder
from fedfa.runs.run import Run

TARGET = 0.7
FAST, SLOW = 1.0, 4.0
"""Seconds that client 0 and client 1 need; the only two, on two slots."""
CLIENTS = pl.DataFrame({"client": [0, 0, 1], "label": ["9", "10", "9"], "examples": [25, 0, 100]})


def make_run(
    label: str,
    accuracies: Sequence[float],
    *,
    seed: int = 1,
    synchronous: bool = False,
    refused: int = 0,
    clients: pl.DataFrame | None = None,
) -> Run:
    """Two clients on two slots, evaluated every two accepted updates; with seed s all takes (1 + s) / 2 as long.

    Synchronous: a round is both clients and takes as long as the slow one. Otherwise each starts again at once and a
    window of two publishes from the second arrival on. The first ``refused`` arrivals of a run are not taken.
    """
    recorder, seconds, version = recorded(accuracies, (1 + seed) / 2, synchronous, refused)
    manifest = {
        "label": label,
        "strategy": {"name": label, "concurrency": 2},
        "task": "toy/mlp",
        "seed": seed,
        "synchronous": synchronous,
        "round_size": 2,
        "refill": "batch" if synchronous else "immediate",
        "update_weight": 0.5,
        "concurrency": 2,
        "num_clients": 2,
        "ended": "max_updates",
        "seconds": seconds,
        "wall_seconds": 0.25,
        "version": version,
        "executor": "serial",
        "machine": {"python": "3.11"},
        "weather": {"speed": {"kind": "constant", "value": 1.0}},
        "command": "",
    }
    held = pl.DataFrame(schema={"client": pl.Int64, "label": pl.String, "examples": pl.Int64})
    return Run(
        recorder.update_frame(),
        recorder.evaluation_frame(),
        manifest,
        held if clients is None else clients,
        config={"seed": seed, "task": {"data": "toy", "lr": 0.1}},
    )


def recorded(
    accuracies: Sequence[float], factor: float, synchronous: bool, refused: int
) -> tuple[Recorder, float, int]:
    """The rows of a run, its seconds and its last version; every time is multiplied by the factor."""
    recorder = Recorder()
    recorder.evaluations.append((0, 0.0, 0, 0.1, 2.3, math.nan))
    due = [[FAST, 0, 0, 0.0, 0], [SLOW, 1, 1, 0.0, 0]]  # arrival, client, dispatch, dispatched, base version
    waiting: list[list[float]] = []
    accepted = version = 0
    now = 0.0
    while accepted < 2 * len(accuracies):
        flight = min(due)
        due.remove(flight)
        now, client, dispatch, dispatched, base = flight
        taken = len(recorder.updates) >= refused
        staleness = version - base
        accepted += taken
        publishes = taken and (accepted % 2 == 0 if synchronous else accepted >= 2)
        version += publishes
        outcome = recorder.code_of(TAKEN if taken else Outcome("refused", "not finite (NaN or Inf)"))
        times = (factor * now, client, dispatch, factor * dispatched)
        recorder.updates.append((*times, base, staleness, version, outcome, 1.0, 0.5, 10, 5.0, 100, 100))
        waiting.append(flight)
        if publishes or not (synchronous and taken):
            due += [[now + (FAST, SLOW)[int(f[1])], f[1], f[2] + 2, now, version] for f in waiting]
            waiting.clear()
        if taken and accepted % 2 == 0:
            recorder.evaluations.append((accepted, factor * now, version, accuracies[accepted // 2 - 1], 1.0, math.nan))
    return recorder, factor * now, version
