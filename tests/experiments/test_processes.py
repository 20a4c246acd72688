"""Several runs in processes of their own: the next point is chosen late, and all can be stopped."""

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fedfa.experiments import processes
from fedfa.experiments.config import from_table
from fedfa.experiments.points import Point, points
from fedfa.experiments.processes import run_points
from fedfa.runs.store import read_run
from tests.helpers.simulations import SMALL_EXPERIMENT


def test_the_next_point_is_chosen_when_a_process_is_free(tmp_path: Path) -> None:
    """The choice may depend on the runs so far."""
    experiment = from_table(SMALL_EXPERIMENT | {"stop": {"updates": 10}})
    todo = points(experiment, ["fedfa-param", "fedavg", "fedasync"], [0], tmp_path)
    seen: list[str] = []
    asked_after: list[int] = []

    def next_ones() -> Iterator[Point]:
        for point in todo:
            asked_after.append(len(seen))
            if "fedavg" not in point.label:
                yield point

    for run in run_points(next_ones(), jobs=1):
        seen.append(run.label)
    assert seen == ["fedfa-param", "fedasync"]
    assert asked_after == [0, 1, 1]
    assert not todo[1].folder.exists()


def test_a_process_makes_several_runs_at_a_time_where_that_is_faster(tmp_path: Path) -> None:
    """And each is the one that it is alone."""
    experiment = from_table(SMALL_EXPERIMENT | {"stop": {"updates": 60}, "strategy": {"concurrency": 5}})
    specs = ["fedfa-param", "fedavg", "fedasync", "fedprox", "fedfa-delta"]
    todo = points(experiment, specs, [0, 1], tmp_path / "together")
    found = {(run.label, run.seed): run for run in run_points(todo, jobs=1, total=len(todo))}
    assert {run.manifest["executor"] for run in found.values()} == {"batched"}
    engine = replace(experiment.engine, executor="batched")
    for point in points(replace(experiment, engine=engine), specs, [0, 1], tmp_path / "alone"):
        run = point.experiment.run(point.folder, label=point.label)
        assert run.updates.equals(found[point.label, run.seed].updates)
        assert run.evaluations.equals(found[point.label, run.seed].evaluations)


def test_interrupted_runs_are_saved_and_continued(tmp_path: Path) -> None:
    experiment = from_table(SMALL_EXPERIMENT | {"stop": {"updates": 10**6}, "engine": {"checkpoint_seconds": 0.2}})
    (point,) = points(experiment, ["fedfa-param"], [0], tmp_path)
    checkpoint = point.folder / "checkpoint.npz"
    reached = []
    for _ in range(2):
        started = time.time()
        under_way = partial(written_since, checkpoint, started)
        assert list(run_points([point], jobs=1, resume=True, interrupted=under_way)) == []
        assert checkpoint.is_file()
        reached.append(read_run(point.folder, or_unfinished=True).seconds)
    assert 0 < reached[0] < reached[1]


def test_the_last_run_may_use_all_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[Any] = []
    new = processes._Worker.new
    monkeypatch.setattr(processes._Worker, "new", lambda share: shares.append(share) or new(share))
    monkeypatch.setattr(processes, "machine_cores", lambda: 4)
    short, long = (from_table(SMALL_EXPERIMENT | {"stop": {"updates": number}}) for number in (5, 2000))
    todo = [*points(short, ["fedasync"], [0], tmp_path), *points(long, ["fedavg"], [0], tmp_path)]
    seen = [(run.label, shares[0].value) for run in run_points(todo, jobs=2)]
    assert seen == [("fedasync", 2), ("fedavg", 4)]


def test_runs_side_by_side_may_have_several_processes_each(tmp_path: Path) -> None:
    records = []
    for workers in (1, 2):
        engine = {"executor": "inline", "workers": workers}
        experiment = from_table(SMALL_EXPERIMENT | {"stop": {"updates": 40}, "engine": engine})
        todo = points(experiment, ["fedfa-param", "fedasync"], [0], tmp_path / str(workers))
        assert len(list(run_points(todo, jobs=2))) == 2
        records.append([(point.folder / "updates.parquet").read_bytes() for point in todo])
    assert records[0] == records[1]


def written_since(file: Path, started: float) -> bool:
    return file.is_file() and file.stat().st_mtime > started
