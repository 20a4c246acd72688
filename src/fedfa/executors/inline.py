"""One client at a time, with plain PyTorch autograd: the reference for every other executor."""

import torch

from fedfa.executors.base import Trained, WorkOrder
from fedfa.learning.device import CPU, Device
from fedfa.learning.local import own_seed
from fedfa.learning.task import Task


class Inline:
    """Trains a client when its result is asked for. One module serves all: it lives in one flat vector."""

    name = "inline"

    def __init__(self, task: Task, seed: int, device: Device = CPU) -> None:
        self._task = task
        self._seed = seed
        self.device = device
        self._bound = task.flat_module(task.build(seed).to(device.kind))
        self._inputs, self._targets = device.put(task.inputs), device.put(task.targets)
        self._orders: dict[int, WorkOrder] = {}
        self._finished: dict[int, Trained] = {}

    def submit(self, order: WorkOrder) -> None:
        self._orders[order.dispatch] = order

    def result(self, dispatch: int) -> Trained:
        order = self._orders.pop(dispatch)
        if dispatch in self._finished:
            return self._finished.pop(dispatch)
        try:
            return self.train(order)
        except Exception as error:  # a client that raises must not end the run
            return Trained.failed(error)

    def discard(self, dispatch: int) -> None:
        self._orders.pop(dispatch, None)
        self._finished.pop(dispatch, None)

    def finished(self) -> dict[int, Trained]:
        return dict(self._finished)

    def restore(self, finished: dict[int, Trained]) -> None:
        self._finished.update(finished)

    def meanwhile(self) -> None:
        pass

    def close(self) -> None:
        pass

    def train(self, order: WorkOrder) -> Trained:
        task, local = self._task, self._task.local
        bound, device = self._bound, self.device
        base = torch.as_tensor(order.base)
        bound.load(base)
        base = base[: len(bound.trainable)]
        memory = local.new_memory(bound.trainable)
        batches = task.batches(self._seed, order.client, order.nth, order.epochs)
        losses = torch.empty(len(batches), device=device.kind)
        with torch.random.fork_rng(devices=[] if device.kind == "cpu" else None):
            torch.manual_seed(own_seed(self._seed, order.client, order.nth))
            for number, batch in enumerate(map(device.put, batches)):
                bound.gradient.zero_()
                with device.computing():
                    loss = task.loss(bound.module(bound.layout.laid_out(self._inputs[batch])), self._targets[batch])
                loss.backward()
                with torch.no_grad():
                    local.step(bound.trainable, bound.gradient, memory, base, order.prox_mu)
                losses[number] = loss.detach()
        return Trained(
            params=bound.collect().numpy() if device.kind == "cpu" else bound.collect(),
            num_examples=task.sizes[order.client],
            num_steps=local.effective_steps(len(batches), order.prox_mu),
            loss=float(losses.mean()),
        )
