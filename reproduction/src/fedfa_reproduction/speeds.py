"""How much of a strategy's speed comes from its real step."""

import math
from collections.abc import Sequence
from functools import cache
from statistics import fmean, geometric_mean
from typing import Any

from fedfa.analysis.server_step import ServerStep, server_step
from fedfa.report.grid import Grid
from fedfa.report.tables import percent, seed_by_seed
from fedfa.runs.run import Run
from fedfa.simulation.weather import Weather
from fedfa.strategies.fedfa_agree import FedFaAgree
from fedfa.strategies.specs import make_strategy, strategy_settings
from fedfa_reproduction.base import Comparison
from fedfa_reproduction.measures import steady_time_to

ON_THE_WAY = (0.2, 0.1, 0.05)
"""How far below the target speeds are measured."""


def steps_and_speeds(comparison: Comparison, runs: Sequence[Run]) -> Grid:
    """Each strategy's step, the expected speed, and the measured speed to a few accuracies."""
    experiment = comparison.experiment
    clients = experiment.data.clients or runs[0].manifest["num_clients"]
    settings = {c.title: strategy_settings(experiment.strategy, c.spec) for c in comparison.contenders}
    steps = {title: _step_of(tuple(own.items()), experiment.weather, clients) for title, own in settings.items()}
    param = next(c.title for c in comparison.contenders if c.row == "fedfa-param")
    goals = [comparison.target - below for below in ON_THE_WAY]
    cells = [
        (
            title,
            f"{found.step:.2f}",
            _chosen(runs, title) if _chooses(settings[title]) else "–",
            f"{found.updates_per_second:.2f}",
            f"{found.speed / steps[param].speed:.2f}",
            *(_measured(runs, title, param, goal) for goal in goals),
        )
        for title, found in steps.items()
    ]
    measured = (f"to {percent(goal)}" for goal in goals)
    headers = ("Strategy", "Step", "eta_g chosen", "Updates/s", "Speed to expect", *measured)
    caption = (
        "Step: how far a strategy moves the model while M_c updates come in, if every client moves it by one "
        "wherever it starts; FedAvg moves it by one (fedfa.server_step). A rule that chooses its eta_g takes the "
        "longest there; beside it what it chose, in the mean of the first and of the last quarter of its "
        "evaluations. The step times the updates per virtual second is the speed to expect as long as clients "
        "agree on the way; then the measured one, when the mean of three evaluations in a row was there. Speeds "
        "are multiples of FedFa-Param's; geometric means over seeds."
    )
    return Grid(f"{comparison.title}: steps and speeds", headers, cells, caption)


@cache
def _step_of(settings: tuple[tuple[str, Any], ...], weather: Weather, clients: int) -> ServerStep:
    """Workloads that differ only in the learning task share their steps."""
    return server_step(make_strategy(dict(settings), "strategy"), weather, clients=clients)


def _chooses(settings: dict[str, Any]) -> bool:
    """Whether a strategy's step depends on the updates."""
    strategy = make_strategy(settings, "strategy")
    return isinstance(strategy, FedFaAgree) and strategy.server_lr is None


def _chosen(runs: Sequence[Run], title: str) -> str:
    """The mean step in the first and the last quarter of the evaluations, over all seeds."""
    recorded = [run.evaluations["step"].drop_nans() for run in runs if run.label == title]
    quarters = [(steps.head(most), steps.tail(most)) for steps in recorded if (most := math.ceil(len(steps) / 4))]
    if not quarters:
        return "–"
    first, last = (fmean(value for part in parts for value in part) for parts in zip(*quarters, strict=True))
    return f"{first:.2f} → {last:.2f}"


def _measured(runs: Sequence[Run], title: str, param: str, accuracy: float) -> str:
    times, usual = (
        {run.seed: steady_time_to(run, accuracy) for run in runs if run.label == label} for label in (title, param)
    )
    ratios = seed_by_seed(usual, times)
    return f"{geometric_mean(ratios):.2f}" if ratios and len(ratios) == len(times) else "–"
