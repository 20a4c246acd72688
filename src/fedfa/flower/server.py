"""The server's side: a Flower ServerApp that runs any fedfa strategy on the nodes there are."""

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedfa.comparison import strategy_settings
from fedfa.core import Strategy
from fedfa.deployment import Deployment
from fedfa.engine import Stop
from fedfa.errors import require
from fedfa.experiment import make_strategy
from fedfa.flower.client import TaskSource, make_task
from fedfa.flower.wire import Form, Server
from fedfa.flower.world import FlowerWorld
from fedfa.record import Run
from fedfa.settings import build

logger = logging.getLogger("fedfa")


@dataclass(frozen=True, slots=True)
class DeploymentSettings:
    """What the run config of a deployment may say (with hyphens)."""

    out: str
    """Folder for the run's records, on the machine of the SuperLink."""
    strategy: str = "fedfa-param"
    """NAME or NAME:KEY=VALUE:..., as in 'fedfa compare'; 'fedfa strategies' lists names and keys."""
    seed: int = 0
    resume: bool = False
    """Continue the unfinished run in the folder."""
    stop_updates: int = 0
    """Accepted updates after which to end; 0: no such limit."""
    stop_seconds: float = 0.0
    """Wall seconds after which to end; 0: no such limit."""
    stop_accuracy: float = 0.0
    """Test accuracy at which to end; 0: no such limit."""
    target: float = 0.0
    """Accuracy that reports give the time to; 0: none."""
    evaluate_every: int = 10
    """Accepted updates between evaluations on the server."""
    keep_updates: bool = False
    """Keep every update on disk, so that the whole aggregation can be computed again."""
    ttl_seconds: float = 3600.0
    """A client that has not answered by then is given up."""
    bench_seconds: float = 5.0
    """A node that failed gets no work for so long, twice as long each time in a row."""
    checkpoint_seconds: float = 60.0
    wire: Form = "flat"
    """flat: one array, for fedfa's client app; named: PyTorch's tensors by name, for stock Flower clients."""
    client_threads: int = 1
    """Threads that a client trains with."""

    def __post_init__(self) -> None:
        require(self.out != "", "out = '': give the folder for the run's records")
        for name in ("ttl_seconds", "checkpoint_seconds", "client_threads"):
            require(getattr(self, name) > 0, f"{name} = {getattr(self, name)}: must be above 0")

    @property
    def stop(self) -> Stop:
        return Stop(self.stop_updates or None, self.stop_seconds or None, self.stop_accuracy or None)


def settings_of(run_config: Mapping[str, Any]) -> DeploymentSettings:
    """The settings in a run config; keys of the user's own app are left to it."""
    known = {f.name for f in fields(DeploymentSettings)}
    found = {key.replace("-", "_"): value for key, value in run_config.items()}
    return build(DeploymentSettings, {key: value for key, value in found.items() if key in known})


def server_app(task: TaskSource, strategy: Strategy | None = None) -> ServerApp:
    """A ServerApp that trains the task's model on the federation, as the run config says.

    ``strategy``: an object of your own, instead of the one that the run config names.
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
        strategy = make_strategy(strategy_settings({}, settings.strategy), "strategy")
    world = FlowerWorld(grid, Server(made, settings.seed, settings.wire), settings.ttl_seconds)
    try:
        return Deployment(
            strategy=strategy,
            task=made,
            world=world,
            stop=settings.stop,
            folder=Path(settings.out).absolute(),
            seed=settings.seed,
            evaluate_every=settings.evaluate_every,
            keep_updates=settings.keep_updates,
            bench_seconds=settings.bench_seconds,
            checkpoint_seconds=settings.checkpoint_seconds,
            target=settings.target or None,
            command="flwr run",
        ).run(settings.resume)
    finally:
        world.close()
