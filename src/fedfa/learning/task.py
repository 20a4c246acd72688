"""A learning task: every client's data, a model, its local training and its evaluation."""

import hashlib
import json
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

from fedfa.errors import ConfigError, in_a_line, require
from fedfa.learning.base import Initial, Score
from fedfa.learning.device import CPU, Device
from fedfa.learning.flat import FlatModule, Layout, frozen
from fedfa.learning.local import LocalTraining, shuffled
from fedfa.learning.private_torch import seed_cpu
from fedfa.learning.probe import say_once, why_not_channels_last
from fedfa.randomness import INITIAL, keyed
from fedfa.strategies.vectors import Vector

Data = tuple[Tensor, Tensor] | Dataset[Any]
EVALUATION_BATCH = 1024
PROBED_EXAMPLES = 8
"""Examples to try whether a model may be computed channels last; some models need a whole batch."""


def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Share of examples whose largest output is the target."""
    return (outputs.argmax(-1) == targets).float().mean()


class Task:
    """Data, model, local training and evaluation.

    ``model`` makes a new ``nn.Module``. ``clients`` holds one data set per client, and ``test`` is the test set. Each
    is a pair of tensors (inputs, targets) or a map-style ``Dataset`` of such pairs, read once. ``loss`` and ``metric``
    take (outputs, targets). Runs report the metric as accuracy, averaged over examples.
    """

    def __init__(
        self,
        *,
        model: Callable[[], nn.Module],
        clients: Sequence[Data],
        test: Data,
        loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
        metric: Callable[[Tensor, Tensor], Tensor] = accuracy,
        local: LocalTraining | None = None,
        name: str = "task",
    ) -> None:
        made = isinstance(model, nn.Module) or not callable(model)
        require(not made, "model: must be a function that makes a new one, for example lambda: MyModel()")
        require(len(clients) > 0, "clients: needs at least one client's data")
        self.model = model
        self.loss = loss
        self.metric = metric
        self.local = local or LocalTraining()
        self.name = name
        self._last: weakref.ref[nn.Module] | None = None
        self.prepared: dict[Any, Any] = {}
        """What an executor has prepared for this task; runs of the same task share it."""
        data = [_tensors(client, f"clients[{number}]") for number, client in enumerate(clients)]
        self.inputs = torch.cat([inputs for inputs, _ in data])
        self.targets = torch.cat([targets for _, targets in data])
        self.sizes = [len(targets) for _, targets in data]
        self._starts = np.cumsum([0, *self.sizes])
        self.test_inputs, self.test_targets = _tensors(test, "test")
        self.channels_last: bool | None = None
        """The memory layout in which this task's models are computed; None until the first use, which tries it."""

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_last": None}  # a weak reference cannot be sent to other processes

    @property
    def num_clients(self) -> int:
        return len(self.sizes)

    def build(self, seed: int) -> nn.Module:
        """The model with the initial weights of this seed, without touching the caller's random state."""
        with torch.random.fork_rng(devices=[]):
            seed_cpu(keyed(seed, INITIAL) >> 1)
            module = self.model()
        require(isinstance(module, nn.Module), f"model: must make an nn.Module, made a {type(module).__name__}")
        again = "made the same object twice, and a run would change the next one's start"
        new = self._last is None or self._last() is not module
        require(new, f"model: {again}; make a new one, for example lambda: copy.deepcopy(MODEL)")
        self._last = weakref.ref(module)
        return module.train()

    def layout(self, module: nn.Module) -> Layout:
        """The layout of flat vectors of this task's models, the same for every seed and every executor."""
        if self.channels_last is None:
            self.channels_last = self._try_channels_last(module)
        return Layout.of(module, self.channels_last)

    def flat_module(self, module: nn.Module) -> FlatModule:
        """The module in one flat vector of this layout."""
        return FlatModule(module, self.layout(module).channels_last)

    def _try_channels_last(self, module: nn.Module) -> bool:
        if self.inputs.dim() != 4 and not Layout.of(module).has_images:
            return False
        largest = int(np.argmax(self.sizes))
        start, count = int(self._starts[largest]), min(self.local.batch_size, self.sizes[largest])
        rows = [slice(start, start + size) for size in sorted({min(PROBED_EXAMPLES, count), count})]
        batches = [(self.inputs[part], self.targets[part]) for part in rows]
        reason = why_not_channels_last(self.build(0), batches, self.loss)
        if reason:
            say_once(f"This model cannot be computed channels last ({reason}); it keeps PyTorch's own memory layout.")
        return not reason

    def initial(self, seed: int) -> Initial:
        """The model that a run of this seed starts from."""
        module = self.build(seed)
        layout = self.layout(module)
        return Initial(layout.pack(module).numpy(), layout.num_trainable, sum(p.numel() for p in frozen(module)))

    def state_dict(self, vector: Vector, seed: int) -> dict[str, Tensor]:
        """The model's tensors by name, with these values; frozen tensors have the seed's values."""
        bound = self.flat_module(self.build(seed))
        bound.load(torch.as_tensor(vector))
        return bound.module.state_dict()

    def batches(self, seed: int, client: int, nth: int, epochs: int) -> list[Tensor]:
        """Positions in ``inputs`` and ``targets`` of the batches of a client's n-th dispatch."""
        table, sizes = self.batch_table(seed, client, nth, epochs)
        return [row[:size] for row, size in zip(table, sizes, strict=True)]

    def batch_table(self, seed: int, client: int, nth: int, epochs: int) -> tuple[Tensor, list[int]]:
        """The same as the rows of one table, short rows padded with zeros; and the length of each row."""
        count, width = self.sizes[client], self.local.batch_size
        sizes = self.local.batch_sizes(count)
        table = np.zeros((epochs, len(sizes) * width), np.int64)
        table[:, :count] = shuffled(seed, client, nth, count, self.local.epochs)[:epochs] + self._starts[client]
        return torch.from_numpy(table.reshape(-1, width)), sizes * epochs

    def digest(self, seed: int) -> str:
        """Changes with the data, its split, or the initial model, frozen weights included."""
        state = hashlib.blake2b(json.dumps(self.sizes).encode(), digest_size=16)
        module = self.build(seed)
        data = (self.inputs, self.targets, self.test_inputs, self.test_targets)
        for tensor in (*data, self.layout(module).pack(module), *frozen(module)):
            state.update(tensor.detach().reshape(-1).view(torch.uint8).numpy().data)
        return state.hexdigest()

    def label_counts(self) -> pl.DataFrame:
        """Examples per client and label; empty where targets are not class numbers."""
        if self.targets.is_floating_point() or self.targets.dim() != 1:
            return pl.DataFrame(schema={"client": pl.Int64, "label": pl.String, "examples": pl.Int64})
        owner = np.repeat(np.arange(self.num_clients), self.sizes)
        frame = pl.DataFrame({"client": owner, "label": self.targets.numpy()})
        counts = frame.group_by("client", "label").len(name="examples").sort("client", "label")
        return counts.with_columns(pl.col("label").cast(pl.String), pl.col("examples").cast(pl.Int64))

    def evaluator(self, seed: int, device: Device = CPU) -> "Evaluator":
        return Evaluator(self, self.build(seed), device)


class Evaluator:
    """Evaluates flat models on a task's test data."""

    def __init__(self, task: Task, module: nn.Module, device: Device = CPU) -> None:
        self._task, self._device = task, device
        self._bound = task.flat_module(module.to(device.kind).eval())
        self._inputs, self._targets = device.put(task.test_inputs), device.put(task.test_targets)

    def __call__(self, vector: Vector, meanwhile: Callable[[], None]) -> Score:
        """``meanwhile`` is called between batches on the CPU, and while a GPU works."""
        try:
            sums = self._sums(vector, meanwhile)
        except Exception as error:  # code of the user's own
            shape = tuple(self._inputs[:EVALUATION_BATCH].shape)
            raise ConfigError(f"model: raised {in_a_line(error)} on a batch of shape {shape}") from error
        if self._device.kind != "cpu":
            done = torch.cuda.Event()
            done.record()
            while not done.query():
                meanwhile()
        metric, loss = (sums / len(self._targets)).tolist()
        return Score(metric, loss)

    def _sums(self, vector: Vector, meanwhile: Callable[[], None]) -> Tensor:
        """Metric and loss, summed over all examples."""
        task, bound = self._task, self._bound
        bound.load(torch.as_tensor(vector))
        sums = torch.zeros(2, dtype=torch.float64, device=self._device.kind)
        for inputs, targets in zip(
            self._inputs.split(EVALUATION_BATCH), self._targets.split(EVALUATION_BATCH), strict=True
        ):
            with torch.inference_mode(), self._device.computing():
                outputs = bound.module(bound.layout.laid_out(inputs))
                found = torch.stack([task.metric(outputs, targets), task.loss(outputs, targets)])
                sums += found.double() * len(targets)
            if self._device.kind == "cpu":
                meanwhile()
        return sums


def _tensors(data: Data, where: str) -> tuple[Tensor, Tensor]:
    if isinstance(data, Dataset):
        rows = [data[position] for position in range(len(data))]  # pyright: ignore[reportArgumentType]
        require(len(rows) > 0, f"{where}: is empty")
        inputs = torch.stack([torch.as_tensor(row[0]) for row in rows])
        targets = torch.stack([torch.as_tensor(row[1]) for row in rows])
    else:
        require(
            isinstance(data, tuple | list) and len(data) == 2 and all(isinstance(part, Tensor) for part in data),
            f"{where}: must be a pair of tensors (inputs, targets) or a map-style Dataset, is a {type(data).__name__}",
        )
        inputs, targets = data
    require(len(inputs) == len(targets), f"{where}: {len(inputs)} inputs but {len(targets)} targets")
    require(len(targets) > 0, f"{where}: is empty")
    return inputs, targets
