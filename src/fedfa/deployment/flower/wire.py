"""Orders and answers as Flower messages. Everything received is checked for type, shape and size first.

An order has ``arrays`` and ``config``; an answer has ``arrays`` and ``metrics``. ``arrays`` has two forms: one flat
float32 array named ``flat`` (used by fedfa's own client app, because Flower's cost is per array), or one array per
tensor under PyTorch's names (used by stock Flower clients). The flat array always has PyTorch's layout, in whichever
layout either side computes.
"""

import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fedfa.deployment.transport import TrainRequest
from fedfa.errors import in_a_line, require
from fedfa.executors.base import Trained
from fedfa.learning.flat import Layout
from fedfa.learning.task import Task

Form = Literal["flat", "named"]
FLAT = "flat"
MOST_HEADER = 4096
"""Bytes that numpy's file header may need at the front of an array."""


class WireError(ValueError):
    """Something came over the wire that cannot be used."""


@dataclass(frozen=True)
class Server:
    """The server's end: it sends one form, and reads both."""

    task: Task
    seed: int
    form: Form = "flat"

    @cached_property
    def _layout(self) -> Layout:
        return self.task.layout(self.task.build(self.seed))

    def order(self, order: TrainRequest) -> RecordDict:
        local = self.task.local
        config = {
            "dispatch": order.dispatch,
            "base-version": order.base_version,
            "server-round": order.base_version + 1,
            "epochs": order.epochs,
            "prox-mu": order.prox_mu,
            "seed": order.seed,
            "lr": local.lr,
            "batch-size": local.batch_size,
        }
        if self.form == "flat":
            arrays = ArrayRecord({FLAT: _sent(order.base, self._layout)})
        else:
            arrays = ArrayRecord(self.task.state_dict(order.base, self.seed))
        return RecordDict({"arrays": arrays, "config": ConfigRecord(config)})

    def answer(self, content: RecordDict, order: TrainRequest) -> Trained:
        """The client's answer, or a WireError."""
        arrays, metrics = _only(content, ArrayRecord), _only(content, MetricRecord)
        answers = number_in(metrics, "dispatch", order.dispatch)
        if answers != order.dispatch:
            raise WireError(f"repeat: answers dispatch {answers:g}, not {order.dispatch}")
        num_examples = int(number_in(metrics, "num-examples"))
        steps = order.epochs * len(self.task.local.batch_sizes(min(max(num_examples, 0), 1 << 40)))
        return Trained(
            self._flat(arrays),
            num_examples,
            float(number_in(metrics, "num-steps", steps)),
            float(number_in(metrics, "train-loss", number_in(metrics, "train_loss", math.nan))),
        )

    def _flat(self, arrays: ArrayRecord) -> np.ndarray:
        layout = self._layout
        if FLAT in arrays:
            return _received(arrays, layout)
        if missing := [name for name in layout.names if name not in arrays]:
            raise WireError(f"wrong names: there is neither '{FLAT}' nor '{missing[0]}' among the arrays")
        parts = [
            layout.flattened(torch.tensor(array_of(arrays[name], tuple(shape), name)))
            for name, shape in zip(layout.names, layout.shapes, strict=True)
        ]
        return torch.cat(parts).numpy()


def read_order(content: RecordDict, layout: Layout) -> TrainRequest:
    """A client's end; it checks what it receives, too."""
    config = content["config"]
    if not isinstance(config, ConfigRecord):
        raise WireError("config: is no ConfigRecord")
    arrays = _only(content, ArrayRecord)
    require(FLAT in arrays, "wire: the server sends named tensors; set wire = 'flat' in its run config")
    return TrainRequest(
        dispatch=int(number_in(config, "dispatch")),
        base_version=int(number_in(config, "base-version")),
        base=np.require(_received(arrays, layout), requirements="W"),
        epochs=int(number_in(config, "epochs")),
        prox_mu=float(number_in(config, "prox-mu")),
        seed=int(number_in(config, "seed")),
    )


def write_answer(order: TrainRequest, trained: Trained, layout: Layout) -> RecordDict:
    assert trained.params is not None
    metrics = {
        "dispatch": order.dispatch,
        "num-examples": int(trained.num_examples),
        "num-steps": float(trained.num_steps),
        "train-loss": float(trained.loss),
    }
    arrays = ArrayRecord({FLAT: _sent(trained.params, layout)})
    return RecordDict({"arrays": arrays, "metrics": MetricRecord(metrics)})


def _sent(vector: np.ndarray, layout: Layout) -> Array:
    """A flat vector of this layout in the form for sending."""
    return array_from(_converted(vector, layout, layout.plain))


def _received(arrays: ArrayRecord, layout: Layout) -> np.ndarray:
    """A received flat vector, in this layout."""
    return _converted(array_of(arrays[FLAT], (layout.length,), FLAT), layout.plain, layout)


def _converted(vector: np.ndarray, old: Layout, new: Layout) -> np.ndarray:
    if not (old.permutes or new.permutes):
        return vector
    return old.converted(torch.from_numpy(np.require(vector, requirements="W")), new).numpy()


def array_from(vector: np.ndarray) -> Array:
    """The same as ``Array(vector)``, with one copy instead of several."""
    vector = np.ascontiguousarray(vector, "<f4")
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, np.lib.format.header_data_from_array_1_0(vector))
    return Array(str(vector.dtype), vector.shape, "numpy.ndarray", b"".join((head.getvalue(), vector.data)))


def array_of(array: Array, shape: tuple[int, ...], name: str) -> np.ndarray:
    """The numbers, without a copy; a foreign header cannot make this allocate anything."""
    size = 4 * math.prod(shape)
    if array.stype != "numpy.ndarray" or not size < len(array.data) <= size + MOST_HEADER:
        raise WireError(f"wrong shape: '{name}' is {len(array.data)} bytes of {array.stype}, not {shape} float32")
    stream = io.BytesIO(array.data)
    try:
        version = np.lib.format.read_magic(stream)
        reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        claimed, fortran, dtype = reader(stream, max_header_size=MOST_HEADER)
    except Exception as error:  # numpy's parser raises many kinds
        raise WireError(f"wrong shape: '{name}' is no numpy array ({in_a_line(error)})") from error
    if claimed != shape or dtype != np.dtype("<f4") or len(array.data) - stream.tell() != size:
        raise WireError(f"wrong shape: '{name}' is {claimed} {dtype}, not {shape} float32")
    numbers = np.frombuffer(array.data, "<f4", offset=stream.tell())
    return numbers.reshape(shape, order="F" if fortran else "C")


def _only(content: RecordDict, kind: type[Any]) -> Any:
    """The one record of this kind."""
    found = [record for record in content.values() if isinstance(record, kind)]
    if len(found) != 1:
        raise WireError(f"wrong content: {len(found)} records of kind {kind.__name__}, not 1")
    return found[0]


def number_in(record: Mapping[str, Any], key: str, default: float | None = None) -> float:
    """A finite number; NaN only where there is a default."""
    value = record.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) == math.inf:
        raise WireError(f"wrong content: {key} = {value!r} is not a finite number")
    if math.isnan(value) and default is None:
        raise WireError(f"wrong content: {key} is not a number")
    return value
