"""The constants of the paper's bound, measured on a finished run.

Models are not recorded. But a run is deterministic: run again from its config.toml, it publishes the same models. Some
of them are kept this time. Gradients of the clients at these models give the constants (``gradients.py``) for
``theory.py``.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from fedfa.analysis import theory
from fedfa.analysis.gradients import Constants, measure
from fedfa.errors import RecordError, check, require
from fedfa.experiments.config import Experiment, load_experiment
from fedfa.learning.base import Evaluator, Meanwhile, Score
from fedfa.learning.device import Device, as_array
from fedfa.learning.local import LocalTraining
from fedfa.learning.task import Task
from fedfa.runs.run import Run
from fedfa.runs.stop import Stop
from fedfa.simulation.engine import Simulation
from fedfa.simulation.simulate import simulate
from fedfa.strategies.base import Strategy
from fedfa.strategies.fedbuff import FedBuff
from fedfa.strategies.fedfa import FedFaDelta, FedFaNova, FedFaParam
from fedfa.strategies.fedfa_agree import LONGEST_STEP, FedFaAgree
from fedfa.strategies.staleness import ConstantStaleness
from fedfa.strategies.vectors import Vector

MODELS = 12
FRESH_TOLERANCE = 1e-3
"""Largest relative difference between a client's loss on the initial model and the recorded one."""
TOLERANCE = 0.02
"""Largest mean relative difference between replayed and recorded accuracies: other machines round differently."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A run's constants, and its measured values."""

    label: str
    seed: int
    constants: Constants
    setting: theory.Setting
    concurrency: int
    """M_c"""
    window: int
    """K"""
    sliding: bool
    """K is a sliding window, not a buffer."""
    weight: float
    """The total weight of one difference in the model; for a mean of models too, without the bases."""
    from_bases: bool
    """The step starts from the mean of the clients' bases: with eta_g = 1 the new model is a mean of models."""
    staleness: int
    """The largest on arrival, from 0."""
    versions: tuple[int, ...]
    """Of the models that were measured."""
    assumed: tuple[str, ...]
    """Features of the run that the theorem does not cover."""
    apart: float
    """Mean distance between the replayed accuracies and the recorded ones."""

    @property
    def mean_norm(self) -> float:
        """Mean of |grad f|^2 over the models, which the theorem bounds."""
        return float(np.mean(self.constants.norms))

    @property
    def settled(self) -> bool:
        """Gradients stayed finite and the loss did not end above its start; otherwise the bound has no meaning."""
        return self.constants.finite and self.constants.losses[-1] <= self.constants.losses[0]

    def summary(self) -> dict[str, Any]:
        """All numbers, JSON-ready; None for numbers that are not finite."""
        s, bound = self.setting, theory.theorem1(self.setting)
        numbers = {
            "label": self.label,
            "seed": self.seed,
            **asdict(s),
            "staleness": self.staleness,
            "concurrency": self.concurrency,
            "window": self.window,
            "weight": self.weight,
            "clients": self.constants.clients,
            "bound": {"start": bound.start, "drift": bound.drift, "noise": bound.noise, "total": bound.total},
            "settled": self.settled,
            "mean_squared_gradient": self.mean_norm,
            "step_condition": theory.step_condition(s),
            "generation_step": theory.generation_step(s, self.concurrency, self.weight),
            "generation_reach": theory.generation_reach(s, self.concurrency, self.weight),
            "largest_weight": theory.largest_weight(s, self.concurrency),
            "largest_local_lr": theory.largest_local_lr(s, self.concurrency, self.weight),
            "largest_window": theory.largest_window(s, self.staleness),
            "models": [
                {"version": version, "loss": loss, "squared_gradient": norm}
                for version, loss, norm in zip(self.versions, self.constants.losses, self.constants.norms, strict=True)
            ],
            "assumed": list(self.assumed),
            "replay_apart": self.apart,
        }
        return _plain(numbers)


def estimate(
    run: Run,
    *,
    models: int = MODELS,
    updates: int | None = None,
    overrides: Sequence[str] = (),
    progress: Callable[[Simulation], None] | None = None,
    measured: Callable[[str], None] = lambda text: None,
) -> Estimate:
    """Replay a recorded run, all of it or this many ``updates``, and measure the bound's constants at ``models`` of it.

    ``progress`` follows the replay, ``measured`` is called after each model.
    """
    check(models >= 2, "models", models, "must be at least 2, for a difference of gradients")
    check(updates is None or updates >= 1, "updates", updates, "must be at least 1")
    experiment = experiment_of(run, overrides)
    strategy = experiment.make_strategy()
    step_of(strategy)  # refuse before the replay
    task = experiment.make_task()
    assumed = assumptions(strategy, task.local)
    again, kept, apart = replayed(run, experiment, task, models, updates, progress)
    server_lr, weight, window = step_of(strategy, again.evaluations["step"].drop_nans())
    before = torch.get_num_threads()
    torch.set_num_threads(experiment.engine.threads)
    try:
        constants = measure(task, kept.values(), experiment.seed, measured)
    finally:
        torch.set_num_threads(before)
    require(
        constants.smoothness > 0,
        f"{run.folder}: the gradient is the same at all its models, so there is no L to measure; run it for longer",
    )
    accepted = again.accepted
    staleness = int(accepted["staleness"].to_numpy().max())
    setting = theory.Setting(
        updates=again.manifest["version"],
        local_steps=float(accepted["num_steps"].to_numpy().mean()),
        local_lr=task.local.lr,
        server_lr=server_lr,
        max_staleness=theory.oldest(staleness, 1 if isinstance(strategy, FedBuff) else window),
        smoothness=constants.smoothness,
        gradient_bound=constants.gradient_bound,
        local_variance=constants.local_variance,
        global_variance=constants.global_variance,
        gap=constants.gap,
    )
    return Estimate(
        label=run.label,
        seed=run.seed,
        constants=constants,
        setting=setting,
        concurrency=strategy.concurrency,
        window=window,
        sliding=not isinstance(strategy, FedBuff),
        weight=weight,
        from_bases=isinstance(strategy, FedFaParam | FedFaAgree)
        or (isinstance(strategy, FedBuff) and strategy.origin == "current" and server_lr <= 1),
        staleness=staleness,
        versions=tuple(kept),
        assumed=assumed,
        apart=apart,
    )


# What the theorem covers ---------------------------------------------------------------------------------------------


def step_of(strategy: Strategy, taken: Iterable[float] = ()) -> tuple[float, float, int]:
    """eta_g, the total weight of a difference, and K, of a strategy that the theorem covers.

    For a strategy that chooses its steps during the run, eta_g is the longest of the steps ``taken``.
    """
    if isinstance(strategy, FedFaParam):
        return 1.0, 1.0, strategy.window
    if isinstance(strategy, FedFaDelta):
        return strategy.step_size, strategy.step_size, strategy.window
    if isinstance(strategy, FedFaAgree):
        step = strategy.server_lr or max(taken, default=LONGEST_STEP)
        return step, step, strategy.window
    require(
        isinstance(strategy, FedBuff),
        f"{strategy.name or type(strategy).__name__}: Theorem 1 does not speak about it; "
        "give a run of fedfa-param, fedfa-delta, fedfa-prox, fedfa-nova, fedfa-agree or fedbuff",
    )
    assert isinstance(strategy, FedBuff)
    return strategy.server_lr, strategy.server_lr / strategy.buffer, strategy.buffer


def assumptions(strategy: Strategy, local: LocalTraining) -> tuple[str, ...]:
    """A line for each feature of the run that the theorem does not cover; raises if eta_l has no meaning."""
    check(
        local.optimizer == "sgd",
        "local.optimizer",
        local.optimizer,
        "Theorem 1 speaks about SGD; give a run with local.optimizer = 'sgd'",
    )
    unknown = {
        f"momentum {local.momentum}, counted as more plain steps (the effective Q)": local.momentum > 0,
        f"the proximal pull (prox_mu {strategy.local.prox_mu}), left out of f": strategy.local.prox_mu > 0,
        "differences per local step, taken as plain ones": isinstance(strategy, FedFaNova),
        "steps as long as clients agree, all taken as the longest": isinstance(strategy, FedFaAgree)
        and strategy.server_lr is None,
        "clients weighed by their examples, taken as all alike": getattr(strategy, "weighting", "") == "examples",
        "stale differences weighed down, taken in full": not isinstance(
            getattr(strategy, "staleness", ConstantStaleness()), ConstantStaleness
        ),
        f"differences clipped to {strategy.clip_norm}, taken as they are": strategy.clip_norm is not None,
    }
    return tuple(text for text, applies in unknown.items() if applies)


# The replay ----------------------------------------------------------------------------------------------------------


class Watched:
    """A task whose evaluator also keeps some of the models that it evaluates, by the number of the evaluation."""

    def __init__(self, task: Task, wanted: Iterable[int]) -> None:
        self.kept: list[np.ndarray] = []
        self._task, self._wanted = task, frozenset(wanted)
        self.name, self.local, self.num_clients = task.name, task.local, task.num_clients
        self.initial, self.digest, self.label_counts = task.initial, task.digest, task.label_counts

    def evaluator(self, seed: int, device: Device) -> Evaluator:
        judge, count = self._task.evaluator(seed, device), itertools.count()

        def evaluate(model: Vector, meanwhile: Meanwhile) -> Score:
            if next(count) in self._wanted:
                self.kept.append(as_array(model).copy())
            return judge(model, meanwhile)

        return evaluate


def spaced(count: int, most: int) -> list[int]:
    """At most this many of the numbers below ``count``, evenly spaced, including the first and the last."""
    return sorted({round(share * (count - 1)) for share in np.linspace(0.0, 1.0, min(most, count))})


def experiment_of(run: Run, overrides: Sequence[str] = ()) -> Experiment:
    """The experiment that a run folder records."""
    assert run.folder is not None
    if not run.config:
        raise RecordError(
            f"{run.folder}: has no config.toml to run it again from; make the run with 'fedfa run' or Experiment.run"
        )
    return load_experiment(run.folder / "config.toml", overrides)


def replayed(
    run: Run, experiment: Experiment, task: Task, models: int, updates: int | None,
    progress: Callable[[Simulation], None] | None,
) -> tuple[Run, dict[int, np.ndarray], float]:  # fmt: skip
    """Run it again: the run, some of its models by version, and how far its accuracies are from the recorded ones."""
    most = min(len(run.accepted), updates or len(run.accepted))
    judged = run.evaluations.filter(run.evaluations["updates"] <= most)
    versions = judged["version"].unique().sort().to_list()
    require(
        len(versions) >= 2,
        f"{run.folder}: fewer than 2 models were evaluated; run it for longer or lower engine.evaluate_every",
    )
    wanted = spaced(len(versions), models)
    watched = Watched(task, wanted)
    engine = experiment.engine
    with closing(engine.make_executor(task, experiment.seed)) as executor:
        again = simulate(
            experiment.make_strategy(), watched, experiment.weather, Stop(updates=most), experiment.seed,
            engine=engine, executor=executor, label=run.label, progress=progress,
        )  # fmt: skip
    apart = _apart(run, again)
    if apart is None:
        raise RecordError(
            f"{run.folder}: run again, it has other events; its data, its code or a version has changed: "
            "run it anew with 'fedfa run'"
        )
    return again, dict(zip((versions[position] for position in wanted), watched.kept, strict=True)), apart


def _apart(run: Run, again: Run) -> float | None:
    """Mean distance between accuracies; None if the second run differs from the first.

    Arrivals do not depend on the machine. A client's result from the initial model depends on it by a rounding; later
    models depend on it more.
    """
    first, second = run.updates.head(len(again.updates)), again.updates
    columns = ("client", "dispatch", "base_version", "version")
    if len(first) < len(second) or any(not first[name].equals(second[name]) for name in columns):
        return None
    fresh = first["base_version"].to_numpy() == 0
    losses = first["train_loss"].to_numpy()[fresh], second["train_loss"].to_numpy()[fresh]
    both = run.evaluations.join(again.evaluations, on="updates", suffix="_again")
    accuracies, others = both["accuracy"].to_numpy(), both["accuracy_again"].to_numpy()
    apart = float(np.mean(np.abs(np.where(np.isnan(accuracies) & np.isnan(others), 0.0, accuracies - others))))
    near = apart <= TOLERANCE * float(np.nanmax(np.abs(accuracies), initial=1e-9))
    return apart if near and np.allclose(*losses, rtol=FRESH_TOLERANCE, equal_nan=True) else None


def _plain(value: Any) -> Any:
    """For JSON, which knows no NaN and no infinity."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
