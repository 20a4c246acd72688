"""The client's side: a Flower ClientApp that trains with fedfa's loop or with the user's own function."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from fedfa.deployment.flower.wire import number_in, read_order, write_answer
from fedfa.deployment.transport import TrainRequest
from fedfa.errors import check, require
from fedfa.executors.base import Trained, WorkOrder
from fedfa.executors.trainer import Trainer
from fedfa.learning.data.settings import DataSettings
from fedfa.learning.data_task import data_task
from fedfa.learning.flat import FlatModule
from fedfa.learning.local import LocalTraining
from fedfa.learning.models.settings import ModelSettings
from fedfa.learning.task import Task

Node = Mapping[str, Any]
"""The SuperNode's ``--node-config``."""
TaskSource = str | Task | Callable[[int, Node | None], Task]
"""A task, "digits", or a function of the seed and the node (None on the server)."""


def client_app(
    task: TaskSource | None = None,
    *,
    model: Callable[[], nn.Module] | None = None,
    train: Callable[[nn.Module, TrainRequest, Node], Trained] | None = None,
) -> ClientApp:
    """A ClientApp for a task, or for a model and a function that trains it.

    If a task has several clients' data, the node trains on the part with its ``partition-id``; if it has one client's
    data, the node trains on that. ``train(module, order, node)`` gets the module with the order's values and returns a
    ``Trained(None, num_examples, num_steps, loss)``; the module's values are sent back.
    """
    require((task is None) != (model is None or train is None), "client_app: give a task, or model= and train=")
    app = ClientApp()

    @app.train()
    def _(message: Message, context: Context) -> Message:
        torch.set_num_threads(int(context.run_config.get("client-threads", 1)))
        seed = int(number_in(message.content["config"], "seed"))
        if task is None:
            assert model is not None
            assert train is not None
            answer = _train_module(message.content, model(), train, context.node_config)
        else:
            made = make_task(task, seed, context.node_config)
            _remember_layout(made, context.state)
            answer = _train_task(message.content, made, context.node_config)
        return Message(answer, reply_to=message)

    return app


def make_task(source: TaskSource, seed: int, node: Node | None) -> Task:
    """The task from a source, on a node or (None) on the server."""
    if isinstance(source, str):
        check(source == "digits", "task", source, "must be 'digits', a fedfa.Task or a function")
        return digits(seed, node)
    made = source if isinstance(source, Task) else source(seed, node)
    require(isinstance(made, Task), f"task: must be a fedfa.Task, is a {type(made).__name__}")
    return made


def digits(seed: int, node: Node | None, local: LocalTraining | None = None) -> Task:
    """The embedded task, split among ``num-partitions`` clients."""
    parts = 1 if node is None else node.get("num-partitions", 1)
    check(isinstance(parts, int) and parts >= 1, "num-partitions", parts, "must be 1, 2, 3, ...")
    return data_task(DataSettings(clients=parts), ModelSettings(), local or LocalTraining(), seed)  # pyright: ignore


def _remember_layout(task: Task, state: RecordDict) -> None:
    """Try this node's memory layout only once per run: each message may come to a new process."""
    known = state.get("fedfa")
    if isinstance(known, ConfigRecord):
        task.channels_last = bool(known["channels-last"])
    else:
        layout = task.layout(task.build(0))
        state["fedfa"] = ConfigRecord({"channels-last": layout.channels_last})


def _train_task(content: RecordDict, task: Task, node: Node) -> RecordDict:
    layout = task.layout(task.build(0))
    order = read_order(content, layout)
    place: Any = 0 if task.num_clients == 1 else node.get("partition-id")
    if task.num_clients > 1:
        check(
            isinstance(place, int) and 0 <= place < task.num_clients,
            "partition-id",
            place,
            f"start the SuperNode with --node-config 'partition-id=N', N from 0 to {task.num_clients - 1}",
        )
    most = task.local.epochs
    check(order.epochs <= most, "epochs", order.epochs, f"this site's task has {most}; give all the same app")
    work = WorkOrder(
        order.dispatch, order.base_version, place, order.dispatch, order.base, order.epochs, order.prox_mu, 0.0
    )  # fmt: skip
    return write_answer(order, Trainer(task, order.seed).train(work), layout)


def _train_module(
    content: RecordDict, module: nn.Module, train: Callable[[nn.Module, TrainRequest, Node], Trained], node: Node
) -> RecordDict:
    bound = FlatModule(module.train())
    order = read_order(content, bound.layout)
    bound.load(torch.from_numpy(order.base))
    done = train(module, order, node)
    require(isinstance(done, Trained), f"train: must return a fedfa Trained, returned a {type(done).__name__}")
    trained = Trained(bound.collect().numpy(), done.num_examples, done.num_steps, done.loss)
    return write_answer(order, trained, bound.layout)
