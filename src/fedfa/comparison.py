"""Several strategies under the same weather and the same data split, for several seeds."""

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedfa.core import Strategy
from fedfa.errors import ConfigError, EngineError, require
from fedfa.experiment import Experiment, check_size, make_strategy, parameters
from fedfa.record import Run
from fedfa.settings import parse_override

if TYPE_CHECKING:
    from fedfa.task import Task


logger = logging.getLogger("fedfa")


@dataclass(frozen=True, slots=True)
class Point:
    """One strategy with one seed."""

    label: str
    experiment: Experiment
    folder: Path


def points(experiment: Experiment, specs: Sequence[str], seeds: Sequence[int], out: Path) -> list[Point]:
    """Every strategy with every seed, checked before anything runs."""
    require(len(set(seeds)) == len(seeds), f"seeds = {list(seeds)}: one is given twice")
    labelled = {spec: strategy_settings(experiment.strategy, spec) for spec in specs}
    require(len(labelled) == len(specs), f"strategies = {', '.join(specs)}: one is given twice")
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


def strategy_from(spec: str) -> Strategy:
    """The strategy that ``name:key=value:...`` names."""
    return make_strategy(strategy_settings({}, spec, "strategy"), "strategy")


def strategy_settings(shared: dict[str, Any], spec: str, where: str = "strategies") -> dict[str, Any]:
    """The settings of ``name:key=value:...``: the experiment's own where the strategy has them, then the spec's."""
    name, *assignments = split_spec(spec)
    known = parameters(name, where)
    settings = {"name": name} | {key: value for key, value in shared.items() if key in known}
    for assignment in assignments:
        require("=" in assignment, f"{spec}: {assignment!r} must look like KEY=VALUE")
        path, value = parse_override(assignment)
        settings[".".join(path)] = value
    return settings


def split_spec(spec: str) -> list[str]:
    """``name:key=value`` in parts; a name may itself hold a colon (``file.py:Class``)."""
    parts = spec.split(":")
    head = 2 if len(parts) > 1 and "=" not in parts[1] else 1
    return [":".join(parts[:head]), *parts[head:]]


def _folder_name(spec: str, seed: int) -> str:
    return "".join(c if c.isalnum() or c in "-_.=" else "_" for c in spec) + f"-seed{seed}"


POLL_SECONDS = 0.2
"""How often ``run_points`` asks whether it is interrupted."""


def run_points(
    todo: Iterable[Point],
    *,
    jobs: int,
    command: str = "",
    resume: bool = False,
    interrupted: Callable[[], bool] = lambda: False,
) -> Iterator[Run]:
    """Run points, so many at a time, in processes of their own; runs as they finish.

    A point is taken from ``todo`` when a process is free for it, so a generator can decide late which one is next.
    The runs in hand end when the iterator is closed, on Ctrl-C, and once ``interrupted`` says so. Each then leaves a
    checkpoint that ``resume`` continues.
    """
    pool = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_watch)
    waiting = iter(todo)
    running: set[Future[Run]] = set()
    try:
        while not interrupted():
            running |= {pool.submit(_run_point, one, command, resume) for one in islice(waiting, jobs - len(running))}
            if not running:
                return
            done, running = wait(running, POLL_SECONDS, FIRST_COMPLETED)
            for one in done:
                yield one.result()
    except KeyboardInterrupt:
        logger.warning("Saving the runs in hand; Ctrl-C again ends at once.")
        raise
    except BrokenProcessPool as error:
        raise EngineError("a run's process was killed; what was saved is kept: continue by repeating it") from error
    finally:
        processes = list((pool._processes or {}).values())
        for process in processes:
            if process.pid is not None and process.is_alive() and any(one.running() for one in running):
                os.kill(process.pid, signal.SIGINT)
        try:
            pool.shutdown(wait=True, cancel_futures=True)
        except KeyboardInterrupt:
            for process in processes:
                process.kill()
            raise


def jobs_for(todo: Iterable[Point]) -> int:
    """How many of these points to run at a time: one per core, or one alone where each uses all there is."""
    from fedfa.place import Place

    alone = any(
        engine.executor == "ray" or Place.of(engine.device, engine.precision).device != "cpu"
        for engine in {point.experiment.engine for point in todo}
    )
    return 1 if alone else os.cpu_count() or 1


def in_order(todo: Sequence[Point]) -> list[Point]:
    """Those of one setting and seed together, for they share data and prepared steps."""
    first: dict[str, int] = {}
    for position, point in enumerate(todo):
        first.setdefault(ingredients(point.experiment), position)
    return sorted(todo, key=lambda point: first[ingredients(point.experiment)])


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


def _run_point(point: Point, command: str, resume: bool) -> Run:
    if _stop_asked:
        raise KeyboardInterrupt
    experiment, key = point.experiment, ingredients(point.experiment)
    if key not in _last_task:
        _last_task.clear()
        _last_task[key] = experiment.make_task()
    run = experiment.run(
        point.folder, resume=resume, label=point.label, command=command, task=_last_task[key],
        interrupted=lambda: _stop_asked > 0,
    )  # fmt: skip
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
    from fedfa.simulator import simulate
    from fedfa.task import Task

    chosen = list(strategies)
    names = list(labels or (s if isinstance(s, str) else s.name or type(s).__name__ for s in chosen))
    require(len(names) == len(chosen), f"labels: {len(names)} for {len(chosen)} strategies")
    require(len(set(names)) == len(names), f"labels = {names}: give different ones to strategies of the same name")
    runs = []
    for seed in seeds:
        here = task if isinstance(task, str | Task) else task(seed)
        for name, strategy in zip(names, chosen, strict=True):
            folder = None if out is None else Path(out) / _folder_name(name, seed)
            runs.append(simulate(strategy, here, seed=seed, label=name, out=folder, **settings))
            if on_run:
                on_run(runs[-1])
    return runs
