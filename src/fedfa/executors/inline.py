"""One client at a time, in this thread: the reference for every other executor."""

from fedfa.executors.base import Trained, WorkOrder
from fedfa.executors.trainer import Trainer
from fedfa.learning.device import CPU, Device
from fedfa.learning.task import Task


class Inline:
    """Trains a client when its result is asked for."""

    name = "inline"
    shares = False

    def __init__(self, task: Task, seed: int, device: Device = CPU) -> None:
        self.device = device
        self._trainer = Trainer.of(task, seed, device)
        self._orders: dict[int, WorkOrder] = {}
        self._finished: dict[int, Trained] = {}

    def submit(self, order: WorkOrder) -> None:
        self._orders[order.dispatch] = order

    def ready(self, dispatch: int) -> bool:
        return True

    def result(self, dispatch: int) -> Trained:
        order = self._orders.pop(dispatch)
        if dispatch in self._finished:
            return self._finished.pop(dispatch)
        return self._trainer.result(order)

    def train(self, order: WorkOrder) -> Trained:
        return self._trainer.train(order)

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
