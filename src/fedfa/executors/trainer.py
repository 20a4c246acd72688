"""Trains clients one at a time on one module. However it does so inside, a client's result has the same bits.

The plain way is PyTorch's autograd, step by step. Once plain steps have taken as long as capturing would, the step is
captured: from then on all steps of a client are one call, without Python in between (see capture.py). For each size of
a batch, captured steps are first compared with plain ones. If a single bit differs, that size stays with the plain way.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from fedfa.executors.base import Trained, WorkOrder
from fedfa.executors.capture import CannotCapture, capture_loop
from fedfa.executors.unseen import nothing_unseen
from fedfa.learning.device import CPU, Device
from fedfa.learning.local import own_seed
from fedfa.learning.private_torch import seed_cpu
from fedfa.learning.task import Task

CAPTURING_SECONDS = 0.05
"""How long plain steps may take, all in all, before the step is captured: about as long as that takes."""
FIRST_STEPS = 3
"""The first steps are slow: libraries prepare themselves."""
LONG_STEP_SECONDS = 0.01
"""A step that takes longer spends its time in arithmetic: capturing it gains nothing."""

Gradients = Callable[[Tensor], Sequence[Tensor]]


@dataclass(slots=True)
class Captured:
    """A captured step, and for which sizes of a batch it makes the same bits as a plain one."""

    loop: Callable[[Tensor, list[int]], None]
    same: dict[int, bool] = field(default_factory=dict)


class Trainer:
    """One module that lives in one flat vector, and the state of the client that is being trained on it."""

    @classmethod
    def of(cls, task: Task, seed: int, device: Device = CPU) -> "Trainer":
        """Runs of one task and seed share a trainer, and what it has captured."""
        key, module = (cls.__name__, seed, device), task.build(seed)
        shared = task.prepared.get(key)
        if shared is None or not shared.bound.rests_like(module):  # pretrained weights may have changed on disk
            shared = task.prepared[key] = cls(task, seed, device, module=module)
        return shared

    def __init__(
        self, task: Task, seed: int, device: Device = CPU, *, capture: bool = True, module: nn.Module | None = None
    ) -> None:
        self._task, self._seed, self.device = task, seed, device
        self.bound = task.flat_module((module or task.build(seed)).to(device.kind))
        self._inputs, self._targets = device.put(task.inputs), device.put(task.targets)
        self._memory = task.local.new_memory(self.bound.trainable)
        self._base: Tensor | None = None
        self._loss = torch.zeros((), device=device.kind)
        self._steps_taken, self._spent, self._fastest = 0, 0.0, float("inf")
        self._captured: dict[float, Captured | None] = {}
        """By ``prox_mu``; None where the step cannot be captured."""
        self._may_capture = capture and device.kind == "cpu"
        self._draws = True
        """Whether the model may draw random numbers while it trains."""

    def train(self, order: WorkOrder) -> Trained:
        try:
            return self._train(order, self._may_capture)
        except CannotCapture:  # something in this client's data: the plain way says it in PyTorch's own words
            return self._train(order, False)

    def result(self, order: WorkOrder) -> Trained:
        """The same; a client that raises has failed."""
        try:
            return self.train(order)
        except Exception as error:
            return Trained.failed(error)

    def after(self, base: Tensor, batches: Sequence[Tensor], prox_mu: float) -> Tensor:
        """The model after plain steps on these batches."""
        self._load(base, prox_mu)
        for batch in batches:
            self._step(batch, prox_mu, self.bound.gradients)
        return self.bound.collect()

    def _train(self, order: WorkOrder, capture: bool) -> Trained:
        task, bound = self._task, self.bound
        self._load(torch.as_tensor(order.base), order.prox_mu)
        table, sizes = task.batch_table(self._seed, order.client, order.nth, order.epochs)
        with self._drawing(order):
            self._steps(self.device.put(table), sizes, order.prox_mu, capture)
        model = bound.collect()
        return Trained(
            params=model.numpy() if self.device.kind == "cpu" else model,
            num_examples=task.sizes[order.client],
            num_steps=task.local.effective_steps(len(sizes), order.prox_mu),
            loss=float(self._loss) / len(sizes),
        )

    def _load(self, base: Tensor, prox_mu: float) -> None:
        """Reset everything to the start of a client's work."""
        bound = self.bound
        bound.load(base)
        if prox_mu:
            self._base = torch.empty_like(bound.trainable) if self._base is None else self._base
            self._base.copy_(bound.trainable)
        for tensor in (*self._memory, self._loss):
            tensor.zero_()

    @contextmanager
    def _forked(self, order: WorkOrder) -> Any:
        on_cpu, key = self.device.kind == "cpu", own_seed(self._seed, order.client, order.nth)
        with torch.random.fork_rng(devices=[] if on_cpu else None):
            (seed_cpu if on_cpu else torch.manual_seed)(key)
            yield

    def _drawing(self, order: WorkOrder) -> AbstractContextManager[Any]:
        """Random numbers of this client's own, such as dropout's."""
        return self._forked(order) if self._draws else nullcontext()

    def _steps(self, table: Tensor, sizes: list[int], prox_mu: float, capture: bool) -> None:
        """A local step for each row of the table."""
        for number, size in enumerate(sizes):
            captured = self._capturing(table[number:], sizes[number:], prox_mu) if capture else None
            if captured is not None:
                captured.loop(table[number:], sizes[number:])
                return
            began = time.perf_counter()
            self._step(table[number, :size], prox_mu, self.bound.gradients)
            took = time.perf_counter() - began
            self._steps_taken, self._spent = self._steps_taken + 1, self._spent + took
            self._fastest = min(self._fastest, took)

    def _step(self, rows: Tensor, prox_mu: float, gradients_of: Gradients) -> None:
        """One local step on the examples at these positions, in place."""
        bound, local = self.bound, self._task.local
        inputs = bound.layout.laid_out(self._inputs.index_select(0, rows))
        with torch.enable_grad():
            with self.device.computing():
                loss = self._task.loss(bound.module(inputs), self._targets.index_select(0, rows))
            gradients = gradients_of(loss)
        with torch.no_grad():
            if local.plain and not prox_mu:
                for leaf, gradient in zip(bound.leaves, gradients, strict=True):
                    leaf.add_(gradient, alpha=-local.lr)
            else:
                base = bound.trainable if self._base is None else self._base
                local.step(bound.trainable, bound.layout.joined(gradients), self._memory, base, prox_mu)
            self._loss.add_(loss.detach())

    # Capturing -------------------------------------------------------------------------------------------------------

    def _capturing(self, table: Tensor, sizes: list[int], prox_mu: float) -> Captured | None:
        """The captured step, if there is one that may do all of these steps."""
        if self._spent < CAPTURING_SECONDS or self._steps_taken < FIRST_STEPS:
            return None
        if prox_mu not in self._captured:
            self._captured[prox_mu] = self._capture(prox_mu)
        captured = self._captured[prox_mu]
        if captured is None:
            return None
        for size in set(sizes) - captured.same.keys():
            rows = [row for row, its_size in zip(table, sizes, strict=True) if its_size == size]
            captured.same[size] = self._makes_same_bits(captured, torch.stack([rows[0], rows[-1]]), size, prox_mu)
        return captured if all(captured.same[size] for size in set(sizes)) else None

    def _capture(self, prox_mu: float) -> Captured | None:
        if self._fastest > LONG_STEP_SECONDS or self.bound.replaced():
            return None
        possible = {size for n in set(self._task.sizes) for size in self._task.local.batch_sizes(n)}
        usual = sorted(possible - {1}) or [1]  # with one example, operations may take a way of their own
        with self._undone():
            draws = torch.get_rng_state()
            try:
                with nothing_unseen(self.bound.module):
                    loop = capture_loop(
                        lambda rows: self._step(rows, prox_mu, self._gradients_alone),
                        [torch.arange(size) for size in sorted({usual[0], usual[-1]})],
                    )
            except CannotCapture:
                return None
            if self.bound.replaced():  # a captured step would not replace it
                return None
            self._draws = self._draws and not torch.equal(draws, torch.get_rng_state())
            return Captured(loop)

    def _gradients_alone(self, loss: Tensor) -> list[Tensor]:
        """The gradients without ``backward``, which copies them while they are recorded."""
        found = torch.autograd.grad(loss, self.bound.leaves, allow_unused=True)
        return [
            torch.zeros_like(leaf) if gradient is None else gradient
            for gradient, leaf in zip(found, self.bound.leaves, strict=True)
        ]

    def _makes_same_bits(self, captured: Captured, rows: Tensor, size: int, prox_mu: float) -> bool:
        """Whether two steps come out the same both ways, whatever they change."""
        ends: list[list[Tensor]] = []
        for plain in (True, False):
            with self._undone():
                if plain:
                    for row in rows:
                        self._step(row[:size], prox_mu, self.bound.gradients)
                else:
                    try:
                        captured.loop(rows, [size] * len(rows))
                    except CannotCapture:  # an operation that wants another size
                        return False
                ends.append([tensor.clone() for tensor in self._changing()])
        return all(torch.equal(one, other) for one, other in zip(*ends, strict=True))

    def _changing(self) -> list[Tensor]:
        return [*self.bound.tensors, *self._memory, self._loss]

    @contextmanager
    def _undone(self) -> Any:
        """Whatever happens within is undone: values, and the state of the generator."""
        before, state = [tensor.clone() for tensor in self._changing()], torch.get_rng_state()
        try:
            yield
        finally:
            self.bound.put_back()
            for tensor, value in zip(self._changing(), before, strict=True):
                tensor.copy_(value)
            torch.set_rng_state(state)
