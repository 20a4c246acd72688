"""In-flight clients side by side on a GPU: each has its own lane, and trains from the moment it is dispatched.

A lane is a stream, a flat model, a table of batches, and captured graphs. For every batch size one graph does one local
step: take the next row of the table, look up its examples, forward, backward, optimizer step, advance the row. Another
graph does a few such steps. A client's training is a sequence of launches of these graphs. Lanes overlap, so small
batches fill the GPU together, and an arrival waits only for its own lane. A GPU queues a limited number of launches
(about fifty of ResNet-18's step) and then blocks the host. So the host feeds all lanes in turn, a few steps each, while
it waits for an arrival.

Models, data and windows stay on the GPU. A client's result does not depend on its lane or its neighbours.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn

from fedfa.errors import in_a_line
from fedfa.executors.base import Trained, WorkOrder
from fedfa.executors.bf16 import Descent, only_cast
from fedfa.executors.capture import CannotCapture
from fedfa.learning.device import Device
from fedfa.learning.flat import Stateless
from fedfa.learning.local import own_seed
from fedfa.learning.private_torch import NormWithStatistics, descend
from fedfa.learning.task import Task

CHUNK = 4
"""Steps per launch, in one graph if their batches have the same size; a lane has two such chunks queued."""
NAP_SECONDS = 5e-5
"""The host's pause when every lane has enough work."""
WARM_UP = 3
"""Steps before a capture, in which libraries choose their algorithms and workspaces."""
LARGEST_ERROR = 0.05
"""Largest distance between a captured step and a plain one, in lengths of the step; beyond it the graph is wrong."""

Step = Callable[[], None]


class Lanes:
    """Trains every submitted order at once, each on its own lane."""

    name = "lanes"
    shares = False

    @classmethod
    def prepared(cls, task: Task, seed: int, device: Device, compile: bool = False) -> "Lanes":
        """Runs of one task and seed share their lanes: capturing takes as long as some clients' training."""
        key = (cls.name, seed, device, compile)
        if key not in task.prepared:
            with device.prepared():
                task.prepared[key] = cls(task, seed, device, compile)
        return task.prepared[key]

    def __init__(self, task: Task, seed: int, device: Device, compile: bool = False) -> None:
        self._task, self._seed, self.device = task, seed, device
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
        self.usual = Counter(size for n in task.sizes for size in task.local.batch_sizes(n)).most_common(1)[0][0]
        self.plain_loss = self._loss_of
        self.fast_loss = torch.compile(self._loss_of, dynamic=False) if compile else self._loss_of
        self._free: list[Lane] = []
        self._busy: dict[int, Lane] = {}
        self._try()

    # What the engine asks ----------------------------------------------------------------------------------------

    def submit(self, order: WorkOrder) -> None:
        lane = self._free.pop(0) if self._free else Lane(self)
        self._busy[order.dispatch] = lane
        table, sizes = self._task.batch_table(self._seed, order.client, order.nth, order.epochs)
        lane.start(order, table, sizes, own_seed(self._seed, order.client, order.nth))
        lane.feed()

    def result(self, dispatch: int) -> Trained:
        lane = self._busy[dispatch]
        while not lane.ready():
            self.meanwhile()
        del self._busy[dispatch]
        params, loss, steps = lane.collect()
        self._free.append(lane)
        order = lane.order
        return Trained(
            params=params,
            num_examples=self._task.sizes[order.client],
            num_steps=self.local.effective_steps(steps, order.prox_mu),
            loss=loss,
        )

    def discard(self, dispatch: int) -> None:
        lane = self._busy.pop(dispatch, None)
        if lane is not None:
            lane.stop()
            self._free.append(lane)

    def finished(self) -> dict[int, Trained]:
        return {}  # a continued run trains the clients in flight again, from the same models

    def restore(self, finished: dict[int, Trained]) -> None:
        pass

    def meanwhile(self) -> None:
        if not self.feed():
            time.sleep(NAP_SECONDS)

    def close(self) -> None:
        for dispatch in list(self._busy):
            self.discard(dispatch)

    # In progress -------------------------------------------------------------------------------------------------

    def feed(self) -> bool:
        """Launch the steps that the lanes can queue; returns whether there were any."""
        return sum(lane.feed() for lane in self._busy.values()) > 0

    def ready(self, dispatch: int) -> bool:
        """Whether a result is available without waiting."""
        return self._busy[dispatch].ready()

    # One step ----------------------------------------------------------------------------------------------------

    def examples(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        inputs = self.inputs.index_select(0, rows)
        return inputs.permute(0, 3, 1, 2) if self.images else inputs, self.targets.index_select(0, rows)

    def _loss_of(self, names: list[str], tensors: list[Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        with self.device.computing():
            outputs = self.compute(dict(zip(names, tensors, strict=True)), inputs)
            return self.loss(outputs, targets)

    def _try(self) -> None:
        """Compare a captured step with plain ones; refuse a model that cannot be captured, or whose result differs."""
        try:
            table, sizes = self._task.batch_table(self._seed, 0, 0, 1)
            if self.device.precision == "bf16":
                self._keep_copies(self.device.put(table[0, : sizes[0]]))
            lane = Lane(self)
            lane.check(self.device.put(table[0, : sizes[0]]))
            order = WorkOrder(0, 0, 0, 0, self.initial, 1, 0.0, 0.0)
            ends = []
            for captured in (False, False, True):
                lane.start(order, table[:1], sizes[:1], 0, captured)
                lane.feed()
                ends.append(lane.collect()[0] - self.initial)
        except CannotCapture:
            raise
        except Exception as error:  # capturing runs code of the user's own: whatever it raises means "not this model"
            if self.device.kind != "cpu":
                torch.cuda.synchronize()
            raise CannotCapture(in_a_line(error)) from error
        plain, again, graphed = ends
        moved = float(plain.norm())
        spread = float((again - plain).norm())  # a model that draws random numbers, as dropout does
        apart = float((graphed - plain).norm())
        if not apart <= LARGEST_ERROR * moved + 3 * spread + 1e-6:
            raise CannotCapture(f"a captured step differs from a plain one by {apart / max(moved, 1e-12):.1%}")
        self._free.append(lane)

    def _keep_copies(self, batch: Tensor) -> None:
        """Keep bf16 copies of the weights that are used in no other way: per lane, or once for frozen ones."""
        inputs, _ = self.examples(batch)
        parameters = dict(self.module.named_parameters())
        with self.device.computing(), torch.random.fork_rng(devices=None if self.device.kind != "cpu" else []):
            self.reduced = only_cast(lambda: self.module(inputs), parameters)
        for name in self.reduced - set(self.layout.names):
            parameters[name].data = parameters[name].data.to(torch.bfloat16)
        self.reduced &= set(self.layout.names)
        if self.reduced and self.device.kind != "cpu" and Descent.possible():
            self.descent = Descent(self.layout, self.reduced, self.device.kind)


def _uncounted(module: nn.Module) -> nn.Module:
    """Do not count BatchNorm's batches on the GPU: with a fixed momentum the count is never used."""
    for part in module.modules():
        if isinstance(part, NormWithStatistics) and part.momentum is not None:
            part.num_batches_tracked = None  # pyright: ignore[reportArgumentType]
    return module


class Lane:
    """Everything one client in flight needs, at fixed addresses: a graph stores addresses, not values."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        device, layout = lanes.device.kind, lanes.layout
        self._parts = self.trainable, self.buffers = tuple(part.clone() for part in layout.parts(lanes.initial))
        views = layout.views(self.trainable, self.buffers)
        self._resting = {name: value.clone() for name, value in lanes.resting.items()}
        names = list(layout.names[: layout.num_parameter_tensors])
        self._copy = self.trainable.to(torch.bfloat16) if lanes.reduced else self.trainable
        copies = layout.views(self._copy, self.buffers)
        self._leaves = [(copies if n in lanes.reduced else views)[n].detach().requires_grad_() for n in names]
        others = {name: views[name] for name in layout.names if name not in names} | self._resting
        self._names, self._tensors = names + list(others), self._leaves + list(others.values())
        self._memory = lanes.local.new_memory(self.trainable)
        self._base = torch.empty_like(self.trainable)
        self._table = torch.zeros(lanes.rows, lanes.local.batch_size, dtype=torch.int64, device=device)
        self._row = torch.zeros(1, dtype=torch.int64, device=device)
        self._loss = torch.zeros((), device=device)
        self._graphs: dict[tuple[int, int, float], Step] = {}
        self._tables: list[Tensor] = []
        self._steps = 0
        self._todo: deque[Step] = deque()
        self._marks: deque[Any] = deque()
        self.order: WorkOrder
        self._cuda = device != "cpu"
        if self._cuda:
            self._stream = torch.cuda.Stream()
            self._working = _On(self._stream, lanes.device.front())
            self._pool = torch.cuda.graph_pool_handle()
            self._generator = torch.Generator(device)
            self._staging = torch.empty_like(self._table, device="cpu", pin_memory=True)

    def check(self, batch: Tensor) -> None:
        """Refuse a model that replaces a buffer: a graph writes only into existing tensors."""
        inputs, _ = self._lanes.examples(batch)
        tensors = dict(zip(self._names, self._tensors, strict=True))
        devices = None if self._cuda else []
        with torch.no_grad(), self._lanes.device.computing(), torch.random.fork_rng(devices=devices):
            name = self._lanes.compute.replaced(tensors, inputs)
        if name:
            raise CannotCapture(f"it replaces its buffer {name} instead of writing into it")

    def start(self, order: WorkOrder, table: Tensor, sizes: list[int], key: int, captured: bool = True) -> None:
        """Accept a client's work, with the rows of a table as batches; ``feed`` then starts it."""
        self.order, self._steps, steps = order, len(sizes), len(sizes)
        if self._cuda:
            self._stream.synchronize()  # work that was stopped may still read the staging memory
            self._staging[:steps] = table
            table = self._staging[:steps]
        if captured:
            self._todo.extend(self._graph(*part, order.prox_mu) for part in _chunks(sizes))
        else:
            self._todo.extend(partial(self._step, size, order.prox_mu, self._lanes.plain_loss) for size in sizes)
        with self._on_stream(wait=True):
            self._load(torch.as_tensor(order.base), key, order.prox_mu)
            self._table[:steps].copy_(table, non_blocking=True)

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
            self._lanes.device.front().wait_stream(self._stream)
        return torch.cat(self._parts), float(self._loss) / self._steps, self._steps

    def _graph(self, size: int, steps: int, prox_mu: float) -> Step:
        """A graph of this many steps on batches of this size."""
        key = size, steps, prox_mu
        if key not in self._graphs:
            self._graphs[key] = self._captured(*key)
        return self._graphs[key]

    def _captured(self, size: int, steps: int, prox_mu: float) -> Step:
        loss_of = self._lanes.fast_loss if size == self._lanes.usual else self._lanes.plain_loss

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
                self._load(self._lanes.initial, 0, prox_mu)
                for _ in range(WARM_UP):
                    self._step(size, prox_mu, loss_of)
                    self._row.zero_()
            self._blank = [self._addresses([0] * len(self._lanes.reduced)) for _ in range(steps)]
            self._filled: list[list[int]] = []
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                work()
        finally:
            generator.graphsafe_set_state(before)
        for table, addresses in zip(self._blank, self._filled, strict=False):
            table.copy_(self._addresses(addresses))  # known only now; the graph reads them when it runs
        self._tables += self._blank
        return graph.replay

    def _addresses(self, values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self._lanes.device.kind)

    def _step(self, size: int, prox_mu: float, loss_of: Callable[..., Tensor]) -> None:
        """One local step on the next row of the table, in place."""
        lanes = self._lanes
        rows = self._table.index_select(0, self._row).view(-1)[:size]
        loss = loss_of(self._names, self._tensors, *lanes.examples(rows))
        found = torch.autograd.grad(loss, self._leaves, allow_unused=True)
        gradients = [torch.zeros_like(leaf) if g is None else g for g, leaf in zip(found, self._leaves, strict=True)]
        with torch.no_grad():
            self._learn(gradients, prox_mu)
            self._loss += loss.detach()
            self._row += 1

    def _learn(self, gradients: list[Tensor], prox_mu: float) -> None:
        """The optimizer's step, in place."""
        lanes, local = self._lanes, self._lanes.local
        if not local.plain or prox_mu or (lanes.reduced and not lanes.descent):
            flat = torch.cat([lanes.layout.flattened(gradient) for gradient in gradients])
            local.step(self.trainable, flat, self._memory, self._base, prox_mu)
            if lanes.reduced:
                self._copy.copy_(self.trainable)
            return
        pairs = list(zip(self._leaves, gradients, strict=True))
        if lanes.descent:
            copies = [lanes.layout.flattened(gradient) for leaf, gradient in pairs if leaf.dtype == torch.bfloat16]
            addresses = [half.data_ptr() for half in copies]
            if torch.cuda.is_current_stream_capturing():
                table = self._blank[len(self._filled)]
                self._filled.append(addresses)
            else:
                table = self._addresses(addresses)
            lanes.descent(table, self.trainable, self._copy, local.lr)
            pairs = [(leaf, gradient) for leaf, gradient in pairs if leaf.dtype != torch.bfloat16]
        if pairs:
            descend([leaf for leaf, _ in pairs], [gradient for _, gradient in pairs], local.lr)

    def _load(self, base: Tensor, key: int, prox_mu: float) -> None:
        """Reset everything to the start of a client's work."""
        for own, part in zip(self._parts, self._lanes.layout.parts(base), strict=True):
            own.copy_(part)
        if prox_mu:
            self._base.copy_(self.trainable)
        if self._lanes.reduced:
            self._copy.copy_(self.trainable)
        for name, value in self._resting.items():
            value.copy_(self._lanes.resting[name])
        for tensor in (*self._memory, self._row, self._loss):
            tensor.zero_()
        if self._cuda:
            self._generator.manual_seed(key)

    def _on_stream(self, wait: bool = False) -> AbstractContextManager[None]:
        """Work goes to this lane; with ``wait``, after all earlier work on the front stream."""
        if not self._cuda:
            return nullcontext()
        if wait:
            self._stream.wait_stream(self._lanes.device.front())
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
