"""Several simulations in one process: each has the records it has alone."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import fedfa
from fedfa import Stop
from fedfa.executors.stack import Stacks
from fedfa.learning.device import CPU
from fedfa.learning.models.small import mlp
from fedfa.runs.store import CHECKPOINT, read_run
from fedfa.simulation.settings import EngineSettings
from fedfa.simulation.simulate import simulation
from fedfa.simulation.together import MOST_TOGETHER, Begin, together, undisturbed
from tests.helpers.training import own_task

SIZES = tuple(range(3, 17))
FILES = ("updates.parquet", "evaluations.parquet", "clients.parquet")
STRATEGIES = (
    "fedavg:concurrency=4", "fedprox:concurrency=4", "fedbuff:buffer=3:concurrency=6", "fedasync:concurrency=5",
    "port-urgent:concurrency=5:staleness_bound=2", "fedfa-param:window=3:concurrency=7",
)  # fmt: skip


def small_task(lr: float = 0.05) -> fedfa.Task:
    return own_task(lambda: nn.Sequential(nn.Flatten(), mlp(8, 16, 4)), SIZES, lr=lr)


def begins(tasks: list[fedfa.Task], out: Path, executor: str = "batched", **settings: Any) -> Iterator[Begin]:
    """Each strategy on each task, every one with another seed."""
    engine = EngineSettings(executor=executor, compile=False, evaluate_every=5)
    for seed, task in enumerate(tasks):
        for name in STRATEGIES:
            yield partial(
                simulation, name, task, seed=seed, label=name, engine=engine, out=out / f"{name}-{seed}", beside=2,
                **({"stop": Stop(updates=30)} | settings),
            )  # fmt: skip


def make_all(following: Iterator[Begin]) -> list[fedfa.Run]:
    with undisturbed(1, CPU):
        return list(together(lambda: next(following, None)))


def test_records_do_not_depend_on_who_shared_the_batch(tmp_path: Path) -> None:
    """Other strategies, seeds, data and learning rates; in one stack, and alone."""
    rates, stacks = (0.05, 0.05, 0.2), Stacks()
    tasks = [small_task(lr) for lr in rates]
    for task in tasks:
        stacks.share(task)
    runs = make_all(begins(tasks, tmp_path / "together"))
    assert len(runs) == len(STRATEGIES) * len(rates) > MOST_TOGETHER
    assert [stack.prox_mu for stack in stacks.all] == [0.0, 0.01]  # FedProx's clients have a stack of their own
    assert len(stacks.all[0].members) >= 2
    for begin in begins([small_task(lr) for lr in rates], tmp_path / "alone"):
        make_all(iter([begin]))
    for run in runs:
        assert run.folder is not None
        alone = tmp_path / "alone" / run.folder.name
        for name in FILES:
            assert (run.folder / name).read_bytes() == (alone / name).read_bytes(), (run.label, name)


def test_events_are_those_of_other_executors(tmp_path: Path) -> None:
    columns = ["train_loss", "delta_norm"]
    side_by_side = make_all(begins([small_task()], tmp_path / "together"))
    one_by_one = make_all(begins([small_task()], tmp_path / "inline", executor="inline"))
    frames = {run.label: run.updates.drop(columns) for run in side_by_side}
    for run in one_by_one:
        assert run.updates.drop(columns).equals(frames[run.label])


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_when_one_run_ends_early_the_others_are_saved(error: type[BaseException], tmp_path: Path) -> None:
    long = Stop(updates=10**6)

    def broken(engine: Any) -> None:
        if engine.accepted > 40:
            raise error

    following = begins([small_task()], tmp_path, stop=long)
    runs = [partial(begin, progress=broken) if number == 2 else begin for number, begin in enumerate(following)]
    with pytest.raises(error):
        make_all(iter(runs))
    saved = [name for name in STRATEGIES if (tmp_path / f"{name}-0" / CHECKPOINT).exists()]
    assert set(saved) >= set(STRATEGIES) - {STRATEGIES[2]}
    stop = Stop(updates=max(read_run(tmp_path / f"{name}-0", or_unfinished=True).updates.height for name in saved) + 50)
    again = make_all(begins([small_task()], tmp_path, stop=stop, resume=True))
    whole = {run.label: run for run in make_all(begins([small_task()], tmp_path / "whole", stop=stop))}
    for run in again:
        assert run.updates.equals(whole[run.label].updates), run.label
        assert run.evaluations.equals(whole[run.label].evaluations), run.label
