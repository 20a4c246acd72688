"""The runs of a comparison side by side, against the same runs one after the other.

The default strategies and the embedded digits, one core. Both ways have the same events. Runs of a seed share their
task, and what is prepared for it, both ways.
"""

from collections.abc import Callable
from functools import partial

import fedfa
from fedfa.bench.base import Options, Row, Tell, middle, one_core, rate, take_turns
from fedfa.experiments.config import CompareSettings
from fedfa.learning.data_task import named_task

SECONDS = 1200.0
"""Virtual ones, as in ``fedfa compare``."""


def measure(options: Options, tell: Tell) -> list[Row]:
    strategies, seeds = CompareSettings().strategies, (0,) if options.quick else (0, 1)
    stop = fedfa.Stop(seconds=SECONDS / 20 if options.quick else SECONDS)

    def side_by_side() -> list[fedfa.Run]:
        return fedfa.compare(strategies, seeds=seeds, stop=stop)

    def one_by_one() -> list[fedfa.Run]:
        tasks = {seed: named_task("digits", seed) for seed in seeds}
        return [fedfa.simulate(name, tasks[seed], stop=stop, seed=seed) for seed in seeds for name in strategies]

    ways: dict[str, Callable[[], list[fedfa.Run]]] = {"side by side": side_by_side, "one by one": one_by_one}
    with one_core():
        updates, others = (sum(len(run.updates) for run in way()) for way in ways.values())
        if updates != others:
            raise fedfa.EngineError(f"side by side {updates} updates, one by one {others}: these are other runs")
        rates = take_turns({name: partial(rate, updates, way) for name, way in ways.items()}, options.turns(5), tell)
    ours, baseline = (middle(found) for found in rates.values())
    case = f"{len(strategies)} strategies, {len(seeds)} seeds"
    return [Row(case, "updates/s", ours, baseline, "one by one", f"{updates:,} updates", {"rates": rates})]
