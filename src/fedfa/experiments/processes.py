"""Runs in separate processes: several at a time, each saved when it is asked to stop."""

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any

from fedfa.errors import EngineError
from fedfa.executors.cores import machine_cores
from fedfa.executors.stack import Stacks
from fedfa.executors.team import end_with_parent
from fedfa.experiments.points import Point, ingredients
from fedfa.learning.task import Task
from fedfa.runs.run import Run
from fedfa.simulation.engine import Steps
from fedfa.simulation.settings import EngineSettings
from fedfa.simulation.together import MOST_TOGETHER, Begin, together, undisturbed

logger = logging.getLogger("fedfa")

_CONTEXT = multiprocessing.get_context("spawn")

POLL_SECONDS = 0.2
"""How often ``run_points`` asks whether it is interrupted."""
AGAIN_SECONDS = 2.0
"""Seconds. The terminal and the parent both forward one Ctrl-C; a later signal is a second one."""


def run_points(
    todo: Iterable[Point],
    *,
    jobs: int,
    total: int = 1,
    command: str = "",
    resume: bool = False,
    interrupted: Callable[[], bool] = lambda: False,
) -> Iterator[Run]:
    """Run points in this many processes; yields runs as they finish.

    A process makes several runs at a time if it can train their clients together, which depends on how many there are
    in ``total``. A point is taken from ``todo`` when there is room for it, so that a generator can decide late which
    one is next. The current runs end when the iterator is closed, on Ctrl-C, and when ``interrupted`` returns true.
    Each then leaves a checkpoint that ``resume`` continues.
    """
    waiting, workers, share = iter(todo), list[_Worker](), _CONTEXT.RawValue("i", _share(jobs))
    beside = min(MOST_TOGETHER, -(-total // jobs))
    try:
        while not interrupted():
            while (worker := _freest(workers, jobs, share)) and (point := next(waiting, None)) is not None:
                worker.start(_Job(point, command, resume, beside))
            busy = [worker for worker in workers if worker.busy]
            if not busy:
                return
            share.value = _share(len(busy))  # the last runs use the cores of those that are done
            for worker in _answering(busy):
                if (run := worker.answer()) is not None:
                    yield run
    except KeyboardInterrupt:
        logger.warning("Saving the current runs; a second Ctrl-C ends at once.")
        raise
    finally:
        _end(workers)


@dataclass(frozen=True, slots=True)
class _Job:
    """A point to run, and how."""

    point: Point
    command: str
    resume: bool
    beside: int
    """Runs that there may be at a time in the process, this one included."""


@dataclass(frozen=True, slots=True)
class _Room:
    """A process can make this many runs at a time."""

    runs: int


@dataclass(slots=True)
class _Worker:
    """A process, and the connection to it."""

    process: BaseProcess
    connection: Any
    """A ``multiprocessing`` connection; its class depends on the system."""
    busy: int = 0
    """Runs under way."""
    room: int = 1
    """Runs that it can make at a time."""

    @classmethod
    def new(cls, share: Any) -> "_Worker":
        ours, theirs = _CONTEXT.Pipe()
        process = _CONTEXT.Process(target=_serve, args=(theirs, share))
        process.start()
        theirs.close()
        return cls(process, ours)

    def start(self, job: _Job) -> None:
        self.connection.send(job)
        self.busy += 1

    def answer(self) -> Run | None:
        """A run that has ended, or None if the process said something else."""
        try:
            found = self.connection.recv()
        except EOFError:
            self.busy = 0
            why = "a run's process was killed; its last checkpoint is kept: repeat the command to continue"
            raise EngineError(why) from None
        if isinstance(found, _Room):
            self.room = found.runs
            return None
        self.busy -= 1
        if isinstance(found, BaseException):
            raise found
        return found


def _share(runs: int) -> int:
    """The cores that each of so many processes may use."""
    return max(1, machine_cores() // runs)


def _freest(workers: list[_Worker], jobs: int, share: Any) -> _Worker | None:
    """The process with the fewest runs, if it can make another; starts new ones up to the limit."""
    if len(workers) < jobs and all(worker.busy for worker in workers):
        workers.append(_Worker.new(share))
    free = [worker for worker in workers if worker.busy < worker.room]
    return min(free, key=lambda worker: worker.busy, default=None)


def _answering(busy: list[_Worker]) -> list[_Worker]:
    """Those that have finished or died, after a short while at most."""
    ready = wait([worker.connection for worker in busy], POLL_SECONDS)
    return [worker for worker in busy if worker.connection in ready]


def _end(workers: list[_Worker]) -> None:
    """Let all processes save their runs, and end; end at once on another Ctrl-C."""
    try:
        for worker in workers:
            worker.connection.close()
            if worker.busy:
                worker.process.terminate()
        for worker in workers:
            worker.process.join()
    except KeyboardInterrupt:
        for worker in workers:
            worker.process.kill()
        raise


# In a separate process ------------------------------------------------------------------------------------------------


class _Asked:
    """Whether this process was asked to stop. Asked a second time, it ends at once."""

    def __init__(self) -> None:
        self._since = 0.0
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    def __call__(self) -> bool:
        return self._since > 0

    def _ask(self, *_: Any) -> None:
        if self._since and time.monotonic() - self._since > AGAIN_SECONDS:
            os._exit(130)
        self._since = self._since or time.monotonic()


def _serve(connection: Any, share: Any) -> None:
    """Make the requested runs, until the other end is closed."""
    asked = _Asked()
    threading.Thread(target=end_with_parent, daemon=True).start()
    desk = _Desk(connection, asked, share)
    while not asked():
        try:
            desk.wait()
        except (EOFError, OSError):
            return
        try:
            with undisturbed(desk.engine.threads, desk.engine.front):
                for run in together(desk.following):
                    desk.hand_in(run)
        except KeyboardInterrupt:
            return
        except Exception as error:
            desk.hand_in(error)


class _Desk:
    """Takes jobs from the connection, and hands in what came of them."""

    def __init__(self, connection: Any, asked: _Asked, share: Any) -> None:
        self._connection, self._asked, self._share = connection, asked, share
        self._next: _Job | None = None
        self._running: list[_Job] = []
        self._told = False
        self._tasks: dict[str, Task] = {}
        self._stacks = Stacks()

    def wait(self) -> None:
        """Until there is a job."""
        self._running.clear()
        self._next = self._next or self._connection.recv()

    @property
    def engine(self) -> EngineSettings:
        """How the next run is computed."""
        assert self._next is not None
        return self._next.point.experiment.engine

    def following(self) -> Begin | None:
        """The next run, if there is one that may go on beside the others."""
        if self._running and not self._told:
            self._told = True
            self._connection.send(_Room(MOST_TOGETHER))
        if self._next is None and self._connection.poll():
            try:
                self._next = self._connection.recv()
            except (EOFError, OSError):
                return None
        if self._next is None or (self._running and self.engine != self._running[0].point.experiment.engine):
            return None
        job, self._next = self._next, None
        self._running.append(job)
        return partial(self._begin, job)

    def _begin(self, job: _Job) -> Steps:
        point = job.point
        return point.experiment.steps(
            point.folder, resume=job.resume, label=point.label, command=job.command, task=self._task(point),
            interrupted=self._asked, beside=job.beside, cores=lambda: self._share.value,
        )  # fmt: skip

    def _task(self, point: Point) -> Task:
        """Tasks of the runs under way are kept, because the next run often has the same."""
        key = ingredients(point.experiment)
        if key not in self._tasks:
            used = {ingredients(job.point.experiment) for job in self._running}
            self._tasks = {known: task for known, task in self._tasks.items() if known in used}
            self._tasks[key] = task = point.experiment.make_task()
            self._stacks.share(task)
        return self._tasks[key]

    def hand_in(self, found: Run | BaseException) -> None:
        if isinstance(found, Run):
            self._running = [job for job in self._running if job.point.folder != found.folder]
            found = replace(found, model=None)
        with suppress(OSError):  # no longer awaited; it is on disk
            self._connection.send(found)
