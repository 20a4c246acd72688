"""A stack of models, one per client, which take their local steps together: one operation for all of them.

A step is written for one client and batched over clients with ``torch.func.vmap``. Batches of clients have unequal
sizes, so short ones are filled up (see padding.py): tried once, against plain steps.

What a row computes depends neither on its place, nor on the other rows, nor on how many there are: this is tried, too.
So a client's result has the same bits whoever is trained beside it.
"""

import warnings
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from heapq import heapify, heappop, heappush
from typing import Any

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from fedfa.errors import in_a_line
from fedfa.executors.base import Trained, WorkOrder
from fedfa.executors.capture import CannotCapture, capture_times
from fedfa.executors.compiled import compile_times
from fedfa.executors.padding import LARGEST_ERROR, filled_up, mixed, weighted_mean, weights_of, why_never
from fedfa.executors.trainer import Trainer
from fedfa.executors.unseen import structure
from fedfa.learning.flat import Stateless
from fedfa.learning.probe import say_once
from fedfa.learning.task import Task

WIDTHS = (8, 16, 32)
"""Numbers of rows that can take a step: the smallest that holds all clients in training."""
MOST_NUMBERS = 1 << 26
"""In all models of a stack together: a large model has fewer rows."""
MOST_BYTES = 1 << 30
"""Of the examples of several tasks that share a stack, which it copies."""


class CannotBatch(Exception):
    """Why a model cannot be trained in batches of clients."""


@dataclass(eq=False)
class Member:
    """A task with a seed, whose clients train in a stack."""

    task: Task
    seed: int
    trainer: Trainer
    start: int = 0
    """Position of its first example among those of all members."""
    users: int = 0
    """Executors that train its clients."""

    @cached_property
    def initial(self) -> Tensor:
        return torch.from_numpy(self.task.initial(self.seed).vector)

    @cached_property
    def examples(self) -> Tensor:
        """Its examples in the order in which they are tried."""
        return mixed(self.task.targets)


@dataclass(slots=True, eq=False)
class Work:
    """A client's training, in a row or waiting for one."""

    order: WorkOrder
    member: Member
    done: Callable[[Trained], None]
    """Called with the outcome."""
    remaining: int = 0
    """Steps, once it is in a row."""


class Stacks:
    """All stacks of one process. Tasks that have this object in common share a stack where they are alike."""

    def __init__(self) -> None:
        self.all: list[Stack] = []

    @classmethod
    def of(cls, task: Task) -> "Stacks":
        return task.prepared.setdefault(cls.__name__, cls())

    def share(self, task: Task) -> None:
        """Let this task use these stacks; to be called before its first run."""
        task.prepared[type(self).__name__] = self

    def join(self, task: Task, seed: int, prox_mu: float, compile: bool = False) -> tuple["Stack", Member]:
        """A stack for clients of this task; CannotBatch says why there is none."""
        trainer = Trainer.of(task, seed)
        for stack in self.all:
            if stack.compile == compile and (member := stack.join(task, seed, trainer, prox_mu)) is not None:
                return stack, member
        self.all.append(stack := Stack(task, seed, prox_mu, compile))
        return stack, stack.founder


class Stack:
    """Rows of models, with what each row has to do."""

    def __init__(self, task: Task, seed: int, prox_mu: float, compile: bool = False) -> None:
        self.compile, self.compiled = compile, False
        self.founder = Member(task, seed, Trainer.of(task, seed), users=1)
        self.members = [self.founder]
        self._task, self.prox_mu = task, prox_mu
        bound = self.founder.trainer.bound
        self._layout, self._compute = bound.layout, Stateless(bound.module)
        fitting = [width for width in WIDTHS if width * self._layout.length <= MOST_NUMBERS]
        self._widths = fitting or [max(1, MOST_NUMBERS // self._layout.length)]
        rows = self._widths[-1]
        self._resting = self._layout.resting(bound.module)
        self._models = self.founder.initial.repeat(rows, 1)
        self._memory = task.local.new_memory(self._models[:, : self._layout.num_trainable])
        self._bases = self._models.clone() if prox_mu else self._models  # read only with a proximal term
        self._rates, self._losses = torch.zeros(rows, 1), torch.zeros(rows)
        most = 1 << (_most_steps(task)).bit_length()  # some more, for members with larger clients
        self._tables = torch.zeros(rows, most, _columns(task), dtype=torch.int64)
        """Positions of each row's batches; beyond the last one nothing counts."""
        self._counts = torch.zeros(self._tables.shape[:2], dtype=torch.int64)
        self._at = torch.zeros(rows, dtype=torch.int64)
        self._place, self._column = torch.arange(rows), torch.arange(_columns(task))
        self._inputs, self._targets = task.inputs, task.targets
        self._waiting: list[tuple[float, int, Work]] = []
        self._submitted = 0
        self._rows: dict[int, Work] = {}
        self._captured: dict[int, Callable[..., Any]] = {}
        try:
            with torch.random.fork_rng(devices=[]):
                self._try()
                if compile:
                    self._try_compiled()
        except CannotBatch:
            raise
        except Exception as error:  # tracing runs code of the user's own
            raise CannotBatch(in_a_line(error)) from error

    # Members ---------------------------------------------------------------------------------------------------------

    def join(self, task: Task, seed: int, trainer: Trainer, prox_mu: float) -> Member | None:
        """Train clients of this task, too; None if their steps would be others than those of the present members."""
        for member in self.members:
            if member.trainer is trainer and prox_mu == self.prox_mu:
                member.users += 1
                return member
        if prox_mu != self.prox_mu or not self._alike(task, trainer):
            return None
        before, member = self.members, Member(task, seed, trainer, users=1)
        self._gather([one for one in before if one.users] + [member])
        try:
            with self._undone(), torch.random.fork_rng(devices=[]):
                self._compare(member, self._trial(member, self._widths[-1]))
        except (CannotBatch, CannotCapture):
            self._gather(before)
            return None
        return member

    @staticmethod
    def leave(member: Member) -> None:
        """An executor has no more work of this member; its examples stay until others need the place."""
        member.users -= 1

    def _alike(self, task: Task, trainer: Trainer) -> bool:
        """Whether it is the same model on the same kind of data, trained in the same way but for the learning rate."""
        ours, bound = self.founder.trainer.bound, trainer.bound
        examples = [(part.inputs, part.targets) for part in (*(one.task for one in self.members if one.users), task)]
        return (
            task.loss is self._task.loss
            and replace(task.local, lr=1.0) == replace(self._task.local, lr=1.0)
            and bound.layout == self._layout
            and structure(bound.module) == structure(ours.module)
            and bound.rests_like(ours.module)
            and _columns(task) == len(self._column)
            and _most_steps(task) < self._tables.shape[1]
            and len({(*map(_form, pair),) for pair in (*examples, (self._inputs, self._targets))}) == 1
            and sum(part.nbytes for pair in examples for part in pair) <= MOST_BYTES
        )

    def _gather(self, members: list[Member]) -> None:
        """Put the examples of these members behind each other."""
        self._tables[[row for row in range(len(self._place)) if row not in self._rows]] = 0
        start = 0
        for member in members:
            for row, work in self._rows.items():
                if work.member is member:
                    self._tables[row] += start - member.start
            member.start = start
            start += len(member.task.inputs)
        tasks, self.members = [member.task for member in members], members
        self._inputs = tasks[0].inputs if len(tasks) == 1 else torch.cat([task.inputs for task in tasks])
        self._targets = tasks[0].targets if len(tasks) == 1 else torch.cat([task.targets for task in tasks])

    # Work ------------------------------------------------------------------------------------------------------------

    def submit(self, work: Work) -> None:
        self._submitted += 1
        heappush(self._waiting, (work.order.arrives, self._submitted, work))

    def withdraw(self, work: Work) -> None:
        """This work is not wanted any more."""
        self._waiting = [entry for entry in self._waiting if entry[-1] is not work]
        heapify(self._waiting)
        self._rows = {row: other for row, other in self._rows.items() if other is not work}

    def advance(self) -> None:
        """Let all that fit into the rows take steps, those that arrive first, until one or more are done."""
        for row in range(self._widths[-1]):
            if self._waiting and row not in self._rows:
                *_, work = heappop(self._waiting)
                self._rows[row] = work
                work.remaining = self._begin(row, work)
        steps = min(work.remaining for work in self._rows.values())
        try:
            self._steps(max(self._rows) + 1, steps)
        except CannotCapture:  # one client's error must not affect the others
            works, self._rows = list(self._rows.values()), {}
            for work in works:
                work.done(self._alone(work))
            return
        for row, work in sorted(self._rows.items()):
            work.remaining -= steps
            if not work.remaining:
                del self._rows[row]
                work.done(self._collect(row, work))

    def _alone(self, work: Work) -> Trained:
        try:
            steps = [self._begin(row, work) for row in range(self._widths[0])]  # no row has another client's data
            self._steps(1, steps[0])
            return self._collect(0, work)
        except CannotCapture:  # in PyTorch's own words
            return work.member.trainer.result(work.order)

    def _begin(self, row: int, work: Work) -> int:
        """Give a row a client's work; returns the number of its steps."""
        member, order = work.member, work.order
        table, sizes = member.task.batch_table(member.seed, order.client, order.nth, order.epochs)
        self._load(row, member, torch.from_numpy(order.base), table, sizes)
        return len(sizes)

    def _collect(self, row: int, work: Work) -> Trained:
        task, order, steps = work.member.task, work.order, int(self._at[row])
        return Trained(
            params=self._models[row].numpy().copy(),
            num_examples=task.sizes[order.client],
            num_steps=task.local.effective_steps(steps, order.prox_mu),
            loss=float(self._losses[row]) / steps,
        )

    def _load(self, row: int, member: Member, base: Tensor, table: Tensor, sizes: list[int]) -> None:
        self._models[row] = base
        if self.prox_mu:
            self._bases[row] = base
        steps, counts = len(sizes), torch.tensor(sizes)
        tables, own_counts = self._tables.numpy()[row], self._counts.numpy()[row]
        tables[:steps] = filled_up(table[:, : len(self._column)], counts).numpy()
        tables[:steps] += member.start
        tables[steps:] = tables[0, 0]  # read while the row rests, though it does not count
        own_counts[:steps], own_counts[steps:] = sizes, 0
        for tensor in (*self._memory, self._losses, self._at):
            tensor[row] = 0
        self._rates[row] = member.task.local.lr

    # One step --------------------------------------------------------------------------------------------------------

    def _steps(self, rows: int, times: int) -> None:
        """The next steps of the first so many rows, and perhaps of some more."""
        captured = self._captured[next(width for width in self._widths if width >= rows)]
        captured(times, self._inputs, self._targets)

    def _step(self, width: int, all_inputs: Tensor, all_targets: Tensor) -> None:
        """The next step of the first rows, in place."""
        place, at = self._place[:width], self._at[:width]
        rows, weights = self._tables[place, at], weights_of(self._counts[place, at], self._column)
        inputs, targets = (
            whole.index_select(0, rows.view(-1)).view(*rows.shape, *whole.shape[1:])
            for whole in (all_inputs, all_targets)
        )
        state = [tensor[:width] for tensor in (self._models, self._bases, self._rates, *self._memory)]
        self._losses[:width] += vmap(self._one)(*state, inputs, targets, weights)
        at += 1
        at.clamp_(max=self._tables.shape[1] - 1)

    def _one(self, model: Tensor, base: Tensor, rate: Tensor, *rest: Tensor) -> Tensor:
        """A client's step, in place; its loss."""
        *memory, inputs, targets, weights = rest
        trainable, local = self._layout.num_trainable, self._task.local
        params, buffers = model[:trainable], model[trainable:]

        def loss(params: Tensor) -> Tensor:
            tensors = self._layout.views(params, buffers) | self._resting
            outputs = self._compute(tensors, inputs)
            return weighted_mean(self._task.loss, outputs, targets, weights)

        gradient, value = grad_and_value(loss)(params)
        local.step(params, gradient, tuple(memory), base[:trainable], self.prox_mu, rate)
        return value

    # Whether that is right -------------------------------------------------------------------------------------------

    def _try(self) -> None:
        """Two steps of all rows; refuse a model whose rows differ from plain steps, or depend on each other."""
        bound = self.founder.trainer.bound
        if reason := why_never(bound.module):
            raise CannotBatch(reason)
        try:
            with warnings.catch_warnings():  # torch warns where it would loop over clients after all
                warnings.simplefilter("error", UserWarning)
                for width in self._widths:  # recording takes a step, too
                    self._captured[width] = capture_times(partial(self._step, width), self._inputs, self._targets)
                self._check()
        except CannotCapture as error:
            raise CannotBatch(f"its step cannot be traced: {error}") from error

    def _try_compiled(self) -> None:
        """Compiled steps instead, if they are right, too."""
        captured, examples = self._captured, (self._inputs, self._targets)
        try:
            self._captured = {width: compile_times(partial(self._step, width), *examples) for width in self._widths}
            self._check()
            self.compiled = True
        except (CannotBatch, CannotCapture) as error:
            say_once(f"Steps are not compiled, only captured: {error}")
            self._captured = captured

    def _check(self) -> None:
        """Refuse rows that depend on their number, or differ from plain steps."""
        ends = {width: self._trial(self.founder, width) for width in self._widths}
        for width, rows in ends.items():
            if not torch.equal(rows, ends[self._widths[-1]][:width]):
                raise CannotBatch("the result of one client depends on those beside it")
        self._compare(self.founder, ends[self._widths[-1]])

    def _compare(self, member: Member, ends: Tensor) -> None:
        """Refuse a member whose first rows differ from plain steps."""
        bound, initial = member.trainer.bound, member.initial
        for row in {0, len(self._column) // 2 % self._widths[0], self._widths[0] - 1}:
            batches = [rows[: self._count(row)] for rows in self._trial_rows(member, row)]
            plain = member.trainer.after(initial, batches, self.prox_mu)
            if changed := bound.changed_at_rest():
                raise CannotBatch(f"it changes {changed}, which every client would have to keep for itself")
            apart, moved = (ends[row] - plain).norm(), (plain - initial).norm()
            if not apart <= LARGEST_ERROR * moved + 1e-6:
                raise CannotBatch(
                    f"a batched step differs from a plain one by {float(apart / moved):.1%} of its length"
                )

    def _trial(self, member: Member, width: int) -> Tensor:
        """The first clients after two steps on a different number of examples each, in rows of reversed order."""
        places = range(width) if width == self._widths[-1] else reversed(range(width))
        order, initial = dict(zip(range(width), places, strict=True)), member.initial
        for client, row in order.items():
            self._load(row, member, initial, self._trial_rows(member, client), [self._count(client)] * 2)
        self._steps(width, 2)
        return self._models[list(order.values())]

    def _trial_rows(self, member: Member, client: int) -> Tensor:
        rows = member.examples[(torch.arange(len(self._column)) + client) % len(member.examples)]
        return torch.stack([rows, rows.flip(0)])

    def _count(self, client: int) -> int:
        """How many examples a client has in the trial: from all down to one."""
        return len(self._column) - client % len(self._column)

    @contextmanager
    def _undone(self) -> Any:
        """Whatever the rows do within is undone."""
        changing = [
            self._models, self._bases, *self._memory, self._rates, self._losses, self._tables, self._counts, self._at,
        ]  # fmt: skip
        before = [tensor.clone() for tensor in changing]
        try:
            yield
        finally:
            for tensor, values in zip(changing, before, strict=True):
                tensor.copy_(values)


def _most_steps(task: Task) -> int:
    """The most local steps of a client."""
    return task.local.epochs * max(len(task.local.batch_sizes(size)) for size in task.sizes)


def _columns(task: Task) -> int:
    """The most examples of a batch."""
    return min(task.local.batch_size, max(task.sizes))


def _form(examples: Tensor) -> tuple[Any, ...]:
    """What all examples of a stack have in common."""
    return examples.shape[1:], examples.dtype
