"""The virtual-clock engine: a heap of arrivals, a strategy, an executor and the weather.

Events are ordered by (virtual time, dispatch number) and handled one at a time. Measured compute time never enters
the clock, so a run is the same on a laptop and on a GPU.
"""

import gc
import logging
import math
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import numpy as np

from fedfa import checkpoint
from fedfa.core import Strategy, Update
from fedfa.course import Course
from fedfa.errors import EngineError, in_a_line, require
from fedfa.executors.base import Trained, WorkOrder
from fedfa.live import Live
from fedfa.place import CPU, as_array
from fedfa.randomness import CHOICE, keyed
from fedfa.record import INTERRUPTED, Run
from fedfa.rows import ACCEPTED
from fedfa.weather import Delay, Weather

logger = logging.getLogger("fedfa")

NOBODY = -1
"""Stands for a client in heap entries that only wake the engine up."""


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
    diverged_below: float | None = None
    """No evaluation reaches this accuracy ..."""
    diverged_updates: int | None = None
    """... for so many accepted updates in a row: the run has diverged. Both or neither."""

    def __post_init__(self) -> None:
        limits = {f.name: getattr(self, f.name) for f in fields(self)}
        ends = [name for name in limits if not name.startswith("diverged")]
        require(any(limits[name] is not None for name in ends), f"set at least one of {', '.join(ends)}")
        for name, value in limits.items():
            require(value is None or 0 < value < math.inf, f"{name} = {value}: must be above 0, and finite")
        require(
            (self.diverged_below is None) == (self.diverged_updates is None),
            "diverged_below: goes with diverged_updates; set both or neither",
        )

    def share_done(self, updates: int, seconds: float, wall_seconds: float = 0.0) -> float:
        """How much of the way to the nearest limit is behind, 0 to 1; accuracy tells no such thing."""
        limits = ((updates, self.updates), (seconds, self.seconds), (wall_seconds, self.wall_seconds))
        return min(1.0, max(done / limit if limit else 0.0 for done, limit in limits))

    @property
    def limits(self) -> dict[str, float]:
        """Those that are set."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(slots=True)
class OnTheWay(WorkOrder):
    """A work order that is out, with what the engine knows about it."""

    started: float
    arrives: float
    delay: Delay


class Idle:
    """Clients with no work, drawn uniformly in O(1); memory only for clients that were ever touched.

    The idle ones are positions 0..count-1 of a virtual permutation of all clients, of which only the moved entries
    are stored.
    """

    def __init__(self, num_clients: int) -> None:
        self.count = num_clients
        self.moved: dict[int, int] = {}

    def draw(self, chance: float) -> int:
        """Take the client at this share (0 to 1) of the idle ones; the last one moves into its place."""
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


class Simulation(Course):
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
        strategy.check_clients(task.num_clients)
        self.place = executor.place
        super().__init__(
            strategy=strategy, stop=stop, seed=seed, label=label, evaluator=task.evaluator(seed, self.place)
        )
        self.task, self.weather, self.folder = task, weather, folder
        self.evaluate_every, self.executor = evaluate_every, executor
        self._checkpoint_seconds, self._interrupted, self._progress = checkpoint_seconds, interrupted, progress
        initial, self.num_trainable, self.num_frozen = task.initial(seed)
        self.initial = self.place.vector(initial)
        self.num_bytes = self.initial.nbytes
        self.forecast = weather.forecast(seed, self.num_bytes)
        self._live = None if folder is None else Live(folder)

        self.earlier_wall, self._began = 0.0, time.perf_counter()
        self.heap: list[tuple[float, int, int]] = []
        self.in_flight: dict[int, OnTheWay] = {}
        self.counts: dict[int, int] = {}
        self.idle = Idle(task.num_clients)
        self.random = random.Random(keyed(seed, CHOICE))
        self.wake_at = math.inf
        self._prox_mu, self._epochs_of = strategy.local.prox_mu, task.local.epochs_of
        self._most_updates = math.inf if stop.updates is None else stop.updates
        self._most_seconds = math.inf if stop.seconds is None else stop.seconds
        self._enough_accuracy = math.inf if stop.accuracy is None else stop.accuracy

    # The loop --------------------------------------------------------------------------------------------------------

    def run(self, resume: bool = False) -> Run:
        thresholds = gc.get_threshold()
        gc.freeze()  # what exists by now stays: collections need not look at it again and again
        gc.set_threshold(max(20_000, thresholds[0]), *thresholds[1:])
        try:
            with np.errstate(over="ignore"):  # a client's absurd numbers are refused, not warned about
                return self._run(resume)
        except BaseException as error:
            if self._live:
                self._live.end(self, None if isinstance(error, KeyboardInterrupt) else in_a_line(error))
            raise
        finally:
            gc.set_threshold(*thresholds)
            gc.unfreeze()

    def _run(self, resume: bool) -> Run:
        self._began = last_saved = last_shown = time.perf_counter()
        if not (resume and checkpoint.load(self)):
            self._dispatch(self.strategy.begin(self.initial, self.num_trainable).start)
            self._evaluate()
        if self._live:
            self._live.tick(self, self.earlier_wall)
        ended = self._reached()
        pause = self._checkpoint_seconds
        while not ended:
            self._arrive()
            ended = self._reached()
            clock = time.perf_counter()
            if self.stop.wall_seconds is not None and self._wall_seconds >= self.stop.wall_seconds:
                ended = ended or "wall time"
            if clock - last_shown > 0.1:
                last_shown = clock
                if self._progress:
                    self._progress(self)
                if self._live:
                    self._live.tick(self, self._wall_seconds)
                if self._interrupted():
                    checkpoint.save(self, self._wall_seconds)
                    raise KeyboardInterrupt
                if self.folder is not None and clock - last_saved > pause:
                    checkpoint.save(self, self._wall_seconds)
                    last_saved = time.perf_counter()
                    pause = max(self._checkpoint_seconds, 20 * (last_saved - clock))
        if self._progress:
            self._progress(self)
        return self._finish(ended)

    @property
    def _wall_seconds(self) -> float:
        return self.earlier_wall + time.perf_counter() - self._began

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
                client, dispatch, base_version, trained.params, flight.base,
                trained.num_examples, trained.num_steps,
            )  # fmt: skip
            orders = strategy.receive(update, self.in_flight)
            outcome = f"refused: {orders.refused}" if orders.refused else ACCEPTED
        del self.in_flight[client]
        self.idle.put_back(client)
        self.record.updates.append(
            (
                seconds,
                client,
                dispatch,
                flight.started,
                base_version,
                version - base_version,
                strategy.version,
                0 if outcome is ACCEPTED else self.record.outcome(outcome),
                trained.loss,
                orders.delta_norm,
                trained.num_examples,
                trained.num_steps,
                0 if trained.params is None else self.num_bytes,
                self.num_bytes,
            )
        )
        for laggard in orders.recall:
            self._recall(laggard)
        if orders.start:
            self._dispatch(orders.start)
        if outcome is ACCEPTED:
            self.accepted += 1
            self.fruitless = 0
            if self.accepted % self.evaluate_every == 0:
                self._evaluate()
                self.record.updates.pack_if_due()
        else:
            self.not_taken(outcome)
            if self.hopeless:
                logger.warning("%s is %s", self.label, self.hopeless)

    def _dispatch(self, number: int) -> None:
        """Hand the newest model to idle, available clients, drawn uniformly."""
        self.unfilled += number
        if self.weather.availability is None:
            while self.unfilled and self.idle.count:
                self.unfilled -= 1
                self._start(self.idle.draw(self.random.random()))
            return
        away: list[int] = []
        while self.unfilled and self.idle.count:
            client = self.idle.draw(self.random.random())
            if self.forecast.opens(client, self.now) > self.now:
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
        arrives = self.now + (delay.download_seconds + delay.compute_seconds + delay.upload_seconds)
        self.in_flight[client] = flight = OnTheWay(
            dispatch, version, client, nth, strategy.model, self._epochs_of(self.seed, client), self._prox_mu,
            self.now, arrives, delay,
        )  # fmt: skip
        heappush(self.heap, (arrives, dispatch, client))
        if not delay.lost:
            self.executor.submit(flight)

    def _recall(self, client: int) -> None:
        """Let a client report at the end of the local epoch it is in, its first at the earliest."""
        flight = self.in_flight.get(client)
        if flight is None or flight.delay.lost:
            return
        per_epoch = flight.delay.compute_seconds / self._epochs_of(self.seed, client)
        trained_for = self.now - flight.started - flight.delay.download_seconds
        epochs = max(1, math.ceil(trained_for / per_epoch))
        if epochs >= flight.epochs:
            return
        ready = flight.started + flight.delay.download_seconds + epochs * per_epoch
        flight.epochs, flight.arrives = epochs, max(self.now, ready + flight.delay.upload_seconds)
        heappush(self.heap, (flight.arrives, flight.dispatch, client))
        self.executor.discard(flight.dispatch)
        self.executor.submit(flight)

    def _evaluate(self) -> None:
        self.judge(self.now, self.executor.meanwhile)

    def _reached(self) -> str:
        """Which limit has been met; empty while none has."""
        if self.hopeless:
            return self.hopeless
        if self.accepted >= self._most_updates:
            return "updates"
        if self.last_score[1] >= self._enough_accuracy:
            return "accuracy"
        if self._most_seconds < math.inf and (not self.heap or self.heap[0][0] > self._most_seconds):
            return "seconds"
        return ""

    @cached_property
    def digest(self) -> str:
        """Of the data and the initial model."""
        return self.task.digest(self.seed)

    @cached_property
    def fingerprint(self) -> str:
        return checkpoint.fingerprint(self)

    def made_with(self) -> dict[str, Any]:
        """All settings but the seed and when to stop, JSON-ready."""
        return {
            "strategy": {"name": self.strategy.name} | self.strategy.settings(),
            "weather": asdict(self.weather),
            "task": self.task.name,
            "num_clients": self.task.num_clients,
            "num_parameters": len(self.initial),
            "num_frozen": self.num_frozen,
            "local": asdict(self.task.local),
            "evaluate_every": self.evaluate_every,
            "executor": self.executor.name,
            **({} if self.place == CPU else asdict(self.place)),
        }

    def _finish(self, ended: str) -> Run:
        if ended == "seconds":
            self.now = self._most_seconds
        if self.record.evaluation_frame()["updates"][-1] != self.accepted:
            self._evaluate()
        for flight in self.in_flight.values():
            self.executor.discard(flight.dispatch)
        return self.so_far(ended)

    def so_far(self, ended: str = INTERRUPTED) -> Run:
        """The run as it stands."""
        manifest = self.made_with() | self.facts(ended, self._wall_seconds)
        if self.folder is not None:
            manifest |= {"fingerprint": self.fingerprint, "digest": self.digest}
        return Run(
            updates=self.record.update_frame(),
            evaluations=self.record.evaluation_frame(),
            clients=self.task.label_counts(),
            manifest=manifest,
            folder=self.folder,
            model=as_array(self.strategy.model),
        )
