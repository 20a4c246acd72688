"""Messages between server and clients, without any daemon."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedfa import LocalTraining, Task
from fedfa.deployment.transport import TrainRequest
from fedfa.executors.base import Trained, WorkOrder
from fedfa.executors.trainer import Trainer
from tests.helpers.ordinary_models import Tutorial

pytest.importorskip("flwr")

from flwr.app import (  # noqa: TID251
    Array,
    ArrayRecord,
    ConfigRecord,
    MetricRecord,
    RecordDict,
)

from fedfa.deployment.flower import client, wire


def model() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 10))


@pytest.fixture(scope="module")
def task() -> Task:
    data = torch.zeros(4, 1, 8, 8), torch.arange(4)
    return Task(model=model, clients=[data], test=data, local=LocalTraining(epochs=3, batch_size=8))


@pytest.fixture(scope="module")
def order(task: Task) -> TrainRequest:
    return TrainRequest(7, 3, task.initial(0).vector, 3, 0.5, 11)


def test_an_order_arrives_as_it_was_sent(task: Task, order: TrainRequest) -> None:
    seen = wire.read_order(wire.Server(task, 0).order(order), task.layout(task.build(0)))
    assert seen._replace(base=None) == order._replace(base=None)
    assert seen.base.tobytes() == order.base.tobytes()


def test_an_answer_arrives_as_it_was_sent(task: Task, order: TrainRequest) -> None:
    trained = Trained(order.base + np.float32(1), 20, 9.5, 0.25)
    seen = wire.Server(task, 0).answer(wire.write_answer(order, trained, task.layout(task.build(0))), order)
    assert (seen.num_examples, seen.num_steps, seen.loss) == (20, 9.5, 0.25)
    assert seen.params.tobytes() == trained.params.tobytes()


@pytest.mark.parametrize("length", [1, 7, 100_003])
def test_arrays_are_byte_for_byte_those_of_flower(length: int) -> None:
    vector = np.random.default_rng(0).standard_normal(length).astype(np.float32)
    assert wire.array_from(vector) == Array(vector)
    assert wire.array_from(vector[::2]) == Array(vector[::2].copy())


def test_named_tensors_mean_the_same_as_the_flat_vector(task: Task, order: TrainRequest) -> None:
    """Also for buffers, and for convolutions, which lie channels last in the flat vector. Steps are computed."""
    server = wire.Server(task, 0, "named")
    module = model()
    module.load_state_dict(server.order(order)["arrays"].to_torch_state_dict())
    assert task.layout(module).pack(module).numpy().tobytes() == order.base.tobytes()
    answer = RecordDict(
        {"arrays": ArrayRecord(module.state_dict()), "metrics": MetricRecord({"num-examples": 20, "train_loss": 2.0})}
    )
    seen = server.answer(answer, order)
    assert seen.params.tobytes() == order.base.tobytes()
    assert (seen.num_examples, seen.num_steps, seen.loss) == (20, 9.0, 2.0)


def own_cnn(channels_last: bool) -> Task:
    """The tutorial's CNN, which one side writes with ``view`` and the other with ``flatten``."""
    data = torch.randn(12, 3, 32, 32, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3
    made = Task(
        model=lambda: Tutorial(torch.nn.Flatten()) if channels_last else Tutorial(),
        clients=[data],
        test=data,
        local=LocalTraining(epochs=2, batch_size=4, lr=0.05),
    )
    assert made.layout(made.build(0)).channels_last is channels_last
    return made


@pytest.mark.parametrize("server", [True, False], ids=["server channels last", "server plain"])
@pytest.mark.parametrize("client", [True, False], ids=["client channels last", "client plain"])
def test_server_and_client_may_compute_in_different_layouts(server: bool, client: bool) -> None:
    ours, theirs = own_cnn(server), own_cnn(client)
    sent = TrainRequest(0, 0, ours.initial(0).vector, 2, 0.0, 0)
    layout = theirs.layout(theirs.build(0))
    seen = wire.read_order(wire.Server(ours, 0).order(sent), layout)
    np.testing.assert_array_equal(seen.base, theirs.initial(0).vector)
    trained = Trainer(theirs, 0).train(WorkOrder(0, 0, 0, 0, seen.base, 2, 0.0, 0.0))
    answered = wire.Server(ours, 0).answer(wire.write_answer(seen, trained, layout), sent)
    expected = Trainer(ours, 0).train(WorkOrder(0, 0, 0, 0, sent.base, 2, 0.0, 0.0))
    moved = np.linalg.norm(expected.params - sent.base)
    assert np.linalg.norm(answered.params - expected.params) <= 1e-4 * moved
    named = ours.state_dict(answered.params.copy(), 0)
    for name, tensor in theirs.state_dict(trained.params, 0).items():
        assert torch.equal(named[name], tensor), name


@pytest.mark.parametrize("channels_last", [True, False])
def test_a_node_tries_its_layout_once_per_run(channels_last: bool) -> None:
    """A new process, which knows no earlier message, takes the stored layout and trains as a simulation does."""
    ours, state = own_cnn(True), RecordDict()
    server = wire.Server(ours, 0)
    for dispatch in range(2):
        order, theirs = TrainRequest(dispatch, 0, ours.initial(0).vector, 2, 0.0, 0), own_cnn(channels_last)
        theirs.channels_last = None
        client._remember_layout(theirs, state)
        assert theirs.channels_last is channels_last
        answer = server.answer(client._train_task(server.order(order), theirs, {}), order)
        expected = Trainer(ours, 0).train(WorkOrder(dispatch, 0, 0, dispatch, order.base, 2, 0.0, 0.0))
        moved = np.linalg.norm(expected.params - order.base)
        assert np.linalg.norm(answer.params - expected.params) <= 1e-4 * moved
    remembered: Any = state["fedfa"]
    remembered["channels-last"] = False  # taken as it is, and not tried again
    client._remember_layout(theirs := own_cnn(True), state)
    assert theirs.channels_last is False


def test_the_flat_array_is_in_the_order_of_pytorch() -> None:
    task = own_cnn(True)
    module, order = task.build(0), TrainRequest(0, 0, task.initial(0).vector, 2, 0.0, 0)
    content: Any = wire.Server(task, 0).order(order)
    array = content["arrays"]["flat"].numpy()
    tensors = [module.state_dict()[name].reshape(-1) for name in task.layout(module).names]
    np.testing.assert_array_equal(array, torch.cat(tensors).numpy())
    assert (array != order.base).any()


def with_header(length: int, old: bytes, new: bytes) -> Array:
    """The metadata are right, and the header inside the bytes is not."""
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
        "half as many doubles": (answer(Array(np.zeros(length // 2, np.float64))), "wrong shape"),
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
def test_a_wrong_answer_is_refused_with_the_reason(task: Task, order: TrainRequest, kind: str) -> None:
    content, message = bad_answers(len(order.base))[kind]
    with pytest.raises(wire.WireError, match=message):
        wire.Server(task, 0).answer(content, order)
