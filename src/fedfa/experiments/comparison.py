"""``compare``: strategies of your own side by side, in one process."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from fedfa.errors import require
from fedfa.experiments.points import folder_name
from fedfa.learning.base import EngineTask
from fedfa.runs.run import Run
from fedfa.simulation.simulate import simulate
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
    its own folder there. Other ``settings`` go to :func:`fedfa.simulate`.
    """
    chosen = list(strategies)
    names = list(labels or (s if isinstance(s, str) else s.name or type(s).__name__ for s in chosen))
    require(len(names) == len(chosen), f"labels: {len(names)} for {len(chosen)} strategies")
    require(len(set(names)) == len(names), f"labels = {names}: give different ones to strategies of the same name")
    runs = []
    for seed in seeds:
        here = task(seed) if callable(task) else task
        for name, strategy in zip(names, chosen, strict=True):
            folder = None if out is None else Path(out) / folder_name(name, seed)
            runs.append(simulate(strategy, here, seed=seed, label=name, out=folder, **settings))
            if on_run:
                on_run(runs[-1])
    return runs
