"""Which runs the paper's tables and accuracy figures need."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fedfa.experiments.config import Experiment
from fedfa.learning.data.registry import TEXTS
from fedfa.strategies.registry import STRATEGIES
from fedfa_reproduction.base import Comparison, Stage
from fedfa_reproduction.contenders import agree, averaging, contenders, extended, param, with_row
from fedfa_reproduction.published import paper
from fedfa_reproduction.study import Study
from fedfa_reproduction.workloads import EMBEDDED, Split, Workload

BASIC = ("fedavg", "fedbuff", "fedfa-param", "fedfa-delta", "fedfa-agree")
SAME_WORK = 200
WINDOWS = (2, 5, 10, 20)
CONCURRENCIES = (2, 5, 10, 20)


def everyone(study: Study, stage: Stage | None = None) -> list[Comparison]:
    """Every strategy on every split: to its target, or, in a separate stage, to the end."""
    return [
        Comparison(
            split.name,
            workload.titled(split),
            experiment,
            contenders(*in_flight(experiment)),
            stage_of(workload, split) if stage is None else stage,
            ends_at_target=stage is None,
            most_updates=caps(study, paper()["table2"].get(split.name, {}), experiment),
        )
        for workload, split in study.splits()
        for experiment in [study.experiment(workload, split)]
    ]


def basic(study: Study) -> list[Comparison]:
    """The four methods of Table 3 on every split, and FedFa-Agree."""
    return [
        replace(comparison, contenders=with_row(comparison.contenders, *BASIC))
        for comparison in everyone(study, Stage.TO_THE_END)
    ]


def concurrencies(study: Study) -> list[Comparison]:
    """M_c = 2, 5, 10, 20; a buffer cannot be larger than M_c, so K falls with M_c."""
    found = []
    for workload, split in study.mild_splits():
        usual = study.experiment(workload, split, workload.sweep)
        for concurrency in CONCURRENCIES:
            if concurrency > usual.data.clients > 0:
                continue
            window = min(window_of(usual), concurrency)
            changes = {"strategy__concurrency": concurrency, "strategy__window": window}
            some = with_row(contenders(window, concurrency), "fedavg", "fedbuff", "fedfa-delta", "fedfa-agree")
            found.append(
                Comparison(
                    f"{split.name}-mc{concurrency}",
                    f"{workload.titled(split)}, M_c = {concurrency}",
                    study.experiment(workload, split, workload.sweep, **changes),
                    tuple(contender for contender in some if contender.leading),
                    Stage.CONCURRENCY,
                )
            )
    return found


def same_time(study: Study) -> list[Comparison]:
    """Every strategy for the same time on the hardest split, where the target takes long."""
    return [
        Comparison(
            f"{split.name}-same-time",
            workload.titled(split),
            experiment,
            contenders(*in_flight(experiment)),
            Stage.SAME_TIME,
        )
        for workload in study.workloads
        for split in workload.splits[:1]
        for experiment in [study.experiment(workload, split, workload.same_time)]
    ]


def unequal_work(study: Study) -> list[Comparison]:
    """FedNova and FedProx with and without FedFa; each client draws its epochs, otherwise FedNova is FedAvg."""
    return [
        Comparison(
            f"{split.name}-unequal",
            f"{workload.titled(split)}, unequal work",
            experiment,
            extended(window_of(experiment)),
            Stage.UNEQUAL_WORK,
            ends_at_target=True,
            most_updates=caps(study, paper()["table5"]["rounds"] if workload.name == "cifar10" else {}, experiment),
        )
        for workload, split in study.mild_splits()
        for epochs in [max(2, study.experiment(workload, split).local.epochs)]
        for experiment in [study.experiment(workload, split, local__least_epochs=1, local__epochs=epochs)]
    ]


def same_work(study: Study) -> list[Comparison]:
    """A synchronous, a semi-asynchronous and a fully asynchronous strategy, for the same number of updates."""
    experiment = study.experiment(EMBEDDED, EMBEDDED.splits[-1], stop={"updates": SAME_WORK})
    by_key = {contender.key: contender for contender in contenders(*in_flight(experiment))}
    window = window_of(experiment)
    chosen = (by_key["fedavg"], by_key[f"fedbuff-mean-{window}"], by_key[f"fedfa-param-{window}"])
    return [Comparison("same-work", f"{SAME_WORK} updates", experiment, chosen)]


def windows(study: Study) -> list[Comparison]:
    """Windows from small to large; on the hard split also FedFa-Agree's, in the time that every strategy has there."""
    of_param = tuple(param(k, f"K = {k}") for k in WINDOWS)
    of_agree = tuple(agree(k, f"K = {k}, FedFa-Agree") for k in WINDOWS)
    found = []
    for workload, split in study.splits():
        experiment = windows_experiment(study, workload, split)
        fedavg = with_row(contenders(*in_flight(experiment)), "fedavg")
        compared = of_param if split is workload.splits[-1] else (*fedavg, *of_param, *of_agree)
        name = f"{split.name}-windows"
        found.append(Comparison(name, workload.titled(split), experiment, compared, Stage.WINDOWS))
    return [*found, *averaging_over_more(study)]


def averaging_over_more(study: Study) -> list[Comparison]:
    """Other strategies that average over more clients than usual, on a hard and a mild split."""
    return [
        Comparison(
            f"{split.name}-rivals",
            f"{workload.titled(split)}: others that average over more",
            experiment,
            averaging(*in_flight(experiment)),
            Stage.WINDOWS,
        )
        for workload, split in study.splits()
        if len(workload.splits) > 1
        for experiment in [windows_experiment(study, workload, split)]
    ]


def windows_experiment(study: Study, workload: Workload, split: Split) -> Experiment:
    return study.experiment(workload, split, workload.sweep if split is workload.splits[-1] else workload.same_time)


def nothing(study: Study) -> list[Comparison]:
    return []


def stage_of(workload: Workload, split: Split) -> Stage:
    if workload.name in TEXTS:
        return Stage.TEXTS
    return Stage.MILD_SPLIT if split is workload.splits[-1] else Stage.HARD_SPLIT


def caps(study: Study, rounds: Mapping[str, Any], experiment: Experiment) -> dict[bool, int]:
    """A fifth more updates than the slowest strategy of the paper took, for synchronous strategies and the others.

    Only at full scale, and only if the user sets no number of updates.
    """
    if study.scale != "full" or experiment.stop.updates is not None:
        return {}
    updates: dict[bool, list[float]] = {}
    for row, count in rounds.items():
        if row in STRATEGIES and isinstance(count, int | float):
            waits = STRATEGIES[row].synchronous
            updates.setdefault(waits, []).append(count * experiment.strategy["concurrency" if waits else "window"])
    return {waits: math.ceil(1.2 * max(found)) for waits, found in updates.items()}


def in_flight(experiment: Experiment) -> tuple[int, int]:
    """K and M_c."""
    return window_of(experiment), experiment.strategy["concurrency"]


def window_of(experiment: Experiment) -> int:
    return experiment.strategy["window"]
