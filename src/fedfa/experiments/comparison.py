"""``compare``: strategies of your own side by side, in one process."""

import copy
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fedfa.errors import require
from fedfa.executors.stack import Stacks
from fedfa.experiments.points import folder_name
from fedfa.learning.base import EngineTask
from fedfa.learning.data_task import named_task
from fedfa.learning.task import Task
from fedfa.runs.run import Run
from fedfa.simulation.settings import EngineSettings
from fedfa.simulation.simulate import checked_strategy, simulation
from fedfa.simulation.together import MOST_TOGETHER, together, undisturbed
from fedfa.strategies.base import Strategy


def compare(
    strategies: Iterable[Strategy | str],
    task: str | EngineTask | Callable[[int], EngineTask] = "digits",
    *,
    seeds: Iterable[int] = (0,),
    labels: Sequence[str] | None = None,
    out: str | Path | None = None,
    on_run: Callable[[Run], None] | None = None,
    **settings: Any,
) -> list[Run]:
    """Run strategies of your own side by side: :func:`fedfa.simulate` for each strategy and seed.

    ``task`` is a :class:`fedfa.Task`, "digits", or a function from seed to task. With ``out``, each run is recorded in
    its own folder there. Other ``settings`` go to :func:`fedfa.simulate`. Small models of several runs are trained
    together; ``on_run`` is called with each run as it ends.
    """
    given = list(strategies)
    chosen = [checked_strategy(strategy) for strategy in given]
    names = list(labels or (s if isinstance(s, str) else s.name or type(s).__name__ for s in given))
    require(len(names) == len(chosen), f"labels: {len(names)} for {len(chosen)} strategies")
    require(len(set(names)) == len(names), f"labels = {names}: give different ones to strategies of the same name")
    order = [(seed, name) for seed in seeds for name in names]
    engine = EngineSettings.of(settings.pop("engine", None))
    stacks, beside = Stacks(), min(MOST_TOGETHER, len(order))

    def begins() -> Any:
        for seed in dict.fromkeys(seed for seed, _ in order):
            here = named_task(task, seed) if isinstance(task, str) else task(seed) if callable(task) else task
            if isinstance(here, Task):
                stacks.share(here)
            for name, strategy in zip(names, chosen, strict=True):
                folder = None if out is None else Path(out) / folder_name(name, seed)
                yield partial(
                    simulation, copy.deepcopy(strategy), here, seed=seed, label=name, out=folder, engine=engine,
                    beside=beside, **settings,
                )  # fmt: skip

    runs: dict[tuple[int, str], Run] = {}
    following = begins()
    executor = settings.get("executor")
    with undisturbed(engine.threads, engine.front if executor is None else executor.device):
        for run in together(lambda: next(following, None)):
            runs[run.seed, run.label] = run
            if on_run:
                on_run(run)
    return [runs[key] for key in order]
