"""In-flight clients side by side on a GPU: each has its own lane, and trains from the moment it is dispatched.

Lanes (see lane.py) overlap, so small batches fill the GPU together, and an arrival waits only for its own lane. A GPU
queues a limited number of launches (about fifty of ResNet-18's step) and then blocks the host. So the host feeds all
lanes in turn, a few steps each, while it waits for an arrival.

Models, data and windows stay on the GPU. A client's result does not depend on its lane or its neighbours.
"""

import time

import torch

from fedfa.errors import in_a_line
from fedfa.executors.base import Trained, WorkOrder
from fedfa.executors.capture import CannotCapture
from fedfa.executors.lane import Lane, Shared
from fedfa.learning.device import Device
from fedfa.learning.local import own_seed
from fedfa.learning.task import Task

NAP_SECONDS = 5e-5
"""The host's pause when every lane has enough work."""
MOST_LANES = 64
"""Lanes with which another run may begin beside the present ones."""
LEAST_FREE = 0.4
"""Share of the GPU's memory that must be free for it."""
LARGEST_ERROR = 0.05
"""Largest distance between a captured step and a plain one, in lengths of the step; beyond it the graph is wrong."""


class Pool:
    """Lanes that runs of one task and seed use at the same time, and one after the other."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.free: list[Lane] = []
        self.busy: list[Lane] = []

    def take(self) -> Lane:
        lane = self.free.pop(0) if self.free else Lane(self.shared)
        self.busy.append(lane)
        return lane

    def give_back(self, lane: Lane) -> None:
        self.busy.remove(lane)
        self.free.append(lane)


class Lanes:
    """Trains every submitted order at once, each on its own lane."""

    name = "lanes"

    @classmethod
    def prepared(cls, task: Task, seed: int, device: Device, compile: bool = False) -> "Lanes":
        """For one of several runs that share their lanes: capturing takes as long as some clients' training."""
        key = (cls.name, seed, device, compile)
        if key not in task.prepared:
            with device.prepared():
                task.prepared[key] = cls(task, seed, device, compile)
        return cls(task, seed, device, compile, task.prepared[key].pool)

    def __init__(self, task: Task, seed: int, device: Device, compile: bool = False, pool: Pool | None = None) -> None:
        self._task, self._seed, self.device = task, seed, device
        self._busy: dict[int, Lane] = {}
        self.pool = pool or Pool(Shared(task, seed, device, compile))
        if pool is None:
            self._prepare()

    @property
    def shared(self) -> Shared:
        return self.pool.shared

    @property
    def shares(self) -> bool:
        """There is room on the GPU for the lanes of another run."""
        return len(self.pool.busy) < MOST_LANES and self.device.free_share() > LEAST_FREE

    def _prepare(self) -> None:
        try:
            self._try()
        except CannotCapture:
            if not self.shared.fills_up:
                raise
            self.shared.keep_sizes()
            self._try()

    # What the engine asks ----------------------------------------------------------------------------------------

    def submit(self, order: WorkOrder) -> None:
        self._busy[order.dispatch] = lane = self.pool.take()
        table, sizes = self._task.batch_table(self._seed, order.client, order.nth, order.epochs)
        lane.start(order, table, sizes, own_seed(self._seed, order.client, order.nth))
        lane.feed()

    def result(self, dispatch: int) -> Trained:
        lane = self._busy[dispatch]
        while not lane.ready():
            self.advance()
        del self._busy[dispatch]
        params, loss, steps = lane.collect()
        self.pool.give_back(lane)
        order = lane.order
        return Trained(
            params=params,
            num_examples=self._task.sizes[order.client],
            num_steps=self._task.local.effective_steps(steps, order.prox_mu),
            loss=loss,
        )

    def discard(self, dispatch: int) -> None:
        lane = self._busy.pop(dispatch, None)
        if lane is not None:
            lane.stop()
            self.pool.give_back(lane)

    def finished(self) -> dict[int, Trained]:
        return {}  # a continued run trains the clients in flight again, from the same models

    def restore(self, finished: dict[int, Trained]) -> None:
        pass

    def meanwhile(self) -> None:
        self.advance()

    def advance(self) -> None:
        if not self.feed():
            time.sleep(NAP_SECONDS)

    def close(self) -> None:
        for dispatch in list(self._busy):
            self.discard(dispatch)

    # In progress -------------------------------------------------------------------------------------------------

    def feed(self) -> bool:
        """Launch the steps that the lanes of all runs can queue; returns whether there were any."""
        return sum(lane.feed() for lane in self.pool.busy) > 0

    def ready(self, dispatch: int) -> bool:
        """Whether a result is available without waiting."""
        return self._busy[dispatch].ready()

    # Whether that is right ---------------------------------------------------------------------------------------

    def _try(self) -> None:
        """Compare a captured step with plain ones; refuse a model that cannot be captured, or whose result differs."""
        try:
            table, sizes = self._task.batch_table(self._seed, 0, 0, 1)
            batch, initial = self.device.put(table[0, : sizes[0]]), self.shared.initial
            if self.device.precision == "bf16":
                self.shared.keep_copies(batch)
            lane = Lane(self.shared)
            lane.check(batch)
            order = WorkOrder(0, 0, 0, 0, initial, 1, 0.0, 0.0)
            ends = []
            for captured in (False, False, True):
                lane.start(order, table[:1], sizes[:1], 0, captured)
                lane.feed()
                ends.append(lane.collect()[0] - initial)
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
        self.pool.free.append(lane)
