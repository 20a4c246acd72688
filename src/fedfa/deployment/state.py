"""The state of a deployment: it changes only by entries of the journal, first written and then applied.

A run that was killed reads its last checkpoint and applies the entries after it. It then has the same state.
"""

import logging
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedfa.deployment import journal
from fedfa.deployment.settings import DeploymentSettings
from fedfa.executors.base import NOTHING, Trained
from fedfa.learning.device import CPU
from fedfa.learning.task import Task
from fedfa.runs.checkpoint import read_tree, write_tree
from fedfa.runs.recorder import TAKEN, Outcome
from fedfa.runs.run import Run
from fedfa.runs.state import RunState
from fedfa.runs.stop import Ending
from fedfa.runs.store import CHECKPOINT
from fedfa.strategies.base import Flight, Strategy
from fedfa.strategies.vectors import Vector

logger = logging.getLogger("fedfa")

LONGEST_BENCH = 600.0
"""A node that fails repeatedly is tried once in this many seconds."""
_SAVED = ("arrived", "started_unix", "clients", "benched")
"""What a checkpoint holds in addition to that of a simulation."""


@dataclass(slots=True)
class RemoteFlight(Flight):
    """Work that a node got and has not answered yet."""

    client: int
    base: Vector
    started: float
    node: int


def answer_in(entry: Mapping[str, Any], params: np.ndarray | None) -> tuple[Trained, Outcome | None]:
    """The content of an "update" or "lost" entry of the journal."""
    if params is None:
        return NOTHING, Outcome.parse(entry["outcome"])
    return Trained(params, entry["num_examples"], entry["num_steps"], entry.get("loss", math.nan)), None


class DeploymentState(RunState[RemoteFlight]):
    """Everything that changes while a deployment runs."""

    def __init__(self, *, strategy: Strategy, task: Task, settings: DeploymentSettings, label: str) -> None:
        super().__init__(
            strategy=strategy, task=task, device=CPU, stop=settings.stop, seed=settings.seed, label=label,
            folder=settings.folder,
        )  # fmt: skip
        self.settings, self.run_folder = settings, settings.folder
        self.arrived = 0.0
        """When the last answer came."""
        self.started_unix = 0.0
        self.clients: dict[int, int] = {}
        """The number in this run of every node ever seen."""
        self.benched: dict[int, tuple[int, float]] = {}
        """By client: failures in a row, and the end of its time without work."""

    # Entries ---------------------------------------------------------------------------------------------------------

    def apply(self, entry: Mapping[str, Any], params: np.ndarray | None) -> None:
        """Apply the entry to the state."""
        self.now = entry["seconds"]
        match entry["kind"]:
            case "begin":
                self.started_unix = entry["started"]
                self.unfilled += self.strategy.begin(self.initial, self.num_trainable).start
            case "client":
                self.clients[entry["node"]] = entry["client"]
            case "dispatch":
                client = entry["client"]
                self.in_flight[client] = RemoteFlight(
                    entry["dispatch"], entry["base_version"], client, self.strategy.model, self.now, entry["node"]
                )
                self.dispatches += 1
                self.unfilled -= 1
            case "update" | "lost":
                self._arrive(entry, params)

    def _arrive(self, entry: Mapping[str, Any], params: np.ndarray | None) -> None:
        flight = self.in_flight[entry["client"]]
        orders, outcome = self.take_in(flight, *answer_in(entry, params))
        self.unfilled += orders.start
        self.arrived = self.now
        if outcome is TAKEN:
            self.benched.pop(flight.client, None)
        elif not entry.get("blameless"):
            self._bench(flight, outcome)

    def _bench(self, flight: RemoteFlight, outcome: Outcome) -> None:
        """No work for this client for a while, and twice as long each time in a row."""
        failures = self.benched.get(flight.client, (0, 0.0))[0] + 1
        pause = min(LONGEST_BENCH, self.settings.bench_seconds * 2 ** min(failures - 1, 30))
        self.benched[flight.client] = (failures, self.now + pause)
        logger.warning(
            "client %d, dispatch %d, %s; no work for it for %g s", flight.client, flight.dispatch, outcome, pause
        )
        self.not_taken(outcome)

    # Evaluation ------------------------------------------------------------------------------------------------------

    def evaluate_if_due(self) -> None:
        every, evaluations = self.settings.evaluate_every, self.record.evaluations
        if self.accepted % every == 0 and self.accepted >= len(evaluations) * every:
            self.evaluate()

    def evaluate(self) -> None:
        self.judge(self.arrived, lambda: None)
        _, accuracy, loss = self.last_score
        logger.info("%d updates, %.1f s: accuracy %.4f, loss %.4f", self.accepted, self.arrived, accuracy, loss)

    # Identity --------------------------------------------------------------------------------------------------------

    def lasting(self) -> dict[str, Any]:
        return self.made_with() | {"num_clients": None}

    def made_with(self) -> dict[str, Any]:
        """All settings but the seed and the stop, JSON-ready."""
        return {
            "strategy": {"name": self.strategy.name} | self.strategy.settings(),
            "weather": "real",
            "task": self.task.name,
            "num_clients": len(self.clients),
            "num_parameters": len(self.initial),
            "num_frozen": self.num_frozen,
            "local": asdict(self.task.local),
            "evaluate_every": self.settings.evaluate_every,
            "executor": "remote",
        }

    def so_far(self, ended: Ending, command: str) -> Run:
        """The run as it stands."""
        manifest = {
            **self.made_with(),
            **self.facts(ended, wall_seconds=self.now),
            "clock": "wall",
            "fingerprint": self.fingerprint,
            "digest": self.digest,
            "keep_updates": self.settings.keep_updates,
            "model_digest": journal.model_digest(self.strategy.model),
            "started": self.started_unix,
            "command": command,
            "target": self.settings.target or None,
        }
        return Run(
            updates=self.record.update_frame(),
            evaluations=self.record.evaluation_frame(),
            clients=self.task.label_counts().clear(),  # the sites' data is theirs
            manifest=manifest,
            folder=self.run_folder,
            model=self.strategy.model,
        )

    # Checkpoints -----------------------------------------------------------------------------------------------------

    def save(self, segment: int) -> None:
        """Write the checkpoint, after which the journal continues with this segment."""
        state = self.common_state() | {name: getattr(self, name) for name in _SAVED} | {"segment": segment}
        write_tree(self.run_folder / CHECKPOINT, state)

    def load(self) -> int:
        """Read the checkpoint if there is one; returns the number of the first journal segment after it."""
        if not (self.run_folder / CHECKPOINT).exists():
            return 0
        state = read_tree(self.run_folder / CHECKPOINT)
        for flight in self.restore_common(state):
            self.in_flight[flight["client"]] = RemoteFlight(**flight)
        for name in _SAVED:
            setattr(self, name, state[name])
        self.benched = {client: (failures, until) for client, (failures, until) in self.benched.items()}
        return state["segment"]
