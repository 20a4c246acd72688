"""The virtual-clock engine: a heap of arrivals, a strategy, an executor and the weather.

Events are ordered by (virtual time, dispatch number) and handled one at a time. Measured compute time never enters
the clock, so a run is the same on a laptop and on a GPU.
"""

import math
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

from fedfa import checkpoint
from fedfa.core import Flight, Orders, Strategy, Update
from fedfa.errors import EngineError, require
from fedfa.executors.base import Trained, WorkOrder
from fedfa.record import ACCEPTED, Recorder, Run, machine
from fedfa.weather import CHOICE, Delay, Weather, keyed

NOBODY = -1
"""Stands for a client in heap entries that only wake the engine up."""
GIVE_UP_AFTER = 1000
"""Arrivals in a row without an accepted one (and at least ten per slot) after which a run is hopeless."""


@dataclass(frozen=True, slots=True)
class Stop:
    """When a run ends: at whichever comes first."""

    updates: int | None = None
    """Accepted updates."""
    seconds: float | None = None
    """Virtual seconds."""
    accuracy: float | None = None
    """An evaluation shows at least this accuracy."""
    wall_seconds: float | None = None
    """Real seconds; the only one that makes a run depend on the machine."""

    def __post_init__(self) -> None:
        limits = {f.name: getattr(self, f.name) for f in fields(self)}
        require(any(v is not None for v in limits.values()), f"stop: set at least one of {', '.join(limits)}")
        for name, value in limits.items():
            require(value is None or value > 0, f"{name} = {value}: must be above 0")


@dataclass(slots=True)
class OnTheWay(Flight):
    """A flight with what the engine knows about it."""

    nth: int
    started: float
    arrives: float
    delay: Delay
    epochs: int


class Idle:
    """Clients with no work, drawn uniformly in O(1); memory only for clients that were ever touched.

    The idle ones are positions 0..count-1 of a virtual permutation of all clients, of which only the moved entries
    are stored.
    """

    def __init__(self, num_clients: int) -> None:
        self.count = num_clients
        self.moved: dict[int, int] = {}

    def draw(self, chance: float) -> int:
        position = int(chance * self.count)
        self.count = last = self.count - 1
        moved = self.moved
        client = moved.get(position, position)
        moved[position] = moved.get(last, last)
        moved.pop(last, None) if position != last else moved.pop(position)
        return client

    def put_back(self, client: int) -> None:
        self.moved[self.count] = client
        self.count += 1


class Simulation:
    """The state of one run, and the loop that moves it."""

    def __init__(
        self,
        *,
        strategy: Strategy,
        task: Any,
        weather: Weather,
        stop: Stop,
        seed: int,
        evaluate_every: int,
        executor: Any,
        folder: Path | None,
        label: str,
        checkpoint_seconds: float,
        interrupted: Callable[[], bool],
        progress: Callable[["Simulation"], None] | None,
    ) -> None:
        require(
            strategy.concurrency <= task.num_clients,
            f"concurrency = {strategy.concurrency}: more than the {task.num_clients} clients there are",
        )
        self.strategy, self.task, self.weather, self.stop = strategy, task, weather, stop
        self.seed, self.evaluate_every, self.executor = seed, evaluate_every, executor
        self.folder, self.label = folder, label
        self._checkpoint_seconds, self._interrupted, self._progress = checkpoint_seconds, interrupted, progress
        self._evaluator = task.evaluator(seed)
        self.initial, self.num_trainable = task.initial(seed)
        self.num_bytes = self.initial.nbytes
        self.forecast = weather.forecast(seed, self.num_bytes)
        self.record = Recorder()

        self.now = 0.0
        self.accepted = 0
        self.fruitless = 0
        self.dispatches = 0
        self.unfilled = 0
        self.last_score = (-1, math.nan, math.nan)  # version, accuracy, loss
        self.earlier_wall = 0.0
        self.heap: list[tuple[float, int, int]] = []
        self.in_flight: dict[int, OnTheWay] = {}
        self.bases: dict[int, list[Any]] = {}  # version -> [model, how many in flight started from it]
        self.counts: dict[int, int] = {}
        self.idle = Idle(task.num_clients)
        self.random = random.Random(keyed(seed, CHOICE))
        self.wake_at = math.inf
        self._prox_mu = strategy.local.prox_mu

    # The loop --------------------------------------------------------------------------------------------------------

    def run(self, resume: bool = False) -> Run:
        started = last_saved = last_shown = time.perf_counter()
        if not (resume and checkpoint.load(self)):
            self._dispatch(self.strategy.begin(self.initial, self.num_trainable).start)
            self._evaluate()
        ended = self._reached()
        pause = self._checkpoint_seconds
        while not ended:
            self._arrive()
            ended = self._reached()
            clock = time.perf_counter()
            if self.stop.wall_seconds is not None and self.earlier_wall + clock - started >= self.stop.wall_seconds:
                ended = ended or "wall time"
            if clock - last_shown > 0.1:
                last_shown = clock
                if self._progress:
                    self._progress(self)
                if self._interrupted():
                    checkpoint.save(self, self.earlier_wall + clock - started)
                    raise KeyboardInterrupt
                if self.folder is not None and clock - last_saved > pause:
                    checkpoint.save(self, self.earlier_wall + clock - started)
                    last_saved = time.perf_counter()
                    pause = max(self._checkpoint_seconds, 20 * (last_saved - clock))
        if self._progress:
            self._progress(self)
        return self._finish(ended, self.earlier_wall + time.perf_counter() - started)

    def _arrive(self) -> None:
        """Handle the next event."""
        if not self.heap:
            raise EngineError(f"{self.label}: nobody is training and the strategy starts nobody; check its refill")
        seconds, dispatch, client = heappop(self.heap)
        if client == NOBODY:
            self.now, self.wake_at = seconds, math.inf
            self._dispatch(0)
            return
        flight = self.in_flight.get(client)
        if flight is None or flight.dispatch != dispatch or flight.arrives != seconds:
            return  # it was called back and has answered earlier
        self.now = seconds
        strategy, version = self.strategy, self.strategy.version
        base_version = flight.base_version
        trained = None if flight.delay.lost else self.executor.result(dispatch)
        if trained is None:
            orders, outcome = strategy.lost(client, self.in_flight), "lost: no answer in time"
            trained = Trained(None)
        elif trained.error:
            orders, outcome = strategy.lost(client, self.in_flight), f"failed: {trained.error}"
        else:
            update = Update(
                client, dispatch, base_version, trained.params, self.bases[base_version][0],
                trained.num_examples, trained.num_steps,
            )  # fmt: skip
            orders = strategy.receive(update, self.in_flight)
            outcome = f"refused: {orders.refused}" if orders.refused else ACCEPTED
        self._land(client, base_version)
        self.record.updates.append(
            (
                seconds, client, dispatch, flight.started, base_version, version - base_version, strategy.version,
                self.record.outcome(outcome), trained.loss, orders.delta_norm, trained.num_examples,
                trained.num_steps, 0 if flight.delay.lost else self.num_bytes, self.num_bytes,
            )  # fmt: skip
        )
        self._carry_out(orders)
        if outcome is ACCEPTED:
            self.accepted += 1
            self.fruitless = 0
            if self.accepted % self.evaluate_every == 0:
                self._evaluate()
                self.record.updates.pack_if_due()
        else:
            self.fruitless += 1
            if self.fruitless >= max(GIVE_UP_AFTER, 10 * strategy.concurrency):
                raise EngineError(f"{self.label}: {self.fruitless} arrivals in a row not taken, the last: {outcome}")

    def _land(self, client: int, base_version: int) -> None:
        del self.in_flight[client]
        self.idle.put_back(client)
        held = self.bases[base_version]
        held[1] -= 1
        if held[1] == 0:
            del self.bases[base_version]

    def _carry_out(self, orders: Orders) -> None:
        self._dispatch(orders.start)
        for client in orders.recall:
            self._recall(client)

    def _dispatch(self, number: int) -> None:
        """Hand the newest model to idle, available clients, drawn uniformly."""
        self.unfilled += number
        away: list[int] = []
        while self.unfilled and self.idle.count:
            client = self.idle.draw(self.random.random())
            if self.weather.availability is not None and self.forecast.opens(client, self.now) > self.now:
                away.append(client)
                continue
            self.unfilled -= 1
            self._start(client)
        for client in away:
            self.idle.put_back(client)
        if self.unfilled and away:
            opens = min(self.forecast.opens(client, self.now) for client in away)
            if opens < self.wake_at:
                self.wake_at = opens
                heappush(self.heap, (opens, -1, NOBODY))

    def _start(self, client: int) -> None:
        strategy = self.strategy
        dispatch, nth, version = self.dispatches, self.counts.get(client, 0), strategy.version
        self.dispatches, self.counts[client] = dispatch + 1, nth + 1
        delay = self.forecast.delay(client, nth)
        arrives = self.now + (self.weather.timeout_seconds if delay.lost else delay.total)
        epochs = self.task.local.epochs
        self.in_flight[client] = OnTheWay(dispatch, version, nth, self.now, arrives, delay, epochs)
        held = self.bases.get(version)
        if held is None:
            self.bases[version] = [strategy.model, 1]
        else:
            held[1] += 1
        heappush(self.heap, (arrives, dispatch, client))
        if not delay.lost:
            self.executor.submit(WorkOrder(dispatch, client, nth, strategy.model, epochs, self._prox_mu))

    def _recall(self, client: int) -> None:
        """Let a client report at the end of the local epoch it is in, its first at the earliest."""
        flight = self.in_flight.get(client)
        if flight is None or flight.delay.lost:
            return
        per_epoch = flight.delay.compute_seconds / self.task.local.epochs
        trained_for = self.now - flight.started - flight.delay.download_seconds
        epochs = max(1, math.ceil(trained_for / per_epoch))
        if epochs >= flight.epochs:
            return
        ready = flight.started + flight.delay.download_seconds + epochs * per_epoch
        flight.epochs, flight.arrives = epochs, max(self.now, ready + flight.delay.upload_seconds)
        heappush(self.heap, (flight.arrives, flight.dispatch, client))
        self.executor.discard(flight.dispatch)
        self.submit_again(client, flight)

    def submit_again(self, client: int, flight: OnTheWay) -> None:
        base = self.bases[flight.base_version][0]
        self.executor.submit(WorkOrder(flight.dispatch, client, flight.nth, base, flight.epochs, self._prox_mu))

    def _evaluate(self) -> None:
        version = self.strategy.version
        if self.last_score[0] != version:
            score = self._evaluator(self.strategy.model)
            self.last_score = (version, score.accuracy, score.loss)
        _, accuracy, loss = self.last_score
        self.record.evaluations.append((self.accepted, self.now, version, accuracy, loss))

    def _reached(self) -> str:
        """Which limit has been met; empty while none has."""
        stop = self.stop
        if stop.updates is not None and self.accepted >= stop.updates:
            return "updates"
        if stop.accuracy is not None and self.last_score[1] >= stop.accuracy:
            return "accuracy"
        if stop.seconds is not None and (not self.heap or self.heap[0][0] > stop.seconds):
            return "seconds"
        return ""

    def described(self) -> dict[str, Any]:
        """The strategy's name and settings, JSON-ready."""
        settings = {f.name: _plain(getattr(self.strategy, f.name)) for f in fields(self.strategy) if f.init}
        return {"name": self.strategy.name} | settings

    def _finish(self, ended: str, wall_seconds: float) -> Run:
        if ended == "seconds":
            self.now = self.stop.seconds or self.now
        evaluations = self.record.evaluation_frame()
        if evaluations["updates"][-1] != self.accepted:
            self._evaluate()
            evaluations = self.record.evaluation_frame()
        strategy = self.strategy
        manifest = {
            "label": self.label,
            "strategy": self.described(),
            "synchronous": strategy.synchronous,
            "round_size": strategy.round_size,
            "concurrency": strategy.concurrency,
            "task": self.task.name,
            "num_clients": self.task.num_clients,
            "num_parameters": len(self.initial),
            "weather": asdict(self.weather),
            "executor": self.executor.name,
            "seed": self.seed,
            "ended": ended,
            "seconds": self.now,
            "version": strategy.version,
            "wall_seconds": round(wall_seconds, 3),
            "machine": machine(),
        }
        return Run(
            updates=self.record.update_frame(),
            evaluations=evaluations,
            clients=self.task.label_counts(),
            manifest=manifest,
            folder=self.folder,
            model=strategy.model,
        )


def _plain(value: Any) -> Any:
    """A setting in a form that JSON can hold."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return asdict(value) if hasattr(value, "__dataclass_fields__") else getattr(value, "__name__", repr(value))
