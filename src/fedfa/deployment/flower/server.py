"""The server's side: a Flower ServerApp that runs any fedfa strategy on the connected nodes."""

import logging
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedfa.deployment.engine import Deployment
from fedfa.deployment.flower.client import TaskSource, make_task
from fedfa.deployment.flower.transport import FlowerTransport
from fedfa.deployment.flower.wire import Server
from fedfa.deployment.settings import DeploymentSettings, settings_of
from fedfa.runs.run import Run
from fedfa.strategies.base import Strategy
from fedfa.strategies.specs import strategy_from

logger = logging.getLogger("fedfa")


def server_app(task: TaskSource, strategy: Strategy | None = None) -> ServerApp:
    """A ServerApp that trains the task's model on the federation, with the settings of the run config.

    ``strategy``: your own object, instead of the one that the run config names.
    """
    app = ServerApp()

    @app.main()
    def _(grid: Grid, context: Context) -> None:
        serve(grid, task, settings_of(context.run_config), strategy)

    return app


def serve(grid: Grid, task: TaskSource, settings: DeploymentSettings, strategy: Strategy | None = None) -> Run:
    """Run a deployment over this grid, to its end."""
    if not logger.handlers:
        logger.addHandler(logging.StreamHandler(sys.stdout))
        logger.setLevel(logging.INFO)
    made = make_task(task, settings.seed, None)
    if strategy is None:
        strategy = strategy_from(settings.strategy)
    transport = FlowerTransport(grid, Server(made, settings.seed, settings.wire), settings.ttl_seconds)
    try:
        with stopped_in_order():
            return Deployment(
                strategy=strategy, task=made, transport=transport, settings=settings, command="flwr run"
            ).run()
    finally:
        transport.close()


@contextmanager
def stopped_in_order() -> Iterator[None]:
    """Let the run record its end in its folder: Flower stops a ServerApp with a signal and soon ends its process.

    It does so after ``flwr stop``, and when a SuperLink comes back that has given up the run.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    flowers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    came: list[int] = []

    def stop(number: int, _: object) -> None:
        came.append(number)
        if len(came) == 1:
            raise KeyboardInterrupt

    for number in flowers:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in flowers.items():
            signal.signal(number, handler)
        if came:
            logger.warning("stopped before the end; what was accepted is on disk, go on with resume=true")
            signal.raise_signal(came[0])
