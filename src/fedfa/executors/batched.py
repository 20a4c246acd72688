"""Trains all pending work together: one stack of models, one operation for all clients.

A local step is written for one client, batched over clients with ``torch.func.vmap`` and captured without Python
in between (see capture.py). Clients of unequal size train side by side: at every step, clients whose next batch has
the same size form groups. Group sizes are powers of two, so that few shapes need capturing.
"""

import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap
from torch.utils.flop_counter import FlopCounterMode

from fedfa.errors import in_a_line
from fedfa.executors.base import Trained, WorkOrder
from fedfa.executors.capture import CannotCapture, capture
from fedfa.executors.inline import Inline
from fedfa.learning.flat import Stateless, homes
from fedfa.learning.private_torch import Dropout, NormWithStatistics
from fedfa.learning.task import Task

T = TypeVar("T")

CAPTURE_AFTER = 64
"""Unusual batch sizes that occur less often than this run uncaptured: tracing takes as long as some hundred steps."""
LARGEST_GROUP = 64
LARGEST_ERROR = 1e-3
"""Largest distance between a batched step and a plain one, in lengths of the step: rounding only."""


class CannotBatch(Exception):
    """Why a model cannot be trained in batches of clients."""


class Batched(Inline):
    """Computes everything that is pending as soon as one result is asked for."""

    name = "batched"

    def __init__(self, task: Task, seed: int) -> None:
        super().__init__(task, seed)
        self._task, self._seed = task, seed
        self._bound = self._trainer.bound
        self._bound.load(torch.from_numpy(task.initial(seed).vector))
        self._module, self._layout = self._bound.module, self._bound.layout
        self._compute = Stateless(self._module)
        self._resting = self._layout.resting(self._module)
        self._uses: Counter[Any] = Counter()
        sizes = Counter(size for n in set(task.sizes) for size in task.local.batch_sizes(n))
        self._usual_size = sizes.most_common(1)[0][0]
        self._captured: dict[Any, Callable[..., Tensor]] = task.prepared.setdefault((self.name, seed), {})
        if not self._captured:
            try:
                with torch.random.fork_rng(devices=[]):
                    self._try()
            except CannotBatch:
                raise
            except Exception as error:  # tracing runs code of the user's own
                raise CannotBatch(in_a_line(error)) from error

    def result(self, dispatch: int) -> Trained:
        if dispatch not in self._finished:
            self._train_pending()
        del self._orders[dispatch]
        return self._finished.pop(dispatch)

    def _train_pending(self) -> None:
        """All pending work, in groups of a power of two, similar sizes together."""
        pending: dict[float, list[WorkOrder]] = defaultdict(list)
        for order in self._orders.values():
            if order.dispatch not in self._finished:
                pending[order.prox_mu].append(order)
        for prox_mu, orders in pending.items():
            orders.sort(key=lambda order: (self._task.sizes[order.client], order.epochs))
            for group in _powers_of_two(orders):
                try:
                    results = self._train_together(group, prox_mu)
                except Exception:  # one client's error must not affect the others: find it one by one
                    results = [self._train_alone(order) for order in group]
                for order, trained in zip(group, results, strict=True):
                    self._finished[order.dispatch] = trained

    def _train_alone(self, order: WorkOrder) -> Trained:
        try:
            return self.train(order)
        except Exception as error:
            return Trained.failed(error)

    def _train_together(self, orders: list[WorkOrder], prox_mu: float) -> list[Trained]:
        task, local = self._task, self._task.local
        models = torch.stack([torch.from_numpy(order.base) for order in orders])
        bases = models.clone() if prox_mu else models  # read only with a proximal term
        memory = local.new_memory(models[:, : self._layout.num_trainable])
        plans = [task.batches(self._seed, order.client, order.nth, order.epochs) for order in orders]
        losses = torch.zeros(len(orders))
        for number in range(max(map(len, plans))):
            for rows, batch in _same_sizes(plans, number):
                inputs, targets = task.inputs[batch], task.targets[batch]
                if len(rows) == len(orders):
                    losses += self._step([models, bases, *memory], inputs, targets, prox_mu)
                    continue
                state = [tensor[rows] for tensor in (models, bases, *memory)]
                losses[rows] += self._step(state, inputs, targets, prox_mu)
                for tensor, part in zip((models, *memory), (state[0], *state[2:]), strict=True):
                    tensor[rows] = part
        return [
            Trained(
                params=model.numpy().copy(),
                num_examples=task.sizes[order.client],
                num_steps=local.effective_steps(len(plan), order.prox_mu),
                loss=float(loss) / len(plan),
            )
            for order, plan, model, loss in zip(orders, plans, models, losses, strict=True)
        ]

    def _step(self, state: list[Tensor], inputs: Tensor, targets: Tensor, prox_mu: float) -> Tensor:
        """One local step of some clients, in place; their losses."""
        shape = (tuple(inputs.shape[:2]), prox_mu)
        self._uses[shape] += 1  # counted from 0 in each run: its results must not depend on earlier runs
        if inputs.shape[1] != self._usual_size and self._uses[shape] < CAPTURE_AFTER:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "There is a performance drop")  # once, not at every step
                return self._vectorised(prox_mu)(*state, inputs, targets)
        captured = self._captured.get(shape)
        if captured is None:
            examples = [tensor.clone() for tensor in state]
            captured = self._captured[shape] = capture(self._vectorised(prox_mu), *examples, inputs, targets)
        return captured(*state, inputs, targets)

    def _vectorised(self, prox_mu: float) -> Callable[..., Tensor]:
        """The step of one client, for a stack of them."""
        task, layout = self._task, self._layout
        trainable, compute = layout.num_trainable, self._compute
        buffer_names = layout.names[layout.num_parameter_tensors :]

        def loss(params: Tensor, buffers: Tensor, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
            # BatchNorm writes its statistics in place, and loses them under vmap unless each tensor is its own
            views = layout.views(params, buffers)
            statistics = {name: views[name].clone(memory_format=torch.contiguous_format) for name in buffer_names}
            resting = {name: value.clone() for name, value in self._resting.items()}
            outputs = compute(views | statistics | resting, inputs)
            after = torch.cat([value.reshape(-1) for value in statistics.values()]) if statistics else buffers
            return task.loss(outputs, targets), after

        def step(model: Tensor, base: Tensor, *rest: Tensor) -> Tensor:
            *memory, inputs, targets = rest
            params, buffers = model[:trainable], model[trainable:]
            gradient, (value, after) = grad_and_value(loss, has_aux=True)(params, buffers, inputs, targets)
            task.local.step(params, gradient, tuple(memory), base[:trainable], prox_mu)
            if len(after):
                buffers.copy_(after)
            return value

        return vmap(step)

    def _try(self) -> None:
        """Try one step both ways; refuse a model that cannot be captured, or whose result differs."""
        task, layout = self._task, self._layout
        if any(isinstance(m, Dropout) and m.p > 0 for m in self._module.modules()):  # pyright: ignore[reportOperatorIssue]
            raise CannotBatch("it draws random numbers: dropout")
        initial = self._bound.collect()
        memory = task.local.new_memory(initial[: layout.num_trainable])
        usual = next(c for c, n in enumerate(task.sizes) if task.local.batch_sizes(n)[0] == self._usual_size)
        batch = task.batches(self._seed, usual, 0, 1)[0].repeat(2, 1)
        inputs, targets = task.inputs[batch], task.targets[batch]
        state = [tensor.repeat(2, 1) for tensor in (initial, initial, *memory)]
        try:
            with warnings.catch_warnings():  # torch warns where it would loop over clients after all
                warnings.simplefilter("error", UserWarning)
                captured = capture(self._vectorised(0.0), *[tensor.clone() for tensor in state], inputs, targets)
        except CannotCapture as error:
            raise CannotBatch(f"its step cannot be traced: {error}") from error
        captured(*state, inputs, targets)
        bound = self._bound
        bound.load(initial)
        gradient = layout.joined(bound.gradients(task.loss(bound.module(inputs[0]), targets[0])))
        with torch.no_grad():
            task.local.step(bound.trainable, gradient, memory, initial[: layout.num_trainable], 0.0)
        if counted := self._changed_at_rest():
            raise CannotBatch(f"it changes {counted}, which every client would have to keep for itself")
        plain = bound.collect()
        apart, moved = (state[0][1] - plain).norm(), (plain - initial).norm()
        if not apart <= LARGEST_ERROR * moved + 1e-6:
            raise CannotBatch(f"a batched step differs from a plain one by {float(apart / moved):.1%} of its length")

    def _changed_at_rest(self) -> str:
        """A buffer that is not sent and was written to; empty if there is none, or if it is never read."""
        names = homes(self._module)
        unread = set()
        for owner, part in self._module.named_modules():
            if isinstance(part, NormWithStatistics) and part.momentum is not None:
                unread.add(f"{owner}.num_batches_tracked".lstrip("."))
        for name, buffer in self._module.named_buffers():
            if (
                name in self._resting
                and not torch.equal(buffer, self._resting[name])
                and not unread.issuperset(names[name])
            ):
                return name
        return ""


def _powers_of_two(items: list[T]) -> Iterator[list[T]]:
    """Consecutive groups whose sizes are powers of two, so that few shapes occur."""
    while items:
        count = min(1 << (len(items).bit_length() - 1), LARGEST_GROUP)
        group, items = items[:count], items[count:]
        yield group


def _same_sizes(plans: list[list[Tensor]], number: int) -> Iterator[tuple[list[int], Tensor]]:
    """Clients whose batch of this number has the same size, with their batches."""
    by_size: dict[int, list[int]] = defaultdict(list)
    for row, plan in enumerate(plans):
        if number < len(plan):
            by_size[len(plan[number])].append(row)
    for rows in by_size.values():
        for group in _powers_of_two(rows):
            yield group, torch.stack([plans[row][number] for row in group])


def flops_per_step(task: Task, seed: int) -> float:
    """Floating-point operations of one client's largest local step: forward, and twice that backward."""
    module = task.build(seed).eval()  # so that nothing is drawn
    batch = task.batches(seed, 0, 0, 1)[0]
    counter = FlopCounterMode(display=False)
    try:
        with counter, torch.no_grad(), torch.random.fork_rng(devices=[]):
            module(task.inputs[batch])
    except Exception as error:  # code of the user's own
        raise CannotBatch(f"its arithmetic cannot be counted: {in_a_line(error)}") from error
    return 3.0 * counter.get_total_flops()
