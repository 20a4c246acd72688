"""Several strategies under the same weather and the same data split, for several seeds."""

import logging
import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedfa.errors import ConfigError, EngineError, check, require
from fedfa.experiments.config import Experiment, check_size
from fedfa.runs.run import Run
from fedfa.strategies.base import Strategy
from fedfa.strategies.specs import make_strategy, strategy_settings

if TYPE_CHECKING:
    from fedfa.learning.task import Task


logger = logging.getLogger("fedfa")


@dataclass(frozen=True, slots=True)
class Point:
    """One strategy with one seed."""

    label: str
    experiment: Experiment
    folder: Path
    rank: tuple[int, ...] = ()
    """Points of a lower rank are run first."""


def points(experiment: Experiment, specs: Sequence[str], seeds: Sequence[int], out: Path) -> list[Point]:
    """Every strategy with every seed, checked before anything runs."""
    check(len(set(seeds)) == len(seeds), "seeds", list(seeds), "one is given twice")
    labelled = {spec: strategy_settings(experiment.strategy, spec) for spec in specs}
    check(len(labelled) == len(specs), "strategies", ", ".join(specs), "one is given twice")
    for spec, settings in labelled.items():
        try:
            strategy = make_strategy(settings, "strategy")
        except ConfigError as error:
            raise ConfigError(f"{spec}: {error}") from error
        if not experiment.task:
            check_size(strategy, experiment.data.clients, f"{spec}: ")
    return [
        Point(spec, replace(experiment, strategy=settings, seed=seed), out / _folder_name(spec, seed))
        for spec, settings in labelled.items()
        for seed in seeds
    ]


def _folder_name(spec: str, seed: int) -> str:
    return "".join(c if c.isalnum() or c in "-_.=" else "_" for c in spec) + f"-seed{seed}"


def run_points(
    todo: Sequence[Point],
    *,
    command: str = "",
    resume: bool = False,
    jobs: int | None = None,
    until: float = math.inf,
    answered: Container[Point] = (),
) -> Iterator[Run]:
    """Run all points, several at a time in processes of their own; runs as they finish.

    Closing the iterator (or Ctrl-C) ends the processes; each leaves a checkpoint that ``resume`` continues. So does
    the time ``until`` (as ``time.time()`` tells it): what is not finished by then is saved, and not among the runs.
    Nor is a point that is ``answered`` when its turn comes.
    """
    from fedfa.learning.device import Device

    engines = {point.experiment.engine for point in todo}
    shared = any(  # one run then uses all there is
        engine.executor == "ray" or Device.of(engine.device, engine.precision).kind != "cpu" for engine in engines
    )
    jobs = min(jobs or (1 if shared else os.cpu_count() or 1), len(todo))
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_watch)
    waiting = [pool.submit(_run_point, point, command, resume, until, answered) for point in in_order(todo)]
    try:
        for done in as_completed(waiting):
            if (run := done.result()) is not None:
                yield run
    except KeyboardInterrupt:
        logger.warning("Saving the runs in hand; Ctrl-C again ends at once.")
        raise
    except BrokenProcessPool as error:
        raise EngineError("a run's process was killed; what was saved is kept: continue by repeating it") from error
    finally:
        for one in waiting:
            one.cancel()
        processes = list((pool._processes or {}).values())
        for process in processes:
            if process.is_alive() and any(one.running() for one in waiting):
                os.kill(process.pid or 0, signal.SIGINT)
        try:
            pool.shutdown(wait=True, cancel_futures=True)
        except KeyboardInterrupt:
            for process in processes:
                process.kill()
            raise


def in_order(todo: Sequence[Point]) -> list[Point]:
    """By rank; among equals those of one setting and seed together, for they share data and prepared steps."""
    first: dict[tuple[Any, ...], int] = {}
    for position, point in enumerate(todo):
        first.setdefault((point.rank, ingredients(point.experiment)), position)
    return sorted(todo, key=lambda point: (point.rank, first[point.rank, ingredients(point.experiment)]))


AGAIN_SECONDS = 2.0
"""A terminal and the parent both pass one Ctrl-C on; what comes later than this is another one."""
_stop_asked = 0.0
_last_task: "dict[str, Task]" = {}


def _watch() -> None:
    """In a process of its own: Ctrl-C asks the run to save itself, and nobody outlives a killed parent."""

    def ask(*_: Any) -> None:
        global _stop_asked
        if _stop_asked and time.monotonic() - _stop_asked > AGAIN_SECONDS:
            os._exit(130)
        _stop_asked = _stop_asked or time.monotonic()

    def follow_parent() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    signal.signal(signal.SIGINT, ask)
    threading.Thread(target=follow_parent, daemon=True).start()


def _run_point(point: Point, command: str, resume: bool, until: float, answered: Container[Point] = ()) -> Run | None:
    """The finished run; None where the time was over before, or the point is answered without it."""
    if _stop_asked:
        raise KeyboardInterrupt
    if time.time() >= until or point in answered:
        return None
    experiment, key = point.experiment, ingredients(point.experiment)
    if key not in _last_task:
        _last_task.clear()
        _last_task[key] = experiment.make_task()
    try:
        run = experiment.run(
            point.folder, resume=resume, label=point.label, command=command, task=_last_task[key],
            interrupted=lambda: _stop_asked > 0 or time.time() >= until,
        )  # fmt: skip
    except KeyboardInterrupt:
        if _stop_asked:
            raise
        return None
    return replace(run, model=None)


def ingredients(experiment: Experiment) -> str:
    """What a task is made of; a task of the user's own is made for every run."""
    parts = (experiment.data, experiment.model, experiment.local, experiment.seed)
    return repr(parts if not experiment.task else (experiment.task, experiment.strategy, experiment.seed))


def compare(
    strategies: Iterable[Strategy | str],
    task: Any = "digits",
    *,
    seeds: Iterable[int] = (0,),
    labels: Sequence[str] | None = None,
    out: str | Path | None = None,
    on_run: Callable[[Run], None] | None = None,
    **settings: Any,
) -> list[Run]:
    """Run strategies of your own side by side: :func:`fedfa.simulate` for each strategy and seed.

    ``task`` is a :class:`fedfa.Task`, "digits", or a function from seed to task. With ``out``, each run is recorded in
    a folder of its own there. Other ``settings`` go to :func:`fedfa.simulate`.
    """
    from fedfa.learning.task import Task
    from fedfa.simulation.simulate import simulate

    chosen = list(strategies)
    names = list(labels or (s if isinstance(s, str) else s.name or type(s).__name__ for s in chosen))
    require(len(names) == len(chosen), f"labels: {len(names)} for {len(chosen)} strategies")
    check(len(set(names)) == len(names), "labels", names, "give different ones to strategies of the same name")
    runs = []
    for seed in seeds:
        here = task if isinstance(task, str | Task) else task(seed)
        for name, strategy in zip(names, chosen, strict=True):
            folder = None if out is None else Path(out) / _folder_name(name, seed)
            runs.append(simulate(strategy, here, seed=seed, label=name, out=folder, **settings))
            if on_run:
                on_run(runs[-1])
    return runs
