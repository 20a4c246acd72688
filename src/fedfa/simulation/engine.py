"""The virtual-clock engine: a heap of arrivals, a strategy, an executor and the weather.

Events are ordered by (virtual time, dispatch number) and handled one at a time. Measured compute time never enters
the clock, so a run is the same on a laptop and on a GPU.
"""

import logging
import math
import time
from collections.abc import Callable, Generator
from dataclasses import asdict
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, NamedTuple

from fedfa.errors import EngineError, in_a_line
from fedfa.executors.base import NOTHING, Executor
from fedfa.learning.base import EngineTask
from fedfa.learning.device import CPU, as_array
from fedfa.runs.live import Live
from fedfa.runs.recorder import TAKEN, Outcome
from fedfa.runs.run import Run
from fedfa.runs.stop import BY_ACCURACY, BY_SECONDS, BY_UPDATES, BY_WALL_TIME, INTERRUPTED, Ending, Stop
from fedfa.simulation.settings import EngineSettings
from fedfa.simulation.state import SimulatedFlight, SimulationState
from fedfa.simulation.weather import Weather
from fedfa.strategies.base import Strategy

logger = logging.getLogger("fedfa")

NOBODY = -1
"""Stands for a client in heap entries that only wake the engine."""
UNANSWERED = Outcome("lost", "no answer in time")


class Waiting(NamedTuple):
    """What a run waits for before it goes on."""

    executor: Executor
    dispatch: int

    @property
    def over(self) -> bool:
        return self.executor.ready(self.dispatch)


Steps = Generator[Waiting, None, Run]
"""A run in pieces: between them it waits, and other runs may go on."""


class Simulation(SimulationState):
    """One run on the virtual clock."""

    def __init__(
        self,
        *,
        strategy: Strategy,
        task: EngineTask,
        weather: Weather,
        stop: Stop,
        seed: int,
        settings: EngineSettings,
        executor: Executor,
        folder: Path | None,
        label: str,
        interrupted: Callable[[], bool],
        progress: Callable[["Simulation"], None] | None,
    ) -> None:
        strategy.check_clients(task.num_clients)
        super().__init__(
            strategy=strategy, task=task, executor=executor, stop=stop, seed=seed, label=label, folder=folder
        )
        self.weather, self.settings = weather, settings
        self._interrupted, self._progress = interrupted, progress
        self.forecast = weather.forecast(seed, self.num_bytes)
        self._live = None if folder is None else Live(folder)
        self._began = time.perf_counter()
        self._prox_mu, self._epochs_of = strategy.local.prox_mu, task.local.epochs_of
        self._most_updates = math.inf if stop.updates is None else stop.updates
        self._most_seconds = math.inf if stop.seconds is None else stop.seconds
        self._enough_accuracy = math.inf if stop.accuracy is None else stop.accuracy

    # The loop --------------------------------------------------------------------------------------------------------

    def steps(self, resume: bool = False, beside: bool = False) -> Steps:
        """The run. It waits only beside other runs; thrown KeyboardInterrupt then, it is saved and ends."""
        try:
            return (yield from self._steps(resume, beside))
        except BaseException as error:
            if self._live:
                self._live.end(self, None if isinstance(error, KeyboardInterrupt) else in_a_line(error))
            raise

    def _steps(self, resume: bool, beside: bool) -> Steps:
        self._began = last_saved = last_shown = time.perf_counter()
        if not (resume and self.load()):
            self._dispatch(self.strategy.begin(self.initial, self.num_trainable).start)
            self._evaluate()
        if self._live:
            self._live.tick(self, self.earlier_wall)
        ended = self._reached()
        pause = self.settings.checkpoint_seconds
        while not ended:
            if beside and (waiting := self._waiting()) is not None:
                try:
                    yield waiting
                except KeyboardInterrupt:
                    self.save(self._wall_seconds)
                    raise
            self._arrive()
            ended = self._reached()
            clock = time.perf_counter()
            if self.stop.wall_seconds is not None and self._wall_seconds >= self.stop.wall_seconds:
                ended = ended or BY_WALL_TIME
            if clock - last_shown > 0.1:
                last_shown = clock
                if self._progress:
                    self._progress(self)
                if self._live:
                    self._live.tick(self, self._wall_seconds)
                if self._interrupted():
                    self.save(self._wall_seconds)
                    raise KeyboardInterrupt
                if self.folder is not None and clock - last_saved > pause:
                    self.save(self._wall_seconds)
                    last_saved = time.perf_counter()
                    pause = max(self.settings.checkpoint_seconds, 20 * (last_saved - clock))
        if self._progress:
            self._progress(self)
        return self._finish(ended)

    @property
    def _wall_seconds(self) -> float:
        return self.earlier_wall + time.perf_counter() - self._began

    def _waiting(self) -> Waiting | None:
        """The result of the next arrival, if there is one and it is not there."""
        if not self.heap:
            return None
        _, dispatch, client = self.heap[0]
        flight = self.in_flight.get(client)
        if flight is None or flight.dispatch != dispatch or flight.delay.lost or self.executor.ready(dispatch):
            return None
        return Waiting(self.executor, dispatch)

    def _arrive(self) -> None:
        """Handle the next event."""
        if not self.heap:
            raise EngineError(f"{self.label}: no client is training and the strategy starts none; check its refill")
        seconds, dispatch, client = heappop(self.heap)
        if client == NOBODY:
            self.now, self.wake_at = seconds, math.inf
            self._dispatch(0)
            return
        flight = self.in_flight.get(client)
        if flight is None or flight.dispatch != dispatch or flight.arrives != seconds:
            return  # it was called back and has answered earlier
        self.now = seconds
        trained = NOTHING if flight.delay.lost else self.executor.result(dispatch)
        failure = None
        if flight.delay.lost:
            failure = UNANSWERED
        elif trained.error:
            failure = Outcome("failed", trained.error)
        orders, outcome = self.take_in(flight, trained, failure)
        self.idle.put_back(client)
        for laggard in orders.recall:
            self._recall(laggard)
        if orders.start:
            self._dispatch(orders.start)
        if outcome is TAKEN:
            if self.accepted % self.settings.evaluate_every == 0:
                self._evaluate()
                self.record.updates.pack_if_due()
        else:
            self.not_taken(outcome)
            if self.gave_up:
                logger.warning("%s is %s", self.label, self.gave_up)

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
        self.in_flight[client] = flight = SimulatedFlight(
            dispatch, version, client, nth, strategy.model, self._epochs_of(self.seed, client), self._prox_mu, arrives,
            self.now, delay,
        )  # fmt: skip
        heappush(self.heap, (arrives, dispatch, client))
        if not delay.lost:
            self.executor.submit(flight)

    def _recall(self, client: int) -> None:
        """Let a client report at the end of its current local epoch, its first at the earliest."""
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

    def _reached(self) -> Ending | None:
        """Which limit has been met; None while none has."""
        if self.gave_up:
            return self.gave_up
        if self.accepted >= self._most_updates:
            return BY_UPDATES
        if self.last_score[1] >= self._enough_accuracy:
            return BY_ACCURACY
        if self._most_seconds < math.inf and (not self.heap or self.heap[0][0] > self._most_seconds):
            return BY_SECONDS
        return None

    def made_with(self) -> dict[str, Any]:
        """All settings but the seed and the stop, JSON-ready."""
        device = self.executor.device
        return {
            "strategy": {"name": self.strategy.name} | self.strategy.settings(),
            "weather": asdict(self.weather),
            "task": self.task.name,
            "num_clients": self.task.num_clients,
            "num_parameters": len(self.initial),
            "num_frozen": self.num_frozen,
            "local": asdict(self.task.local),
            "evaluate_every": self.settings.evaluate_every,
            "executor": self.executor.name,
            **({} if device == CPU else {"device": device.kind, "precision": device.precision}),
        }

    def _finish(self, ended: Ending) -> Run:
        if ended == BY_SECONDS:
            self.now = self._most_seconds
        if self.record.evaluation_frame()["updates"][-1] != self.accepted:
            self._evaluate()
        for flight in self.in_flight.values():
            self.executor.discard(flight.dispatch)
        return self.so_far(ended)

    def so_far(self, ended: Ending = INTERRUPTED) -> Run:
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
