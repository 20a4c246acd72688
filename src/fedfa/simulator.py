"""``simulate``: one call from strategy, task and weather to a finished, recorded run."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fedfa.core import Strategy
from fedfa.engine import Simulation, Stop
from fedfa.errors import RecordError, require
from fedfa.record import Run, is_begun, is_finished, read_run, write_run
from fedfa.settings import build
from fedfa.weather import Weather, weather_from


def simulate(
    strategy: str | Strategy,
    task: Any = "digits",
    weather: str | Weather | Mapping[str, Any] = "paper",
    stop: Stop | Mapping[str, Any] | None = None,
    seed: int = 0,
    *,
    evaluate_every: int = 10,
    executor: Any = "auto",
    threads: int = 1,
    device: str = "cpu",
    precision: str = "auto",
    compile: bool = False,
    workers: int = 0,
    out: str | Path | None = None,
    resume: bool = False,
    label: str = "",
    command: str = "",
    target: float | None = None,
    checkpoint_seconds: float = 10.0,
    interrupted: Callable[[], bool] = lambda: False,
    progress: Callable[[Simulation], None] | None = None,
) -> Run:
    """Run one experiment on the virtual clock.

    ``strategy`` and ``weather`` may be names (a strategy's with settings, as in "fedbuff:buffer=3"), ``task`` a
    :class:`fedfa.Task` or "digits"; ``weather`` and ``stop`` may be tables as in an experiment file. The run ends as
    ``stop`` says (default: after 500 updates). With ``out`` it is recorded in that folder, survives a crash there, and
    is continued by ``resume=True``. ``interrupted`` is asked between arrivals; when it says so the run is saved and
    :class:`KeyboardInterrupt` raised. ``progress`` is called now and then. ``device`` ("cpu", "cuda", or "auto") says
    where models are computed and ``precision`` ("fp32", "tf32", "bf16", or "auto") how; ``compile`` lets torch.compile
    fuse a client's step on a GPU; ``workers`` is the number of Ray's (``executor="ray"``), by default one per core, or
    per GPU.
    """
    import torch

    from fedfa.executors import make_executor
    from fedfa.place import Place

    if isinstance(strategy, str):
        from fedfa.comparison import strategy_from

        strategy = strategy_from(strategy)
    kind = f"the class {strategy.__name__}" if isinstance(strategy, type) else f"a {type(strategy).__name__}"
    require(isinstance(strategy, Strategy), f"strategy: must be a fedfa.Strategy or its name, is {kind}")
    require(seed >= 0, f"seed = {seed}: must be 0, 1, 2, ...")
    if isinstance(task, str):
        from fedfa.experiment import named_task

        task = named_task(task, seed)
    weather = build(Weather, weather, "weather") if isinstance(weather, Mapping) else weather_from(weather)
    stop = build(Stop, stop, "stop") if isinstance(stop, Mapping) else stop or Stop(updates=500)
    require(evaluate_every >= 1, f"evaluate_every = {evaluate_every}: must be at least 1")
    require(threads >= 1, f"threads = {threads}: must be at least 1")
    folder = None if out is None else Path(out)
    finished = folder is not None and is_finished(folder)
    if finished and not resume:
        raise RecordError(f"{folder}: holds a finished run; choose another folder")
    if folder is not None and not resume and is_begun(folder):
        raise RecordError(f"{folder}: holds an unfinished run; continue it with resume, or choose another folder")
    with ExitStack() as afterwards:
        afterwards.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(threads)
        if isinstance(executor, str):
            place = Place.of(device, precision, elsewhere=executor == "ray")
            executor = make_executor(executor, task, seed, place, compile, workers)
            afterwards.callback(executor.close)
        engine = Simulation(
            strategy=strategy,
            task=task,
            weather=weather,
            stop=stop,
            seed=seed,
            evaluate_every=evaluate_every,
            executor=executor,
            folder=folder,
            label=label or strategy.name or type(strategy).__name__,
            checkpoint_seconds=checkpoint_seconds,
            interrupted=interrupted,
            progress=progress,
        )
        if finished and folder is not None:
            return _same_run(folder, engine)
        try:
            with executor.place.prepared():
                return _recorded(engine.run(resume), command, target)
        except KeyboardInterrupt:
            if folder is not None and len(engine.record.evaluations):
                _recorded(engine.so_far(), command, target)
            raise


def _recorded(run: Run, command: str, target: float | None) -> Run:
    run.manifest.update(command=command, target=target)
    if run.folder is not None:
        write_run(run.folder, run)
    return run


def _same_run(folder: Path, engine: Simulation) -> Run:
    """The finished run in this folder, if it is the one that was asked for."""
    run = read_run(folder)
    if run.manifest["fingerprint"] != engine.fingerprint:
        raise RecordError(f"{folder}: holds a finished run with other settings; choose another folder")
    if {name: value for name, value in run.manifest["stop"].items() if value is not None} != engine.stop.limits:
        raise RecordError(f"{folder}: holds a run that has ended at another stop; choose another folder")
    return run
