"""``simulate``: one call from strategy, task and weather to a finished, recorded run."""

import logging
import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from fedfa.errors import RecordError, check, require
from fedfa.executors.base import Executor
from fedfa.executors.cores import machine_cores
from fedfa.learning.base import EngineTask
from fedfa.learning.data_task import named_task
from fedfa.learning.task import Task
from fedfa.runs.run import Run
from fedfa.runs.stop import Stop
from fedfa.runs.store import is_begun, is_finished, read_run, write_run
from fedfa.settings import build
from fedfa.simulation.engine import Simulation, Steps
from fedfa.simulation.settings import EngineSettings
from fedfa.simulation.together import alone, undisturbed
from fedfa.simulation.weather import Weather, weather_from
from fedfa.strategies.base import Strategy
from fedfa.strategies.specs import strategy_from

logger = logging.getLogger("fedfa")

SAMPLED = 1000
"""Clients by which the work of a run is estimated."""
DEFAULT_STOP = Stop(updates=500)


def simulate(
    strategy: str | Strategy,
    task: str | EngineTask = "digits",
    weather: str | Weather | Mapping[str, Any] = "paper",
    stop: Stop | Mapping[str, Any] = DEFAULT_STOP,
    seed: int = 0,
    *,
    engine: EngineSettings | Mapping[str, Any] | None = None,
    executor: Executor | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    label: str = "",
    command: str = "",
    target: float | None = None,
    interrupted: Callable[[], bool] = lambda: False,
    progress: Callable[[Simulation], None] | None = None,
) -> Run:
    """Run one experiment on the virtual clock.

    ``strategy`` and ``weather`` may be names (a strategy's with settings, as in "fedbuff:buffer=3"), ``task`` a
    :class:`fedfa.Task` or "digits". ``weather``, ``stop`` and ``engine`` may be tables as in an experiment file:
    ``engine={"executor": "inline", "evaluate_every": 5}``. With ``out`` the run is recorded in that folder, survives a
    crash there, and can be continued with ``resume=True``. ``interrupted`` is called between arrivals; when it returns
    true, the run is saved and :class:`KeyboardInterrupt` is raised. ``progress`` is called from time to time.
    ``executor`` is your own object, instead of the one that ``engine`` names.
    """
    settings = EngineSettings.of(engine)
    steps = simulation(
        strategy, task, weather, stop, seed, engine=settings, executor=executor, out=out, resume=resume,
        label=label, command=command, target=target, interrupted=interrupted, progress=progress,
    )  # fmt: skip
    with undisturbed(settings.threads, settings.front if executor is None else executor.device):
        return alone(steps)


def simulation(
    strategy: str | Strategy, task: str | EngineTask = "digits", weather: str | Weather | Mapping[str, Any] = "paper",
    stop: Stop | Mapping[str, Any] = DEFAULT_STOP, seed: int = 0, *, engine: EngineSettings,
    executor: Executor | None = None, out: str | Path | None = None, resume: bool = False, label: str = "",
    command: str = "", target: float | None = None, interrupted: Callable[[], bool] = lambda: False,
    progress: Callable[[Simulation], None] | None = None, beside: int = 1, cores: Callable[[], int] = machine_cores,
) -> Steps:  # fmt: skip
    """What ``simulate`` does, in pieces.

    So many runs go on at the same time in this process (``beside``), on so many ``cores``.
    """
    settings, strategy = engine, checked_strategy(strategy)
    check(seed >= 0, "seed", seed, "must be 0, 1, 2, ...")
    learned = named_task(task, seed) if isinstance(task, str) else task
    weather = weather_from(weather)
    stop = build(Stop, stop, "stop") if isinstance(stop, Mapping) else stop
    folder = None if out is None else Path(out)
    finished = folder is not None and is_finished(folder)
    if finished and not resume:
        raise RecordError(f"{folder}: holds a finished run; choose another folder")
    if folder is not None and not resume and is_begun(folder):
        raise RecordError(f"{folder}: holds an unfinished run; continue it with resume, or choose another folder")
    why = "an object of your own"
    with ExitStack() as afterwards:
        if executor is None:
            require(isinstance(learned, Task), f"task: must be a fedfa.Task or 'digits', is a {type(learned).__name__}")
            assert isinstance(learned, Task)
            if resume and (begun := settings.as_begun(_begun_with(folder))) is not None:
                settings, why = begun, "the run began with it"
            else:
                ahead = partial(steps_ahead, strategy, learned, weather, stop, seed, beside)
                settings, why = settings.decided(learned, seed, typically_pending(strategy, beside), ahead)
            executor = settings.make_executor(learned, seed, cores)
            afterwards.callback(executor.close)
            logger.info("%s, seed %d: executor %s (%s)", label or strategy.name, seed, executor.name, why)
        made = {"command": command, "target": target, "executor_because": why}
        run = Simulation(
            strategy=strategy,
            task=learned,
            weather=weather,
            stop=stop,
            seed=seed,
            settings=settings,
            executor=executor,
            folder=folder,
            label=label or strategy.name or type(strategy).__name__,
            interrupted=interrupted,
            progress=progress,
        )
        if finished and folder is not None:
            return _same_run(folder, run)
        try:
            return _recorded((yield from run.steps(resume, beside > 1)), made)
        except KeyboardInterrupt:
            if folder is not None and len(run.record.evaluations):
                _recorded(run.so_far(), made)
            raise


def checked_strategy(strategy: str | Strategy) -> Strategy:
    """A strategy, given by itself or by its name with settings."""
    if isinstance(strategy, str):
        strategy = strategy_from(strategy)
    kind = f"the class {strategy.__name__}" if isinstance(strategy, type) else f"a {type(strategy).__name__}"
    require(isinstance(strategy, Strategy), f"strategy: must be a fedfa.Strategy or its name, is {kind}")
    return strategy


def typically_pending(strategy: Strategy, beside: int) -> int:
    """How many clients of so many runs are usually in training, and not yet trained."""
    alone = strategy.synchronous and beside == 1  # in a comparison, every strategy is trained in the same way
    return strategy.concurrency if alone else max(1, beside * strategy.concurrency // 2)


def steps_ahead(strategy: Strategy, task: Task, weather: Weather, stop: Stop, seed: int, beside: int) -> float:
    """About how many local steps the clients of so many such runs take; 0 if the settings do not tell."""
    if stop.accuracy is not None or stop.wall_seconds is not None:
        return 0.0
    clients, forecast = range(min(task.num_clients, SAMPLED)), weather.forecast(seed, task.initial(seed).vector.nbytes)
    delays = sorted(sum(forecast.delay(client, 0)[:3]) for client in clients)
    together = strategy.concurrency
    usual = delays[len(delays) * together // (together + 1)] if strategy.synchronous else mean(delays)
    answers = math.inf if stop.seconds is None else stop.seconds * together / usual
    local, sizes = task.local, task.sizes
    steps = mean(local.epochs_of(seed, client) * len(local.batch_sizes(sizes[client])) for client in clients)
    return beside * steps * min(answers, stop.updates or math.inf)


def _begun_with(folder: Path | None) -> str | None:
    """The name of the executor of the run in this folder, finished or not."""
    if folder is None:
        return None
    return read_run(folder).manifest.get("executor") if is_finished(folder) else Simulation.begun_with(folder)


def _recorded(run: Run, made: Mapping[str, Any]) -> Run:
    run.manifest.update(made)
    if run.folder is not None:
        write_run(run.folder, run)
    return run


def _same_run(folder: Path, engine: Simulation) -> Run:
    """The finished run in this folder, if it is the requested one."""
    run = read_run(folder)
    if run.manifest["fingerprint"] != engine.fingerprint:
        raise RecordError(f"{folder}: holds a finished run with other settings; choose another folder")
    if {name: value for name, value in run.manifest["stop"].items() if value is not None} != engine.stop.limits:
        raise RecordError(f"{folder}: holds a run that has ended at another stop; choose another folder")
    return run
