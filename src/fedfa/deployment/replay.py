"""Drive a strategy from the journal of a deployment, and compare the result with the deployment's record."""

from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedfa.deployment import journal
from fedfa.deployment.state import answer_in
from fedfa.errors import RecordError
from fedfa.runs.state import settle
from fedfa.runs.store import read_run
from fedfa.strategies.base import Flight, Strategy
from fedfa.strategies.specs import make_strategy
from fedfa.strategies.vectors import Vector


class Aggregated(NamedTuple):
    """The outcome of one arrival."""

    client: int
    dispatch: int
    base_version: int
    staleness: int
    version: int
    """Right after it."""
    outcome: str


@dataclass(frozen=True, slots=True)
class Replayed:
    """A deployment, aggregated again."""

    strategy: Strategy
    arrivals: list[Aggregated]

    @property
    def model_digest(self) -> str:
        return journal.model_digest(self.strategy.model)


@dataclass(slots=True)
class _Flight(Flight):
    client: int
    base: Vector
    started: float = 0.0


def replay_journal(folder: Path, strategy_class: str | None = None) -> Replayed:
    """Give all of a deployment's journal to a fresh strategy (``file.py:Class`` if it is not ours)."""
    if not journal.segments(folder / journal.FOLDER):
        raise RecordError(f"{folder}: holds no journal; only deployments with keep-updates = true can be replayed")
    strategy: Strategy | None = None
    in_flight: dict[int, _Flight] = {}
    arrivals: list[Aggregated] = []
    for entry, params in journal.read(folder / journal.FOLDER):
        if entry["kind"] == "begin":
            name = strategy_class or entry["strategy"]["name"]
            strategy = make_strategy({**entry["strategy"], "name": name}, "strategy")
            strategy.begin(params, entry["num_trainable"])
            continue
        if strategy is None:
            raise RecordError(f"{folder}: its journal does not start at the beginning of the run")
        if entry["kind"] == "dispatch":
            client, base_version = entry["client"], entry["base_version"]
            in_flight[client] = _Flight(entry["dispatch"], base_version, client, strategy.model)
        elif entry["kind"] in ("update", "lost"):
            flight, version = in_flight[entry["client"]], strategy.version
            with np.errstate(over="ignore"):  # absurd numbers are refused, not warned about
                _, outcome = settle(strategy, flight, *answer_in(entry, params), in_flight)
            del in_flight[flight.client]
            arrivals.append(
                Aggregated(
                    flight.client,
                    flight.dispatch,
                    flight.base_version,
                    version - flight.base_version,
                    strategy.version,
                    str(outcome),
                )
            )
    if strategy is None:
        raise RecordError(f"{folder}: its journal is empty")
    return Replayed(strategy, arrivals)


def verify_replay(folder: Path, replayed: Replayed) -> None:
    """Raise a RecordError that names the first difference between a replay and the run's record."""
    run = read_run(folder)
    rows = run.updates.select(Aggregated._fields).iter_rows()
    for number, (row, found) in enumerate(zip_longest(rows, replayed.arrivals)):
        if row is None or found is None or found != row:
            there = "nothing" if row is None else Aggregated(*row)
            raise RecordError(
                f"{folder}: arrival {number} is {found or 'nothing'} in the journal, {there} in the record"
            )
    if replayed.model_digest != run.manifest["model_digest"]:
        raise RecordError(
            f"{folder}: the journal ends in model {replayed.model_digest}, the record in {run.manifest['model_digest']}"
        )
