"""A stack of models, one per client, which take their local steps together: one operation for all of them.

A step is written for one client and batched over clients with ``torch.func.vmap``. Batches of clients have unequal
sizes, so short ones are filled up (see padding.py): tried once, against plain steps.

What a row computes depends neither on its place, nor on the other rows, nor on how many there are: this is tried, too.
So a client's result has the same bits whoever is trained beside it.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from fedfa.errors import in_a_line
from fedfa.executors.base import Trained, WorkOrder
from fedfa.executors.capture import CannotCapture, capture_times
from fedfa.executors.padding import LARGEST_ERROR, filled_up, mixed, weighted_mean, weights_of, why_never
from fedfa.executors.trainer import Trainer
from fedfa.learning.flat import Stateless
from fedfa.learning.task import Task

WIDTHS = (8, 16, 32)
"""Numbers of rows that can take a step: the smallest that holds all clients in training."""
MOST_NUMBERS = 1 << 26
"""In all models of a stack together: a large model has fewer rows."""


class CannotBatch(Exception):
    """Why a model cannot be trained in batches of clients."""


@dataclass(slots=True, eq=False)
class Work:
    """A client's training, in a row or waiting for one."""

    order: WorkOrder
    done: Callable[[Trained], None]
    """Called with the outcome."""
    remaining: int = 0
    """Steps, once it is in a row."""


class Stack:
    """Rows of models, with what each row has to do."""

    @classmethod
    def of(cls, task: Task, seed: int, prox_mu: float) -> "Stack":
        """Runs of one task and seed share a stack, as long as they share a trainer."""
        key = (cls.__name__, seed, prox_mu)
        shared = task.prepared.get(key)
        if shared is None or shared.trainer is not Trainer.of(task, seed):
            shared = task.prepared[key] = cls(task, seed, prox_mu)
        return shared

    def __init__(self, task: Task, seed: int, prox_mu: float) -> None:
        self._task, self._seed, self._prox_mu = task, seed, prox_mu
        self.trainer = Trainer.of(task, seed)
        bound = self.trainer.bound
        self._layout, self._compute = bound.layout, Stateless(bound.module)
        fitting = [width for width in WIDTHS if width * self._layout.length <= MOST_NUMBERS]
        self._widths = fitting or [max(1, MOST_NUMBERS // self._layout.length)]
        rows = self._widths[-1]
        self._resting = self._layout.resting(bound.module)
        initial = torch.from_numpy(task.initial(seed).vector)
        self._models = initial.repeat(rows, 1)
        self._memory = task.local.new_memory(self._models[:, : self._layout.num_trainable])
        self._bases = self._models.clone() if prox_mu else self._models  # read only with a proximal term
        self._losses = torch.zeros(rows)
        most, width = max(len(task.local.batch_sizes(n)) for n in task.sizes), task.local.batch_size
        width = min(width, max(task.sizes))
        self._tables = torch.zeros(rows, most * task.local.epochs + 1, width, dtype=torch.int64)
        """Positions of each row's batches; beyond the last one, and for rows that rest, nothing counts."""
        self._counts = torch.zeros(self._tables.shape[:2], dtype=torch.int64)
        self._at = torch.zeros(rows, dtype=torch.int64)
        self._place, self._column = torch.arange(rows), torch.arange(width)
        self._waiting: list[Work] = []
        self._rows: dict[int, Work] = {}
        self._captured: dict[int, Callable[[int], Any]] = {}
        try:
            with torch.random.fork_rng(devices=[]):
                self._try(initial)
        except CannotBatch:
            raise
        except Exception as error:  # tracing runs code of the user's own
            raise CannotBatch(in_a_line(error)) from error

    # Work ------------------------------------------------------------------------------------------------------------

    def submit(self, work: "Work") -> None:
        self._waiting.append(work)

    def withdraw(self, work: "Work") -> None:
        """This work is not wanted any more."""
        self._waiting = [other for other in self._waiting if other is not work]
        self._rows = {row: other for row, other in self._rows.items() if other is not work}

    def advance(self, needed: "Work") -> None:
        """Let all that fit into the rows take steps, the needed one first, until one or more are done."""
        self._waiting.sort(key=lambda work: (work is not needed, work.order.arrives, work.order.dispatch))
        free = (row for row in range(self._widths[-1]) if row not in self._rows)
        for row, work in zip(free, list(self._waiting), strict=False):
            self._rows[row] = work
            self._waiting.remove(work)
            work.remaining = self._begin(row, work.order)
        steps = min(work.remaining for work in self._rows.values())
        try:
            self._steps(max(self._rows) + 1)(steps)
        except CannotCapture:  # one client's error must not affect the others
            works, self._rows = list(self._rows.values()), {}
            for work in works:
                work.done(self._alone(work.order))
            return
        for row, work in sorted(self._rows.items()):
            work.remaining -= steps
            if not work.remaining:
                del self._rows[row]
                work.done(self._collect(row, work.order))

    def _alone(self, order: WorkOrder) -> Trained:
        try:
            self._steps(1)(self._begin(0, order))
            return self._collect(0, order)
        except CannotCapture:  # in PyTorch's own words
            return self.trainer.result(order)

    def _begin(self, row: int, order: WorkOrder) -> int:
        """Give a row a client's work; returns the number of its steps."""
        table, sizes = self._task.batch_table(self._seed, order.client, order.nth, order.epochs)
        self._load(row, torch.from_numpy(order.base), table, sizes)
        return len(sizes)

    def _collect(self, row: int, order: WorkOrder) -> Trained:
        task, steps = self._task, int(self._at[row])
        return Trained(
            params=self._models[row].numpy().copy(),
            num_examples=task.sizes[order.client],
            num_steps=task.local.effective_steps(steps, order.prox_mu),
            loss=float(self._losses[row]) / steps,
        )

    def _load(self, row: int, base: Tensor, table: Tensor, sizes: list[int]) -> None:
        self._models[row] = base
        if self._prox_mu:
            self._bases[row] = base
        counts = torch.tensor(sizes)
        self._tables[row, : len(sizes)] = filled_up(table[:, : len(self._column)], counts)
        self._counts[row] = 0
        self._counts[row, : len(sizes)] = counts
        for tensor in (*self._memory, self._losses, self._at):
            tensor[row] = 0

    # One step --------------------------------------------------------------------------------------------------------

    def _steps(self, rows: int) -> Callable[[int], Any]:
        """Does the next steps of the first so many rows, and perhaps of some more."""
        return self._captured[next(width for width in self._widths if width >= rows)]

    def _step(self, width: int) -> None:
        """The next step of the first rows, in place."""
        task, place, at = self._task, self._place[:width], self._at[:width]
        rows, weights = self._tables[place, at], weights_of(self._counts[place, at], self._column)
        inputs, targets = (
            whole.index_select(0, rows.view(-1)).view(*rows.shape, *whole.shape[1:])
            for whole in (task.inputs, task.targets)
        )
        state = [tensor[:width] for tensor in (self._models, self._bases, *self._memory)]
        self._losses[:width] += vmap(self._one)(*state, inputs, targets, weights)
        at += 1
        at.clamp_(max=self._tables.shape[1] - 1)

    def _one(self, model: Tensor, base: Tensor, *rest: Tensor) -> Tensor:
        """A client's step, in place; its loss."""
        *memory, inputs, targets, weights = rest
        trainable, local = self._layout.num_trainable, self._task.local
        params, buffers = model[:trainable], model[trainable:]

        def loss(params: Tensor) -> Tensor:
            tensors = self._layout.views(params, buffers) | self._resting
            outputs = self._compute(tensors, inputs)
            return weighted_mean(self._task.loss, outputs, targets, weights)

        gradient, value = grad_and_value(loss)(params)
        local.step(params, gradient, tuple(memory), base[:trainable], self._prox_mu)
        return value

    # Whether that is right -------------------------------------------------------------------------------------------

    def _try(self, initial: Tensor) -> None:
        """Two steps of all rows; refuse a model whose rows differ from plain steps, or depend on each other."""
        bound = self.trainer.bound
        if reason := why_never(bound.module):
            raise CannotBatch(reason)
        try:
            with warnings.catch_warnings():  # torch warns where it would loop over clients after all
                warnings.simplefilter("error", UserWarning)
                for width in self._widths:  # recording takes a step, too
                    self._captured[width] = capture_times(partial(self._step, width))
                examples = mixed(self._task.targets)
                ends = {width: self._trial(initial, examples, width) for width in self._widths}
        except CannotCapture as error:
            raise CannotBatch(f"its step cannot be traced: {error}") from error
        for width, rows in ends.items():
            if not torch.equal(rows, ends[self._widths[-1]][:width]):
                raise CannotBatch("the result of one client depends on those beside it")
        for row in {0, len(self._column) // 2 % self._widths[0], self._widths[0] - 1}:
            batches = [self._tables[row, step, : self._count(row)] for step in range(2)]
            plain = self.trainer.after(initial, batches, self._prox_mu)
            if changed := bound.changed_at_rest():
                raise CannotBatch(f"it changes {changed}, which every client would have to keep for itself")
            apart, moved = (ends[self._widths[-1]][row] - plain).norm(), (plain - initial).norm()
            if not apart <= LARGEST_ERROR * moved + 1e-6:
                raise CannotBatch(
                    f"a batched step differs from a plain one by {float(apart / moved):.1%} of its length"
                )

    def _trial(self, initial: Tensor, examples: Tensor, width: int) -> Tensor:
        """The first clients after two steps on a different number of examples each, in rows of reversed order."""
        places = range(width) if width == self._widths[-1] else reversed(range(width))
        order = dict(zip(range(width), places, strict=True))
        for client, row in order.items():
            rows = examples[(torch.arange(len(self._column)) + client) % len(examples)]
            self._load(row, initial, torch.stack([rows, rows.flip(0)]), [self._count(client)] * 2)
        self._steps(width)(2)
        return self._models[list(order.values())]

    def _count(self, client: int) -> int:
        """How many examples a client has in the trial: from all down to one."""
        return len(self._column) - client % len(self._column)
