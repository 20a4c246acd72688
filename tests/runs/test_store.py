"""The records of runs: what they hold, which are kept, and how they are labelled."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from polars.testing import assert_frame_equal

import fedfa
from fedfa import Stop
from fedfa.runs.run import Run
from fedfa.runs.stop import INTERRUPTED
from fedfa.runs.store import find_runs, read_run, write_run
from tests.helpers.simulations import quick


def test_of_an_interrupted_run_the_longest_is_kept(tmp_path: Path) -> None:
    def so_far(updates: int) -> Run:
        done = fedfa.simulate("fedfa-param", stop={"updates": updates})
        return replace(done, manifest=done.manifest | {"ended": str(INTERRUPTED), "fingerprint": "same"})

    for updates, kept in ((20, 20), (10, 20), (30, 30)):
        write_run(tmp_path, so_far(updates))
        assert len(read_run(tmp_path, or_unfinished=True).updates) == kept
    other = so_far(5)
    write_run(tmp_path, replace(other, manifest=other.manifest | {"fingerprint": "of other settings"}))
    assert len(read_run(tmp_path, or_unfinished=True).updates) == 5
    with pytest.raises(fedfa.RecordError, match="holds an unfinished run"):
        read_run(tmp_path)
    (only,) = find_runs(tmp_path)
    assert only.label == "fedfa-param (unfinished)"


def test_records_hold_every_arrival_and_evaluation(task: fedfa.Task, tmp_path: Path) -> None:
    run = quick("fedfa-param", task, out=tmp_path / "run")
    back = read_run(tmp_path / "run")
    assert_frame_equal(run.updates, back.updates, check_exact=True)
    assert_frame_equal(run.evaluations, back.evaluations, check_exact=True)
    assert back.updates.columns == [
        "seconds", "client", "dispatch", "dispatched_seconds", "base_version", "staleness", "version", "outcome",
        "train_loss", "delta_norm", "num_examples", "num_steps", "bytes_up", "bytes_down",
    ]  # fmt: skip
    assert back.clients["examples"].sum() == len(task.targets)
    assert (back.updates["bytes_up"] == 4 * len(run.model)).all()
    assert back.manifest["machine"]["torch"] == torch.__version__
    assert not list((tmp_path / "run").glob(".*"))
    assert not (tmp_path / "run" / "checkpoint.npz").exists()
    with pytest.raises(fedfa.RecordError, match="holds a finished run"):
        quick("fedfa-param", task, out=tmp_path / "run")
    assert len(find_runs(tmp_path)) == 1


def test_runs_that_differ_in_more_than_the_seed_get_different_labels(task: fedfa.Task, tmp_path: Path) -> None:
    for name, seed, stop in (("a", 0, 10), ("b", 1, 10), ("c/x", 0, 10), ("c/y", 0, 12)):
        quick("fedasync", task, out=tmp_path / name, seed=seed, stop=Stop(updates=stop))
    assert {run.label for run in find_runs(tmp_path / "a")} == {"fedasync"}
    assert [run.label for run in find_runs(tmp_path / "c")] == ["fedasync (x)", "fedasync (y)"]
