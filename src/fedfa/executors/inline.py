"""One client at a time: the reference for every other executor. Where it pays, a team of processes does so."""

import time

from fedfa.errors import in_a_line
from fedfa.executors.base import Trained, Workers, WorkOrder
from fedfa.executors.cores import machine_cores
from fedfa.executors.team import MOST_PROCESSES, Team, TeamLost, why_alone
from fedfa.executors.trainer import Trainer
from fedfa.learning.device import CPU, Device
from fedfa.learning.probe import say_once
from fedfa.learning.task import Task

ALONE_SECONDS = 0.25
"""Training in this process before a team is started: some times what starting one takes."""
CLIENT_SECONDS = 0.002
"""A shorter client is not worth waking a process up for it."""
BYTES_PER_SECOND = 2e8
"""Nor is one that takes less time than its model at this rate: a twentieth of what copying achieves."""
MOST_LOSSES = 3
"""Teams lost in one run, until it goes on alone."""


class Inline:
    """Trains a client when its result is asked for; a team does it as soon as it is submitted.

    A client's result has the same bits wherever it is trained, so the clock may decide when a team starts.
    """

    name = "inline"
    shares = False

    def __init__(self, task: Task, seed: int, device: Device = CPU, workers: Workers = 1) -> None:
        self.device = device
        self._trainer = Trainer.of(task, seed, device)
        self._orders: dict[int, WorkOrder] = {}
        self._finished: dict[int, Trained] = {}
        self._fixed = workers if isinstance(workers, int) else 0
        self._cores = (lambda: self._fixed) if isinstance(workers, int) else workers
        if device.kind != "cpu":
            self._fixed = 1
        self._team: Team | None = None
        self._losses, self._clients, self._spent = 0, 0, 0.0
        if self._fixed != 1 and (reason := why_alone()):
            if self._fixed:
                say_once(f"engine.workers = {workers}: one process trains all clients ({reason}).")
            self._fixed = 1

    def submit(self, order: WorkOrder) -> None:
        self._orders[order.dispatch] = order
        if self._team and order.dispatch not in self._finished:
            self._team.submit(order)

    def ready(self, dispatch: int) -> bool:
        return True

    def result(self, dispatch: int) -> Trained:
        trained = self._finished.pop(dispatch, None) or self._by_team(dispatch)
        order = self._orders.pop(dispatch)
        if trained is None:
            began = time.thread_time()  # another program's load must not make clients look worth a team
            trained = self._trainer.result(order)
            self._clients, self._spent = self._clients + 1, self._spent + time.thread_time() - began
        return trained

    def train(self, order: WorkOrder) -> Trained:
        return self._trainer.train(order)

    def discard(self, dispatch: int) -> None:
        self._orders.pop(dispatch, None)
        self._finished.pop(dispatch, None)
        if self._team:
            self._team.discard(dispatch)

    def finished(self) -> dict[int, Trained]:
        return self._finished | (self._team.finished() if self._team else {})

    def restore(self, finished: dict[int, Trained]) -> None:
        self._finished.update(finished)

    def advance(self) -> None:
        pass

    def meanwhile(self) -> None:
        if self._team:
            self._team.feed()

    def close(self) -> None:
        if self._team:
            self._team.close()
            self._team = None

    # The team --------------------------------------------------------------------------------------------------------

    def _by_team(self, dispatch: int) -> Trained | None:
        """The outcome, if there is a team, and if training did not fail: the error is then raised here once more."""
        while team := self._present_team():
            try:
                return team.result(dispatch)
            except TeamLost:
                self._losses += 1
                self._finished |= team.finished()
                self.close()
                if dispatch in self._finished:
                    return self._finished.pop(dispatch)
        return None

    def _present_team(self) -> Team | None:
        """The team, started or enlarged if that is due."""
        if self._fixed == 1 or (self._team is None and not self._pays()):
            return None
        processes = min(self._cores(), len(self._orders), MOST_PROCESSES)
        if self._team:
            self._team.grow(processes)
        elif processes > 1:
            length, most = self._trainer.bound.layout.length, min(self._fixed or machine_cores(), MOST_PROCESSES)
            try:
                self._team = Team(self._trainer.result, length, processes, max(processes, most))
            except OSError as error:
                self._fixed = 1
                say_once(f"One process trains all clients: no other can be started ({in_a_line(error)}).")
                return None
            for order in self._orders.values():
                if order.dispatch not in self._finished:
                    self._team.submit(order)
        return self._team

    def _pays(self) -> bool:
        if self._losses == MOST_LOSSES:
            return False
        if self._fixed:
            return True
        copying = 4 * self._trainer.bound.layout.length / BYTES_PER_SECOND
        return self._spent > ALONE_SECONDS and self._spent > self._clients * (CLIENT_SECONDS + copying)
