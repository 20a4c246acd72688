"""Runs in separate processes: several at a time, each saved when it is asked to stop."""

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any

from fedfa.errors import EngineError
from fedfa.executors import cores
from fedfa.executors.team import end_with_parent
from fedfa.experiments.points import Point, ingredients
from fedfa.learning.task import Task
from fedfa.runs.run import Run

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
    command: str = "",
    resume: bool = False,
    interrupted: Callable[[], bool] = lambda: False,
) -> Iterator[Run]:
    """Run points, this many at a time; yields runs as they finish.

    A point is taken from ``todo`` when a process is free for it, so that a generator can decide late which one is next.
    The current runs end when the iterator is closed, on Ctrl-C, and when ``interrupted`` returns true. Each then leaves
    a checkpoint that ``resume`` continues.
    """
    waiting, workers, share = iter(todo), list[_Worker](), _CONTEXT.RawValue("i", _share(jobs))
    try:
        while not interrupted():
            for worker in _free(workers, jobs, share):
                if (point := next(waiting, None)) is None:
                    break
                worker.start(point, command, resume)
            busy = [worker for worker in workers if worker.busy]
            if not busy:
                return
            share.value = _share(len(busy))  # the last runs use the cores of those that are done
            for worker in _answering(busy):
                yield worker.result()
    except KeyboardInterrupt:
        logger.warning("Saving the current runs; a second Ctrl-C ends at once.")
        raise
    finally:
        _end(workers)


@dataclass(slots=True)
class _Worker:
    """A process, and the connection to it."""

    process: BaseProcess
    connection: Any
    """A ``multiprocessing`` connection; its class depends on the system."""
    busy: bool = False

    @classmethod
    def new(cls, share: Any) -> "_Worker":
        ours, theirs = _CONTEXT.Pipe()
        process = _CONTEXT.Process(target=_serve, args=(theirs, share))
        process.start()
        theirs.close()
        return cls(process, ours)

    def start(self, point: Point, command: str, resume: bool) -> None:
        self.connection.send((point, command, resume))
        self.busy = True

    def result(self) -> Run:
        try:
            found = self.connection.recv()
        except EOFError:
            self.busy = False
            why = "a run's process was killed; its last checkpoint is kept: repeat the command to continue"
            raise EngineError(why) from None
        self.busy = False
        if isinstance(found, BaseException):
            raise found
        return found


def _share(runs: int) -> int:
    """The cores that each of so many runs may use."""
    return max(1, cores.machine_cores() // runs)


def _free(workers: list[_Worker], jobs: int, share: Any) -> Iterator[_Worker]:
    """Idle workers; starts new ones up to the limit."""
    yield from [worker for worker in workers if not worker.busy]
    while len(workers) < jobs:
        workers.append(_Worker.new(share))
        yield workers[-1]


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
    cores.share(share)
    threading.Thread(target=end_with_parent, daemon=True).start()
    prepared: dict[str, Task] = {}
    while not asked():
        try:
            point, command, resume = connection.recv()
        except (EOFError, OSError):
            return
        found: Run | BaseException
        try:
            found = _run(point, command, resume, asked, prepared)
        except KeyboardInterrupt:
            return
        except Exception as error:
            found = error
        try:
            connection.send(found)
        except OSError:  # no longer awaited; it is on disk
            return


def _run(point: Point, command: str, resume: bool, asked: _Asked, prepared: dict[str, Task]) -> Run:
    """Make one run; keep the last task, because the next point often has the same."""
    key = ingredients(point.experiment)
    if key not in prepared:
        prepared.clear()
        prepared[key] = point.experiment.make_task()
    run = point.experiment.run(
        point.folder, resume=resume, label=point.label, command=command, task=prepared[key], interrupted=asked
    )
    return replace(run, model=None)
