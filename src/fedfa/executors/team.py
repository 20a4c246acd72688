"""Processes that train the clients of one run side by side, on the cores of this machine.

They are forks of the run's own process: they start within milliseconds, and share its task, its captured steps and its
code in memory, wherever a model was defined. Orders go through one pipe, from which whoever is free takes the next;
results come back through another. Each write and each read is one whole record, which the kernel never splits. Models
travel in slots of shared memory. A client's result has the same bits in every process, so it does not matter which one
trains a client, nor how often.
"""

import mmap
import multiprocessing
import os
import selectors
import signal
import struct
import sys
import threading
import warnings
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from multiprocessing.process import BaseProcess

import numpy as np
import torch

from fedfa.executors.base import Trained, WorkOrder

ORDER = struct.Struct("=qqqqqdd")
"""Slot, dispatch, client, nth, epochs, prox_mu, arrives."""
ANSWER = struct.Struct("=q?qdd")
"""Slot, whether training went well, number of examples, steps, loss."""
SLOTS = 2
"""For each process: the client in training, and the next one."""
MOST_PROCESSES = 64
"""Few enough records at a time that two processes never wait for each other's full pipe, however small it is."""
SILENT_SECONDS = 1800.0
"""A team of which nothing was heard for so long is ended; its clients are trained elsewhere."""


class TeamLost(Exception):
    """A process was killed, or does not answer."""


def why_alone() -> str:
    """Why this process cannot have a team; empty if it can."""
    if sys.platform != "linux":
        return "only Linux forks a process safely"
    if torch.cuda.is_available():
        return "PyTorch sees a GPU, and then cannot train in a fork; CUDA_VISIBLE_DEVICES= hides it"
    if torch.get_num_threads() > 1:
        return "engine.threads is above 1"
    if multiprocessing.current_process().daemon:
        return "a daemonic process may not start others"
    return ""


def end_with_parent() -> None:
    """End this process when its parent was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class Team:
    """Trains submitted orders, those that arrive first before others."""

    def __init__(self, train: Callable[[WorkOrder], Trained], length: int, processes: int, most: int) -> None:
        """``train`` may not raise; ``length`` is that of a flat model; it can grow to so many processes at most."""
        self._train, self._length = train, length
        self._memory = mmap.mmap(-1, SLOTS * most * 4 * length)
        self._most, self._free = most, list[int]()
        self._serving: dict[int, int | None] = {}
        """Dispatches by slot; None where the result is no longer wanted."""
        self._waiting: list[tuple[float, int]] = []
        self._orders: dict[int, WorkOrder] = {}
        self._finished: dict[int, Trained | None] = {}
        """None where training failed."""
        self._orders_out, self._orders_in = os.pipe()
        self._answers_out, self._answers_in = os.pipe()
        os.set_blocking(self._answers_out, False)
        self._news = selectors.DefaultSelector()
        self._news.register(self._answers_out, selectors.EVENT_READ)
        self.processes: list[BaseProcess] = []
        self.grow(processes)

    def grow(self, processes: int) -> None:
        """Have at least so many processes."""
        while len(self.processes) < min(processes, self._most):
            process = multiprocessing.get_context("fork").Process(target=self._serve, daemon=True)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter(
                        "ignore", DeprecationWarning
                    )  # of threads: ``_serve`` needs none of their locks
                    process.start()
            except OSError:  # no memory, or too many processes
                if not self.processes:
                    self.close()
                    raise
                self._most = len(self.processes)
                return
            self._free += [len(self.processes) * SLOTS + number for number in range(SLOTS)]
            self.processes.append(process)
            self._news.register(process.sentinel, selectors.EVENT_READ)

    # What the executor asks ------------------------------------------------------------------------------------------

    def submit(self, order: WorkOrder) -> None:
        self._orders[order.dispatch] = order
        heappush(self._waiting, (order.arrives, order.dispatch))
        self.feed()

    def result(self, dispatch: int) -> Trained | None:
        """None if training failed; raises TeamLost if nothing more can be expected."""
        self.feed()
        while dispatch not in self._finished:
            news = {key.fd for key, _ in self._news.select(SILENT_SECONDS)}
            self.feed()
            if news != {self._answers_out} and dispatch not in self._finished:
                raise TeamLost
        return self._finished.pop(dispatch)

    def discard(self, dispatch: int) -> None:
        self._finished.pop(dispatch, None)
        if self._orders.pop(dispatch, None):
            self._waiting = [entry for entry in self._waiting if entry[1] != dispatch]
            heapify(self._waiting)
        self._serving = {slot: None if serves == dispatch else serves for slot, serves in self._serving.items()}

    def finished(self) -> dict[int, Trained]:
        self.feed()
        return {dispatch: trained for dispatch, trained in self._finished.items() if trained}

    def feed(self) -> None:
        """Take what has come, without waiting, and hand out what then has room."""
        try:
            records = os.read(self._answers_out, SLOTS * self._most * ANSWER.size)
        except BlockingIOError:
            records = b""
        for slot, well, num_examples, num_steps, loss in ANSWER.iter_unpack(records):
            dispatch = self._serving.pop(slot)
            if dispatch is not None:
                trained = Trained(self._model(slot).copy(), num_examples, num_steps, loss) if well else None
                self._finished[dispatch] = trained
            self._free.append(slot)
        self._hand_out()

    def close(self) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.join()
        self._news.close()
        for pipe in (self._orders_out, self._orders_in, self._answers_out, self._answers_in):
            os.close(pipe)

    # Within ----------------------------------------------------------------------------------------------------------

    def _model(self, slot: int) -> np.ndarray:
        return np.frombuffer(self._memory, np.float32, self._length, slot * 4 * self._length)

    def _hand_out(self) -> None:
        while self._waiting and self._free:
            _, dispatch = heappop(self._waiting)
            order, slot = self._orders.pop(dispatch), self._free.pop()
            np.copyto(self._model(slot), order.base)
            self._serving[slot] = dispatch
            record = slot, dispatch, order.client, order.nth, order.epochs, order.prox_mu, order.arrives
            os.write(self._orders_in, ORDER.pack(*record))

    # In a process of the team ----------------------------------------------------------------------------------------

    def _serve(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run decides when to end
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        threading.Thread(target=end_with_parent, daemon=True).start()
        while record := os.read(self._orders_out, ORDER.size):
            slot, dispatch, client, nth, epochs, prox_mu, arrives = ORDER.unpack(record)
            model = self._model(slot)
            trained = self._train(WorkOrder(dispatch, 0, client, nth, model, epochs, prox_mu, arrives))
            if trained.params is not None:
                np.copyto(model, trained.params)
            answer = slot, not trained.error, trained.num_examples, trained.num_steps, trained.loss
            os.write(self._answers_in, ANSWER.pack(*answer))
