"""Clients trained by Ray workers, on this machine or on a cluster; events stay the engine's.

Each worker is an actor. On the CPU it trains one client at a time, inline; on a GPU, or a share of one, it trains
several side by side, in lanes. Work goes to the least loaded workers, in order of virtual arrival time. Ray restarts a
worker that dies, and its clients are trained again: a client's result depends only on its order, so nothing is lost and
nothing changes.

By default Ray starts on this machine. For a cluster: ``ray start --head`` on one machine, ``ray start --address
HEAD:6379`` on the others (fedfa installed on each), and RAY_ADDRESS=HEAD:6379 for the command.
"""

import copy
import os
import re
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from heapq import heappop, heappush
from typing import Any

import numpy as np
import torch

from fedfa.errors import ConfigError, EngineError, in_a_line, require
from fedfa.executors.base import Executor, Trained, Workers, WorkOrder
from fedfa.executors.lanes import NAP_SECONDS, Lanes
from fedfa.executors.on_this_machine import auto, inline
from fedfa.learning.device import CPU, Device, as_array
from fedfa.learning.task import Task

AHEAD = 2
"""Clients that a worker has at a time: one in training and the next one."""
AHEAD_ON_GPU = 16
"""The same for a worker with lanes, which trains them side by side."""


class Worker:
    """Lives in a process of its own."""

    def __init__(self, seed: int, device: Device, compile: bool) -> None:
        torch.set_num_threads(1)
        self._device, self._lock = device, threading.Lock()
        self._switches = device.prepared()
        self._switches.__enter__()  # for as long as the worker lives
        self._make = partial(inline if device.kind == "cpu" else auto, seed=seed, device=device, compile=compile)
        self._executor: Any = None

    def train(self, order: WorkOrder, base: np.ndarray, fetch: Callable[[], Task]) -> Trained:
        """With lanes, calls come from several threads; the lock lets one at a time use the GPU."""
        try:
            with self._lock, self._device.in_front():
                self._executor = self._executor or self._make(fetch(), workers=1)
                order.base = self._device.vector(base.copy())  # Ray hands out read-only memory
                if not isinstance(self._executor, Lanes):
                    return _on_cpu(self._executor.train(order))
                self._executor.submit(order)
            while True:
                with self._lock, self._device.in_front():
                    self._executor.feed()
                    if self._executor.ready(order.dispatch):
                        return _on_cpu(self._executor.result(order.dispatch))
                time.sleep(NAP_SECONDS)
        except Exception as error:  # a client that raises must not end the run
            return Trained.failed(error)

    def process(self) -> int:
        return os.getpid()


class RayWorkers:
    """Hands orders to workers and collects what comes back."""

    shares = False
    device = CPU  # of the models between clients

    def __init__(self, task: Task, seed: int, workers: int = 0, device: Device = CPU, compile: bool = False) -> None:
        self.name = "ray" if device == CPU else f"ray, {device.kind}, {device.precision}"
        task.layout(task.build(seed))  # found out once here, not in every worker
        self._ray = ray = _ray()
        self._started = not ray.is_initialized()
        self.workers: list[Any] = []
        self._waiting: list[tuple[float, int, WorkOrder]] = []
        self._orders: dict[int, WorkOrder] = {}
        self._running: dict[Any, tuple[int, int, WorkOrder]] = {}
        self._models: dict[int, tuple[Any, Any]] = {}
        self._finished: dict[int, Trained] = {}
        if self._started:
            _start(ray, workers)
        there = ray.cluster_resources()
        needs: dict[str, float] = {"num_cpus": 1}
        if device.kind == "cuda":
            gpus = int(there.get("GPU", 0))
            if not gpus:
                self.close()
                raise ConfigError("device = 'cuda': no GPU in this Ray cluster; set device = 'cpu', or add one")
            count = workers or gpus
            needs["num_gpus"] = 1 if count <= gpus else 1 / -(-count // gpus)
        else:
            count = workers or max(1, int(there.get("CPU", 1)))
        self._ahead = AHEAD if device.kind == "cpu" else AHEAD_ON_GPU
        bare = copy.copy(task)
        bare.prepared = {}  # captured steps belong to this process
        for name, module in list(sys.modules.items()):
            if name.startswith("fedfa_user_"):  # code of the user's own, which no worker could import
                ray.cloudpickle.register_pickle_by_value(module)
        self._fetch = partial(ray.get, ray.put(bare))
        threads = 1 if device.kind == "cpu" else AHEAD_ON_GPU
        actor = ray.remote(Worker).options(max_restarts=-1, max_task_retries=-1, max_concurrency=threads, **needs)
        self.workers = [actor.remote(seed, device, compile) for _ in range(count)]
        self._load = [0] * count

    # What the engine asks ----------------------------------------------------------------------------------------

    def submit(self, order: WorkOrder) -> None:
        self._orders[order.dispatch] = order
        if order.dispatch not in self._finished:
            heappush(self._waiting, (order.arrives, order.dispatch, copy.copy(order)))
            self._hand_out()

    def ready(self, dispatch: int) -> bool:
        return dispatch in self._finished

    def result(self, dispatch: int) -> Trained:
        while not self.ready(dispatch):
            self.advance()
        del self._orders[dispatch]
        return self._finished.pop(dispatch)

    def discard(self, dispatch: int) -> None:
        self._orders.pop(dispatch, None)
        self._finished.pop(dispatch, None)
        self._waiting = sorted(entry for entry in self._waiting if entry[1] != dispatch)

    def finished(self) -> dict[int, Trained]:
        return dict(self._finished)

    def restore(self, finished: dict[int, Trained]) -> None:
        self._finished.update(finished)
        self._waiting = sorted(entry for entry in self._waiting if entry[1] not in finished)

    def meanwhile(self) -> None:
        pass

    def advance(self) -> None:
        self._collect()
        self._hand_out()

    def close(self) -> None:
        """End the workers, and Ray too if it was started here."""
        for reference in self._running:
            self._ray.cancel(reference)  # else Ray would announce that it tries them again
        for worker in self.workers:
            self._ray.kill(worker)
        if self._started:
            self._ray.shutdown()

    # Workers -----------------------------------------------------------------------------------------------------

    def _hand_out(self) -> None:
        """Give the most urgent orders to the least loaded workers."""
        while self._waiting:
            position = self._load.index(min(self._load))
            if self._load[position] >= self._ahead:
                return
            _, dispatch, order = heappop(self._waiting)
            base, order.base = self._model(order), None
            reference = self.workers[position].train.remote(order, base, self._fetch)
            self._running[reference] = position, dispatch, self._orders[dispatch]
            self._load[position] += 1

    def _model(self, order: WorkOrder) -> Any:
        """A published model in Ray's store; put there once for all clients that start from it."""
        version = order.base_version
        held = self._models.get(version)
        if held is None or held[0] is not order.base:
            wanted = {flight.base_version for flight in self._orders.values()}
            self._models = {known: value for known, value in self._models.items() if known in wanted}
            held = self._models[version] = order.base, self._ray.put(order.base)
        return held[1]

    def _collect(self) -> None:
        """Wait for the next result; drop it if the engine no longer waits for it."""
        (reference,), _ = self._ray.wait(list(self._running), num_returns=1)
        position, dispatch, order = self._running.pop(reference)
        self._load[position] -= 1
        try:
            trained = self._ray.get(reference)
        except Exception as error:
            raise EngineError(f"ray: a worker could not train client {order.client} ({in_a_line(error)})") from error
        if self._orders.get(dispatch) is order:
            self._finished[dispatch] = trained


def ray(task: Task, seed: int, device: Device, compile: bool, workers: Workers) -> Executor:
    """Ray workers, on this machine or on a cluster."""
    return RayWorkers(task, seed, workers if isinstance(workers, int) else 0, device, compile)


def _on_cpu(trained: Trained) -> Trained:
    return trained if trained.params is None else replace(trained, params=as_array(trained.params))


def _ray() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import ray
        except ImportError as error:
            raise ConfigError("executor = 'ray' needs the ray extra: pip install 'fedfa[ray]'") from error
    return ray


def _start(ray: Any, workers: int) -> None:
    """Join the cluster that RAY_ADDRESS names, or start Ray here."""
    address = os.environ.get("RAY_ADDRESS")
    settings: dict[str, Any] = {"address": address} if address else {"include_dashboard": False}
    if workers and not address:
        settings["num_cpus"] = workers
    start: Callable[..., Any] = ray.init
    try:
        if address and (host := re.fullmatch(r"(?:ray://)?([^:/]+):(\d+)", address)):
            socket.create_connection((host[1], int(host[2])), timeout=10).close()  # Ray itself would wait for minutes
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            start(log_to_driver=False, logging_level="ERROR", **settings)
    except Exception as error:  # an address without an answer, a port in use, ...
        raise ConfigError(f"ray: cannot be started ({in_a_line(error)}); check RAY_ADDRESS={address or ''}") from error
    require(bool(ray.is_initialized()), "ray: did not start")
