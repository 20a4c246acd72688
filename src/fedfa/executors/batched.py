"""Trains pending clients side by side, in a stack of models (see stack.py)."""

from functools import partial

from fedfa.executors.base import Trained, WorkOrder
from fedfa.executors.stack import Stack, Work
from fedfa.learning.device import CPU
from fedfa.learning.task import Task


class Batched:
    """When a result is asked for, all pending clients take steps until it is there."""

    name = "batched"
    device = CPU

    def __init__(self, task: Task, seed: int) -> None:
        self._task, self._seed = task, seed
        self._pending: dict[int, Work] = {}
        self._finished: dict[int, Trained] = {}
        self._stacks = {0.0: Stack.of(task, seed, 0.0)}

    def submit(self, order: WorkOrder) -> None:
        if order.dispatch not in self._finished:
            self._pending[order.dispatch] = work = Work(order, partial(self._done, order.dispatch))
            self._stack(order.prox_mu).submit(work)

    def result(self, dispatch: int) -> Trained:
        while dispatch not in self._finished:
            work = self._pending[dispatch]
            self._stack(work.order.prox_mu).advance(work)
        return self._finished.pop(dispatch)

    def discard(self, dispatch: int) -> None:
        self._finished.pop(dispatch, None)
        if work := self._pending.pop(dispatch, None):
            self._stack(work.order.prox_mu).withdraw(work)

    def finished(self) -> dict[int, Trained]:
        return dict(self._finished)

    def restore(self, finished: dict[int, Trained]) -> None:
        for dispatch in finished:
            self.discard(dispatch)
        self._finished.update(finished)

    def meanwhile(self) -> None:
        pass

    def close(self) -> None:
        for dispatch in list(self._pending):
            self.discard(dispatch)

    def _stack(self, prox_mu: float) -> Stack:
        if prox_mu not in self._stacks:
            self._stacks[prox_mu] = Stack.of(self._task, self._seed, prox_mu)
        return self._stacks[prox_mu]

    def _done(self, dispatch: int, trained: Trained) -> None:
        del self._pending[dispatch]
        self._finished[dispatch] = trained
