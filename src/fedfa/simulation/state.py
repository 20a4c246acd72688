"""The state of a simulation, and its checkpoint.

The checkpoint holds everything the next arrival depends on: clock, heap, the clients in flight with their models, the
strategy's window, the generator that draws clients, results already computed, and the rows so far. It may be written
between any two arrivals. A continued run has the same events and the same models.
"""

import math
from dataclasses import dataclass
from heapq import heapify
from pathlib import Path

import numpy as np

from fedfa.errors import ConfigError
from fedfa.executors.base import Executor, Trained, WorkOrder
from fedfa.learning.base import EngineTask
from fedfa.runs.checkpoint import read_plain, read_tree, write_tree
from fedfa.runs.state import RunState
from fedfa.runs.stop import Stop
from fedfa.runs.store import CHECKPOINT
from fedfa.simulation.weather import Delay
from fedfa.strategies.base import Strategy


@dataclass(slots=True)
class SimulatedFlight(WorkOrder):
    """A work order in flight, with the engine's data about it."""

    started: float
    delay: Delay


class Idle:
    """Idle clients, drawn uniformly in O(1); needs memory only for clients that ever got work.

    The idle ones are positions 0..count-1 of a virtual permutation of all clients, of which only the moved entries
    are stored.
    """

    def __init__(self, num_clients: int) -> None:
        self.count = num_clients
        self.moved: dict[int, int] = {}

    def draw(self, chance: float) -> int:
        """Take the client at this share (0 to 1) of the idle ones; the last one moves to its position."""
        position = int(chance * self.count)
        self.count = last = self.count - 1
        moved = self.moved
        filler = moved.pop(last, last)
        if position == last:
            return filler
        client = moved.get(position, position)
        moved[position] = filler
        return client

    def put_back(self, client: int) -> None:
        self.moved[self.count] = client
        self.count += 1


class SimulationState(RunState[SimulatedFlight]):
    """Everything that changes while a simulation runs."""

    def __init__(
        self, *, strategy: Strategy, task: EngineTask, executor: Executor, stop: Stop, seed: int, label: str,
        folder: Path | None,
    ) -> None:  # fmt: skip
        super().__init__(
            strategy=strategy, task=task, device=executor.device, stop=stop, seed=seed, label=label, folder=folder
        )
        self.executor = executor
        self.earlier_wall = 0.0
        """Real seconds of computing before this process continued the run."""
        self.wake_at = math.inf
        self.heap: list[tuple[float, int, int]] = []
        """Of (virtual time, dispatch, client)."""
        self.counts: dict[int, int] = {}
        """Dispatches so far, by client."""
        self.idle = Idle(task.num_clients)

    def save(self, wall_seconds: float) -> None:
        """Write the checkpoint, if the run has a folder."""
        if self.folder is None:
            return
        state = self.common_state() | {
            "executor": self.executor.name,
            "wake_at": self.wake_at,
            "earlier_wall": wall_seconds,
            "heap": self.heap,
            "counts": _as_array(self.counts),
            "idle_count": self.idle.count,
            "idle_moved": _as_array(self.idle.moved),
            "finished": {dispatch: done.state_dict() for dispatch, done in self.executor.finished().items()},
        }
        write_tree(self.folder / CHECKPOINT, state)

    @staticmethod
    def begun_with(folder: Path) -> str | None:
        """The name of the executor with which the unfinished run in this folder began; None if there is none."""
        path = folder / CHECKPOINT
        return read_plain(path, "executor") if path.exists() else None

    def load(self) -> bool:
        """Continue from the folder's checkpoint; False if there is none, and the run starts from the beginning."""
        if self.folder is None:
            raise ConfigError("resume: needs the folder of the run to continue (out)")
        path = self.folder / CHECKPOINT
        if not path.exists():
            return False
        state = read_tree(path, self.executor.device)
        flights = self.restore_common(state)
        self.wake_at, self.earlier_wall = state["wake_at"], state["earlier_wall"]
        self.heap = [tuple(entry) for entry in state["heap"]]
        heapify(self.heap)
        self.counts = _as_dict(state["counts"])
        self.idle.count, self.idle.moved = state["idle_count"], _as_dict(state["idle_moved"])
        for saved in flights:
            delay = Delay(*saved.pop("delay"))
            flight = SimulatedFlight(**saved, delay=delay)
            self.in_flight[flight.client] = flight
            if not delay.lost:
                self.executor.submit(flight)
        self.executor.restore({dispatch: Trained(**done) for dispatch, done in state["finished"].items()})
        return True


def _as_array(numbers: dict[int, int]) -> np.ndarray:
    return np.array(list(numbers.items()), np.int64).reshape(-1, 2)


def _as_dict(array: np.ndarray) -> dict[int, int]:
    return {int(key): int(value) for key, value in array}
