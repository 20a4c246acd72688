"""A lane: a client in flight on a GPU, and what all lanes of a task share.

A lane is a stream, a flat model, a table of batches, and captured graphs. A graph does one local step on batches of one
size: take the next row of the table, look up its examples, forward, backward, optimizer step, advance the row. Another
graph does a few such steps. A client's training is a sequence of launches of these graphs.

Capturing takes as long as some steps, and every lane has graphs of its own. So batches of unequal size are filled up to
few sizes, mostly one, where that changes no result (see padding.py).
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn

from fedfa.executors.base import WorkOrder
from fedfa.executors.bf16 import Descent, only_cast
from fedfa.executors.capture import CannotCapture
from fedfa.executors.padding import few_shapes, filled_up, mixed, weighted_mean, weights_of, why_never, why_not
from fedfa.learning.device import Device
from fedfa.learning.flat import Stateless
from fedfa.learning.private_torch import NormWithStatistics, descend
from fedfa.learning.probe import say_once
from fedfa.learning.task import Task

CHUNK = 4
"""Steps per launch, in one graph if their batches have the same size; a lane has two such chunks queued."""
WARM_UP = 3
"""Steps before a capture, in which libraries choose their algorithms and workspaces."""

Step = Callable[[], None]


class Shared:
    """What all lanes of a task share: the examples, the model as a function, and the loss of a batch."""

    def __init__(self, task: Task, seed: int, device: Device, compile: bool = False) -> None:
        self.device = device
        module = _uncounted(task.build(seed))
        self.layout = task.layout(module)
        self.initial = device.put(self.layout.pack(module))
        self.module = module.to(device.kind)
        self.compute = Stateless(self.module)
        self.resting = self.layout.resting(self.module)
        self.reduced: set[str] = set()
        self.descent: Descent | None = None
        self.images = self.layout.channels_last and task.inputs.dim() == 4
        inputs = task.inputs.permute(0, 2, 3, 1) if self.images else task.inputs
        self.inputs, self.targets = device.put(inputs.contiguous()), device.put(task.targets)
        self.local, self.loss = task.local, task.loss
        self.rows = task.local.epochs * max(len(task.local.batch_sizes(size)) for size in task.sizes)
        self._sizes = Counter(size for n in task.sizes for size in task.local.batch_sizes(n))
        self.width = max(self._sizes)
        self.fast_loss = torch.compile(self._loss_of, dynamic=False) if compile else self._loss_of
        self.keep_sizes()
        if len(self._sizes) > 1:
            with self.undrawn():
                why = why_never(module) or why_not(mixed(task.targets)[: self.width], self._effects)
            if why:
                say_once(f"Batches of this model keep their sizes ({why}): lanes capture a step for each.")
            else:
                self._take(few_shapes(self._sizes))

    @property
    def fills_up(self) -> bool:
        """Whether short batches are filled up."""
        return any(size != shape for size, shape in self.shapes.items())

    def keep_sizes(self) -> None:
        """Fill no batch up."""
        self._take({size: size for size in self._sizes})

    def examples(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        inputs = self.inputs.index_select(0, rows)
        return inputs.permute(0, 3, 1, 2) if self.images else inputs, self.targets.index_select(0, rows)

    def tables(self, table: Tensor, sizes: list[int]) -> tuple[Tensor, ...]:
        """The rows of a table as a lane keeps them; if they are filled up, with the weights of the examples."""
        table, counts = table[:, : self.width], torch.tensor(sizes)
        if not self.fills_up:
            return (table,)
        return filled_up(table, counts), weights_of(counts, torch.arange(self.width))

    def plain_loss(
        self, names: list[str], tensors: list[Tensor], inputs: Tensor, targets: Tensor, *_: Tensor
    ) -> Tensor:
        """The loss of a batch that is not filled up, in PyTorch's own words."""
        return self._loss_of(names, tensors, inputs, targets)

    def loss_for(self, shape: int) -> Callable[..., Tensor]:
        """The loss of batches of this shape; compiled for the usual one, if it is asked for."""
        return self.fast_loss if shape == self._usual else self._loss_of

    def keep_copies(self, batch: Tensor) -> None:
        """Keep bf16 copies of the weights that are used in no other way: per lane, or once for frozen ones."""
        inputs, _ = self.examples(batch)
        parameters = dict(self.module.named_parameters())
        with self.device.computing(), self.undrawn():
            self.reduced = only_cast(lambda: self.module(inputs), parameters)
        for name in self.reduced - set(self.layout.names):
            parameters[name].data = parameters[name].data.to(torch.bfloat16)
        self.reduced &= set(self.layout.names)
        if self.reduced and self.device.kind != "cpu" and Descent.possible():
            self.descent = Descent(self.layout, self.reduced, self.device.kind)

    def undrawn(self) -> AbstractContextManager[None]:
        """Random numbers that are drawn within leave no trace."""
        return torch.random.fork_rng(devices=[] if self.device.kind == "cpu" else None)

    def _take(self, shapes: dict[int, int]) -> None:
        """Fill batches up to these shapes."""
        self.shapes = shapes
        numbers = Counter[int]()
        for size, number in self._sizes.items():
            numbers[shapes[size]] += number
        self._usual = numbers.most_common(1)[0][0]

    def _loss_of(
        self, names: list[str], tensors: list[Tensor], inputs: Tensor, targets: Tensor, *weights: Tensor
    ) -> Tensor:
        with self.device.computing():
            return self._loss(self.compute(dict(zip(names, tensors, strict=True)), inputs), targets, *weights)

    def _loss(self, outputs: Any, targets: Tensor, *weights: Tensor) -> Tensor:
        if not weights:
            return self.loss(outputs, targets)
        return weighted_mean(self.loss, outputs.float(), targets, *weights)  # autocast does not do that within vmap

    def _effects(self, rows: Tensor, *weights: Tensor) -> list[Tensor]:
        """Loss, gradient and buffers after a step on these examples, in float32 whatever the precision is."""
        params, buffers = (part.clone() for part in self.layout.parts(self.initial))
        params.requires_grad_()
        tensors = self.layout.views(params, buffers) | {name: value.clone() for name, value in self.resting.items()}
        with Device(self.device.kind).prepared():
            inputs, targets = self.examples(self.device.put(rows))
            loss = self._loss(self.compute(tensors, inputs), targets, *map(self.device.put, weights))
            (gradient,) = torch.autograd.grad(loss, params)
        return [loss.detach(), gradient, buffers, *(tensors[name].float() for name in self.resting)]


def _uncounted(module: nn.Module) -> nn.Module:
    """Do not count BatchNorm's batches on the GPU: with a fixed momentum the count is never used."""
    for part in module.modules():
        if isinstance(part, NormWithStatistics) and part.momentum is not None:
            part.num_batches_tracked = None  # pyright: ignore[reportArgumentType]
    return module


class Lane:
    """Everything one client in flight needs, at fixed addresses: a graph stores addresses, not values."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        device, layout = shared.device.kind, shared.layout
        self._parts = self.trainable, self.buffers = tuple(part.clone() for part in layout.parts(shared.initial))
        views = layout.views(self.trainable, self.buffers)
        self._resting = {name: value.clone() for name, value in shared.resting.items()}
        names = list(layout.names[: layout.num_parameter_tensors])
        self._copy = self.trainable.to(torch.bfloat16) if shared.reduced else self.trainable
        copies = layout.views(self._copy, self.buffers)
        self._leaves = [(copies if n in shared.reduced else views)[n].detach().requires_grad_() for n in names]
        others = {name: views[name] for name in layout.names if name not in names} | self._resting
        self._names, self._tensors = names + list(others), self._leaves + list(others.values())
        self._memory = shared.local.new_memory(self.trainable)
        self._base = torch.empty_like(self.trainable)
        self._tables = [
            table.to(device).repeat(shared.rows, 1)
            for table in shared.tables(torch.zeros(1, shared.width, dtype=torch.int64), [shared.width])
        ]
        """Positions of each batch's examples; then their weights, if batches are filled up."""
        self._row = torch.zeros(1, dtype=torch.int64, device=device)
        self._loss = torch.zeros((), device=device)
        self._graphs: dict[tuple[int, int, float], Step] = {}
        self._addressed: list[Tensor] = []
        self._steps = 0
        self._todo: deque[Step] = deque()
        self._marks: deque[Any] = deque()
        self.order: WorkOrder
        self._cuda = device != "cpu"
        if self._cuda:
            self._stream = torch.cuda.Stream()
            self._working = _On(self._stream, shared.device.front())
            self._pool = torch.cuda.graph_pool_handle()
            self._generator = torch.Generator(device)
            self._staging = [torch.empty_like(table, device="cpu", pin_memory=True) for table in self._tables]

    def check(self, batch: Tensor) -> None:
        """Refuse a model that replaces a buffer: a graph writes only into existing tensors."""
        inputs, _ = self._shared.examples(batch)
        tensors = dict(zip(self._names, self._tensors, strict=True))
        with torch.no_grad(), self._shared.device.computing(), self._shared.undrawn():
            name = self._shared.compute.replaced(tensors, inputs)
        if name:
            raise CannotCapture(f"it replaces its buffer {name} instead of writing into it")

    def start(self, order: WorkOrder, table: Tensor, sizes: list[int], key: int, captured: bool = True) -> None:
        """Accept a client's work, with the rows of a table as batches; ``feed`` then starts it."""
        self.order, self._steps, steps = order, len(sizes), len(sizes)
        tables = self._shared.tables(table, sizes)
        if self._cuda:
            self._stream.synchronize()  # work that was stopped may still read the staging memory
            for staging, values in zip(self._staging, tables, strict=True):
                staging[:steps] = values
            tables = [staging[:steps] for staging in self._staging]
        if captured:
            shapes = [self._shared.shapes[size] for size in sizes]
            self._todo.extend(self._graph(*part, order.prox_mu) for part in _chunks(shapes))
        else:
            self._todo.extend(partial(self._step, size, order.prox_mu, self._shared.plain_loss) for size in sizes)
        with self._on_stream(wait=True):
            self._load(torch.as_tensor(order.base), key, order.prox_mu)
            for own, values in zip(self._tables, tables, strict=True):
                own[:steps].copy_(values, non_blocking=True)

    def feed(self) -> bool:
        """Launch the next few steps, unless enough are queued; returns whether any were launched."""
        while self._marks and self._marks[0].query():
            self._marks.popleft()
        if not self._todo or len(self._marks) >= 2:
            return False
        with self._on_stream():
            self._todo.popleft()()
            if self._cuda:
                self._marks.append(self._stream.record_event())
        return True

    def ready(self) -> bool:
        """Whether all steps are done."""
        return not self._todo and all(mark.query() for mark in self._marks)

    def stop(self) -> None:
        """Drop all steps that have not been launched yet."""
        self._todo.clear()

    def collect(self) -> tuple[Tensor, float, int]:
        """The trained model, its mean loss and the number of steps; all steps must have been fed."""
        if self._cuda:
            self._shared.device.front().wait_stream(self._stream)
        return torch.cat(self._parts), float(self._loss) / self._steps, self._steps

    def _graph(self, size: int, steps: int, prox_mu: float) -> Step:
        """A graph of this many steps on batches of this size."""
        key = size, steps, prox_mu
        if key not in self._graphs:
            self._graphs[key] = self._captured(*key)
        return self._graphs[key]

    def _captured(self, size: int, steps: int, prox_mu: float) -> Step:
        loss_of = self._shared.loss_for(size)

        def work() -> None:
            for _ in range(steps):
                self._step(size, prox_mu, loss_of)

        if not self._cuda:
            return work
        generator = torch.cuda.default_generators[torch.cuda.current_device()]
        before = generator.graphsafe_get_state()
        generator.graphsafe_set_state(self._generator.graphsafe_get_state())  # dropout: each lane has its own generator
        try:
            with self._on_stream(wait=True):
                self._load(self._shared.initial, 0, prox_mu)
                for _ in range(WARM_UP):
                    self._step(size, prox_mu, loss_of)
                    self._row.zero_()
            self._blank = [self._addresses([0] * len(self._shared.reduced)) for _ in range(steps)]
            self._filled: list[list[int]] = []
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                work()
        finally:
            generator.graphsafe_set_state(before)
        for table, addresses in zip(self._blank, self._filled, strict=False):
            table.copy_(self._addresses(addresses))  # known only now; the graph reads them when it runs
        self._addressed += self._blank
        return graph.replay

    def _addresses(self, values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self._shared.device.kind)

    def _step(self, size: int, prox_mu: float, loss_of: Callable[..., Tensor]) -> None:
        """One local step on the next row of the table, in place."""
        shared = self._shared
        rows, *weights = (table.index_select(0, self._row).view(-1)[:size] for table in self._tables)
        loss = loss_of(self._names, self._tensors, *shared.examples(rows), *weights)
        found = torch.autograd.grad(loss, self._leaves, allow_unused=True)
        gradients = [torch.zeros_like(leaf) if g is None else g for g, leaf in zip(found, self._leaves, strict=True)]
        with torch.no_grad():
            self._learn(gradients, prox_mu)
            self._loss += loss.detach()
            self._row += 1

    def _learn(self, gradients: list[Tensor], prox_mu: float) -> None:
        """The optimizer's step, in place."""
        shared, local = self._shared, self._shared.local
        if not local.plain or prox_mu or (shared.reduced and not shared.descent):
            flat = torch.cat([shared.layout.flattened(gradient) for gradient in gradients])
            local.step(self.trainable, flat, self._memory, self._base, prox_mu)
            if shared.reduced:
                self._copy.copy_(self.trainable)
            return
        pairs = list(zip(self._leaves, gradients, strict=True))
        if shared.descent:
            copies = [shared.layout.flattened(gradient) for leaf, gradient in pairs if leaf.dtype == torch.bfloat16]
            addresses = [half.data_ptr() for half in copies]
            if torch.cuda.is_current_stream_capturing():
                table = self._blank[len(self._filled)]
                self._filled.append(addresses)
            else:
                table = self._addresses(addresses)
            shared.descent(table, self.trainable, self._copy, local.lr)
            pairs = [(leaf, gradient) for leaf, gradient in pairs if leaf.dtype != torch.bfloat16]
        if pairs:
            descend([leaf for leaf, _ in pairs], [gradient for _, gradient in pairs], local.lr)

    def _load(self, base: Tensor, key: int, prox_mu: float) -> None:
        """Reset everything to the start of a client's work."""
        for own, part in zip(self._parts, self._shared.layout.parts(base), strict=True):
            own.copy_(part)
        if prox_mu:
            self._base.copy_(self.trainable)
        if self._shared.reduced:
            self._copy.copy_(self.trainable)
        for name, value in self._resting.items():
            value.copy_(self._shared.resting[name])
        for tensor in (*self._memory, self._row, self._loss):
            tensor.zero_()
        if self._cuda:
            self._generator.manual_seed(key)

    def _on_stream(self, wait: bool = False) -> AbstractContextManager[None]:
        """Work goes to this lane; with ``wait``, after all earlier work on the front stream."""
        if not self._cuda:
            return nullcontext()
        if wait:
            self._stream.wait_stream(self._shared.device.front())
        return self._working


class _On(AbstractContextManager[None]):
    """``torch.cuda.stream`` for two known streams: it queries nothing, and takes a twentieth of the time."""

    def __init__(self, stream: torch.cuda.Stream, front: torch.cuda.Stream) -> None:
        self._stream, self._front = stream, front

    def __enter__(self) -> None:
        torch.cuda.set_stream(self._stream)

    def __exit__(self, *_: Any) -> None:
        torch.cuda.set_stream(self._front)


def _chunks(sizes: list[int]) -> Iterator[tuple[int, int]]:
    """Steps on batches of the same size, in groups of CHUNK and single ones, so that few graphs are needed."""
    for size, group in groupby(sizes):
        whole, rest = divmod(len(list(group)), CHUNK)
        yield from [(size, CHUNK)] * whole + [(size, 1)] * rest
