"""Trains pending clients side by side, in a stack of models (see stack.py)."""

from functools import partial

from fedfa.executors.base import Trained, WorkOrder
from fedfa.executors.stack import Member, Stack, Stacks, Work
from fedfa.learning.device import CPU
from fedfa.learning.task import Task


class Batched:
    """Clients of this run take steps beside those of others whose task has the same stacks."""

    shares = True
    device = CPU

    def __init__(self, task: Task, seed: int, compile: bool = False) -> None:
        self._task, self._seed, self._compile = task, seed, compile
        self._pending: dict[int, Work] = {}
        self._finished: dict[int, Trained] = {}
        self._stacks: dict[float, tuple[Stack, Member]] = {}
        stack, _ = self._stack(0.0)
        self.name = "batched, compiled" if stack.compiled else "batched"
        """Tells which steps it takes: compiled ones differ from others by rounding."""

    def submit(self, order: WorkOrder) -> None:
        if order.dispatch not in self._finished:
            stack, member = self._stack(order.prox_mu)
            self._pending[order.dispatch] = work = Work(order, member, partial(self._done, order.dispatch))
            stack.submit(work)

    def ready(self, dispatch: int) -> bool:
        return dispatch in self._finished

    def result(self, dispatch: int) -> Trained:
        while dispatch not in self._finished:
            self._stack(self._pending[dispatch].order.prox_mu)[0].advance()
        return self._finished.pop(dispatch)

    def discard(self, dispatch: int) -> None:
        self._finished.pop(dispatch, None)
        if work := self._pending.pop(dispatch, None):
            self._stack(work.order.prox_mu)[0].withdraw(work)

    def finished(self) -> dict[int, Trained]:
        return dict(self._finished)

    def restore(self, finished: dict[int, Trained]) -> None:
        for dispatch in finished:
            self.discard(dispatch)
        self._finished.update(finished)

    def meanwhile(self) -> None:
        pass

    def advance(self) -> None:
        for prox_mu in {work.order.prox_mu for work in self._pending.values()}:
            self._stack(prox_mu)[0].advance()

    def close(self) -> None:
        for dispatch in list(self._pending):
            self.discard(dispatch)
        for stack, member in self._stacks.values():
            stack.leave(member)
        self._stacks.clear()

    def _stack(self, prox_mu: float) -> tuple[Stack, Member]:
        if prox_mu not in self._stacks:
            self._stacks[prox_mu] = Stacks.of(self._task).join(self._task, self._seed, prox_mu, self._compile)
        return self._stacks[prox_mu]

    def _done(self, dispatch: int, trained: Trained) -> None:
        del self._pending[dispatch]
        self._finished[dispatch] = trained
