"""Which runs the paper's tables and accuracy figures need."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fedfa.data import TEXTS
from fedfa.experiment import Experiment
from fedfa.recipes.contenders import Contender, averaging, by_agreement, contenders, extended, leading, some
from fedfa.recipes.lab import Contest, Lab, paper
from fedfa.recipes.workloads import EMBEDDED, Split, Workload
from fedfa.strategies import BY_NAME as STRATEGIES

BASIC = ("fedavg", "fedbuff", "fedfa-param", "fedfa-delta")
SAME_WORK = 200
WINDOWS = (2, 5, 10, 20)


def everyone(lab: Lab, ends_at_target: bool) -> list[Contest]:
    """Every strategy on every split."""
    return [
        Contest(
            split.name,
            workload.titled(split),
            experiment,
            contenders(*in_flight(experiment)),
            stage_of(workload, split) if ends_at_target else "to the end",
            ends_at_target,
            caps(lab, paper()["table2"].get(split.name, {}), experiment),
        )
        for workload, split in lab.splits()
        for experiment in [lab.experiment(workload, split)]
    ]


def everyone_to_target(lab: Lab) -> list[Contest]:
    return everyone(lab, ends_at_target=True)


def basic(lab: Lab) -> list[Contest]:
    """The four methods of Table 3 on every split."""
    return [
        replace(contest, contenders=some(*in_flight(contest.experiment), *BASIC))
        for contest in everyone(lab, ends_at_target=False)
    ]


def concurrencies(lab: Lab) -> list[Contest]:
    """M_c = 2, 5, 10, 20; a buffer cannot be larger than what is in flight, so K goes down with M_c."""
    found = []
    for workload, split in lab.last_splits():
        usual = lab.experiment(workload, split, workload.sweep)
        for concurrency in (2, 5, 10, 20):
            if concurrency > usual.data.clients > 0:
                continue
            window = min(window_of(usual), concurrency)
            changes = {"strategy__concurrency": concurrency, "strategy__window": window}
            found.append(
                Contest(
                    f"{split.name}-mc{concurrency}",
                    f"{workload.titled(split)}, M_c = {concurrency}",
                    lab.experiment(workload, split, workload.sweep, **changes),
                    leading(window, concurrency, "fedavg", "fedbuff", "fedfa-delta"),
                    "concurrency",
                )
            )
    return found


def same_time(lab: Lab) -> list[Contest]:
    """Every strategy for the same time on the hardest split, where the way to the target is long."""
    return [
        Contest(
            f"{split.name}-same-time",
            workload.titled(split),
            experiment,
            contenders(*in_flight(experiment)),
            "same time",
        )
        for workload in lab.workloads
        for split in workload.splits[:1]
        for experiment in [lab.experiment(workload, split, workload.same_time)]
    ]


def unequal_work(lab: Lab) -> list[Contest]:
    """FedNova and FedProx with and without FedFa; each client draws its local epochs, or FedNova would be FedAvg."""
    return [
        Contest(
            f"{split.name}-unequal",
            f"{workload.titled(split)}, unequal work",
            experiment,
            extended(window_of(experiment)),
            "unequal work",
            ends_at_target=True,
            most_updates=caps(lab, paper()["table5"]["rounds"] if workload.name == "cifar10" else {}, experiment),
        )
        for workload, split in lab.last_splits()
        for epochs in [max(2, lab.experiment(workload, split).local.epochs)]
        for experiment in [lab.experiment(workload, split, local__least_epochs=1, local__epochs=epochs)]
    ]


def same_work(lab: Lab) -> list[Contest]:
    """A synchronous, a semi-asynchronous and a fully asynchronous strategy until the same number of updates is in."""
    experiment = lab.experiment(EMBEDDED, EMBEDDED.splits[-1], stop={"updates": SAME_WORK})
    chosen = some(*in_flight(experiment), "fedavg", "fedbuff", "fedfa-param")
    return [
        Contest("same-work", f"{SAME_WORK} updates", experiment, tuple(c for c in chosen if "paper" not in c.title))
    ]


def windows(lab: Lab) -> list[Contest]:
    """Windows from small to large; on the hard split FedFa-Delta's too, in the time that every strategy has there."""
    param = tuple(Contender(f"fedfa-param:window={k}", f"K = {k}", "fedfa-param") for k in WINDOWS)
    delta = tuple(by_agreement(k, f"K = {k}, FedFa-Delta") for k in WINDOWS)
    found = []
    for workload, split in lab.splits():
        mild, experiment = split is workload.splits[-1], windows_experiment(lab, workload, split)
        compared = param if mild else (*some(*in_flight(experiment), "fedavg"), *param, *delta)
        found.append(Contest(f"{split.name}-windows", workload.titled(split), experiment, compared, "windows"))
    return [*found, *rivals(lab)]


def rivals(lab: Lab) -> list[Contest]:
    """What other strategies make of a hard and a mild split when they, too, average over more clients than usual."""
    return [
        Contest(
            f"{split.name}-rivals",
            f"{workload.titled(split)}: others that average over more",
            experiment,
            averaging(*in_flight(experiment)),
            "windows",
        )
        for workload, split in lab.splits()
        if len(workload.splits) > 1
        for experiment in [windows_experiment(lab, workload, split)]
    ]


def windows_experiment(lab: Lab, workload: Workload, split: Split) -> Experiment:
    return lab.experiment(workload, split, workload.sweep if split is workload.splits[-1] else workload.same_time)


def nothing(lab: Lab) -> list[Contest]:
    return []


def stage_of(workload: Workload, split: Split) -> str:
    if workload.name in TEXTS:
        return "texts"
    return "mild split" if split is workload.splits[-1] else "hard split"


def caps(lab: Lab, rounds: Mapping[str, Any], experiment: Experiment) -> dict[bool, int]:
    """A fifth more updates than the slowest strategy of the paper took, for synchronous strategies and the others.

    At full scale only, and where the user sets no number of updates.
    """
    if lab.scale != "full" or experiment.stop.updates is not None:
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


def window_of(experiment: Any) -> int:
    return experiment.strategy["window"]
