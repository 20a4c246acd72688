"""Messages between server and clients, without any daemon."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from fedfa import LocalTraining, Task
from fedfa.deployment.transport import TrainRequest
from fedfa.executors.base import Trained
from fedfa.learning.flat import Layout

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict  # noqa: TID251

from fedfa.deployment.flower import wire


def model() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 10))


@pytest.fixture(scope="module")
def task() -> Task:
    data = torch.zeros(4, 1, 8, 8), torch.arange(4)
    return Task(model=model, clients=[data], test=data, local=LocalTraining(epochs=3, batch_size=8))


@pytest.fixture(scope="module")
def order(task: Task) -> TrainRequest:
    return TrainRequest(7, 3, task.initial(0).vector, 3, 0.5, 11)


def test_an_order_survives_the_journey(task: Task, order: TrainRequest) -> None:
    seen = wire.read_order(wire.Server(task, 0).order(order), Layout.of(task.build(0)))
    assert seen._replace(base=None) == order._replace(base=None)
    assert seen.base.tobytes() == order.base.tobytes()


def test_an_answer_survives_the_journey(task: Task, order: TrainRequest) -> None:
    trained = Trained(order.base + np.float32(1), 20, 9.5, 0.25)
    seen = wire.Server(task, 0).answer(wire.write_answer(order, trained), order)
    assert (seen.num_examples, seen.num_steps, seen.loss) == (20, 9.5, 0.25)
    assert seen.params.tobytes() == trained.params.tobytes()


@pytest.mark.parametrize("length", [1, 7, 100_003])
def test_arrays_are_byte_for_byte_those_of_flower(length: int) -> None:
    vector = np.random.default_rng(0).standard_normal(length).astype(np.float32)
    assert wire.array_from(vector) == Array(vector)
    assert wire.array_from(vector[::2]) == Array(vector[::2].copy())


def test_named_tensors_mean_the_same_as_the_flat_vector(task: Task, order: TrainRequest) -> None:
    """Also for convolutions, which lie channels last in the flat vector, and buffers; steps are worked out."""
    server = wire.Server(task, 0, "named")
    module = model()
    module.load_state_dict(server.order(order)["arrays"].to_torch_state_dict())
    assert Layout.of(module).pack(module).numpy().tobytes() == order.base.tobytes()
    answer = RecordDict(
        {"arrays": ArrayRecord(module.state_dict()), "metrics": MetricRecord({"num-examples": 20, "train_loss": 2.0})}
    )
    seen = server.answer(answer, order)
    assert seen.params.tobytes() == order.base.tobytes()
    assert (seen.num_examples, seen.num_steps, seen.loss) == (20, 9.0, 2.0)


def with_header(length: int, old: bytes, new: bytes) -> Array:
    """Says on the outside what the server wants, and something else inside."""
    data = Array(np.zeros(length, np.float32)).data
    assert old in data
    assert len(old) == len(new)
    return Array("float32", (length,), "numpy.ndarray", data.replace(old, new, 1))


def bad_answers(length: int) -> dict[str, tuple[RecordDict, str]]:
    good = {"num-examples": 3, "num-steps": 4.0}

    def answer(array: Array, metrics: dict | None = None, name: str = "flat") -> RecordDict:
        return RecordDict({"arrays": ArrayRecord({name: array}), "metrics": MetricRecord(metrics or good)})

    vector = np.zeros(length, np.float32)
    return {
        "short": (answer(Array(vector[1:])), "wrong shape"),
        "long": (answer(Array(np.zeros(2 * length, np.float32))), "wrong shape"),
        "doubles": (answer(Array(vector.astype(np.float64))), "wrong shape"),
        "halves as many doubles": (answer(Array(np.zeros(length // 2, np.float64))), "wrong shape"),
        "two dimensions": (answer(Array(vector.reshape(1, -1))), "wrong shape"),
        "pickled": (answer(Array("float32", (length,), "pickle", vector.tobytes() + b"....")), "wrong shape"),
        "no header": (
            answer(Array("float32", (length,), "numpy.ndarray", b"x" * (4 * length + 128))),
            "no numpy array",
        ),
        "a header that lies": (answer(with_header(length, b"%d" % length, b"9" * len(str(length)))), "wrong shape"),
        "a broken header": (answer(with_header(length, b"%d,)" % length, b"(" * len(f"{length},)"))), "no numpy array"),
        "objects in the header": (answer(with_header(length, b"'<f4'", b"'|O8'")), "wrong shape"),
        "other names": (answer(Array(vector), name="weights"), "wrong names"),
        "no arrays": (RecordDict({"metrics": MetricRecord(good)}), "0 records of kind ArrayRecord"),
        "no metrics": (RecordDict({"arrays": ArrayRecord({"flat": Array(vector)})}), "0 records of kind MetricRecord"),
        "no examples": (answer(Array(vector), {"num-steps": 4.0}), "num-examples = None"),
        "infinite steps": (answer(Array(vector), good | {"num-steps": math.inf}), "not a finite number"),
        "NaN examples": (answer(Array(vector), good | {"num-examples": math.nan}), "num-examples is not a number"),
        "a list": (answer(Array(vector), good | {"num-examples": [1, 2]}), "not a finite number"),
        "a repeat": (answer(Array(vector), good | {"dispatch": 3}), "repeat: answers dispatch 3, not 7"),
        "config only": (RecordDict({"c": ConfigRecord({"a": "b"})}), "0 records"),
    }


@pytest.mark.parametrize("kind", bad_answers(8))
def test_whatever_is_wrong_with_an_answer_is_told_and_not_used(task: Task, order: TrainRequest, kind: str) -> None:
    content, message = bad_answers(len(order.base))[kind]
    with pytest.raises(wire.WireError, match=message):
        wire.Server(task, 0).answer(content, order)
