"""Many runs in few files: nothing is lost, and an interruption at any point does no harm."""

import csv
import shutil
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from fedfa.errors import RecordError
from fedfa.runs.run import Run
from fedfa.runs.stop import INTERRUPTED
from fedfa.runs.store import read_run
from fedfa_reproduction.matching import recorded_experiment
from fedfa_reproduction.records import Records, write_records
from fedfa_reproduction.workloads import DIGITS
from reproduction_helpers import study


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A short run with its rows and its experiment, as it lies in its folder."""
    folder = tmp_path_factory.mktemp("one") / "run"
    experiment = study(folder).experiment(DIGITS, DIGITS.splits[-1], stop={"updates": 20})
    experiment.run(folder, label="fedfa-param", command="fedfa paper figure5")
    return read_run(folder)


def relabelled(run: Run, **changes: object) -> Run:
    return replace(run, manifest=run.manifest | changes)


def same(found: Run, run: Run) -> bool:
    """Whether nothing was lost but what else was compared, and the label counts."""
    assert_frame_equal(found.updates, run.updates, check_exact=True)
    assert_frame_equal(found.evaluations, run.evaluations, check_exact=True)
    assert [{key: value for key, value in one.config.items() if key != "compare"} for one in (found, run)] == [
        {key: value for key, value in run.config.items() if key != "compare"}
    ] * 2
    machine = {key: value for key, value in run.manifest["machine"].items() if value is not None}
    return {key: value for key, value in found.manifest.items() if key != "run"} == run.manifest | {"machine": machine}


def test_a_run_comes_back_as_it_was(tmp_path: Path, run: Run) -> None:
    on_gpu = relabelled(run, device="cuda", precision="bf16", ended="diverged: accuracy below 0.2 for 160 updates")
    runs = {"a/x-seed0": relabelled(run), "a-b/y-seed1": relabelled(on_gpu, seed=1)}
    write_records(tmp_path / "records", runs)
    found = Records(tmp_path)
    assert list(found.by_name) == ["a/x-seed0", "a-b/y-seed1"]
    for name, before in runs.items():
        assert same(found.run(name), before), name
    assert found.by_name["a/x-seed0"].workload == "digits"
    assert recorded_experiment(found.by_name["a/x-seed0"])[0].stop.updates == 20
    with (tmp_path / "records" / "runs.csv").open() as file:
        row = list(csv.DictReader(file))[1]
    assert (row["strategy"], row["seed"], row["device"], row["precision"]) == ("fedfa-param", "1", "cuda", "bf16")
    assert (row["ended"], row["reason"]) == ("diverged", "accuracy below 0.2 for 160 updates")
    assert (row["updates"], float(row["best_accuracy"])) == ("20", run.best_accuracy)


def test_finished_runs_are_moved_into_the_files(tmp_path: Path, run: Run) -> None:
    assert run.folder is not None
    records = Records(tmp_path)
    shutil.copytree(run.folder, tmp_path / "work" / "a" / "x-seed0")
    assert list(records.by_name) == ["a/x-seed0"]  # it counts before it is moved
    records.fold()
    assert not (tmp_path / "work" / "a").exists()
    assert same(Records(tmp_path).run("a/x-seed0"), run)
    shutil.copytree(run.folder, tmp_path / "work" / "b" / "y-seed0")
    Records(tmp_path).fold()
    assert list(Records(tmp_path).by_name) == ["a/x-seed0", "b/y-seed0"]
    index = pl.read_csv(tmp_path / "records" / "runs.csv")
    assert index["updates"].to_list() == [20, 20]  # that of the first was not worked out anew


def test_a_move_that_was_interrupted_is_made_again(tmp_path: Path, run: Run) -> None:
    """Killed after the rows were written and before the list: the run still counts, once."""
    assert run.folder is not None
    write_records(tmp_path / "records", {"a/x-seed0": relabelled(run)})
    index = tmp_path / "records" / "runs.csv"
    header = index.read_text().splitlines()[0]
    index.write_text(f"{header}\n")
    shutil.copytree(run.folder, tmp_path / "work" / "a" / "x-seed0")
    records = Records(tmp_path)
    assert same(records.run("a/x-seed0"), run)
    records.fold()
    assert same(Records(tmp_path).run("a/x-seed0"), run)
    rows = pl.read_parquet(tmp_path / "records" / "digits" / "updates.parquet")
    assert len(rows) == len(run.updates)


def test_of_an_interrupted_run_the_farther_one_is_shown(tmp_path: Path, run: Run) -> None:
    """The recorded one, until the one under way is beyond it; a finished one wins over both."""
    assert run.folder is not None
    half = run.seconds / 2
    recorded = relabelled(run, ended=str(INTERRUPTED), seconds=half)
    write_records(tmp_path / "records", {"a/x-seed0": recorded})
    under_way = tmp_path / "work" / "a" / "x-seed0"
    shutil.copytree(run.folder, under_way)
    manifest, unfinished = under_way / "manifest.json", under_way / "unfinished.json"
    text = manifest.read_text().replace('"ended": "updates"', f'"ended": "{INTERRUPTED}"')
    for seconds, expected in ((half / 2, half), (2 * half - 1, 2 * half - 1)):
        unfinished.write_text(text.replace(f'"seconds": {run.seconds}', f'"seconds": {seconds}'))
        manifest.unlink(missing_ok=True)
        assert Records(tmp_path).run("a/x-seed0").seconds == expected
    assert not Records(tmp_path).by_name["a/x-seed0"].finished
    unfinished.unlink()
    shutil.copy(run.folder / "manifest.json", manifest)
    Records(tmp_path).fold()
    assert same(Records(tmp_path).run("a/x-seed0"), run)


@pytest.mark.parametrize("name", ["settings.jsonl", "runs.csv"])
def test_a_damaged_list_is_named(name: str, tmp_path: Path, run: Run) -> None:
    write_records(tmp_path / "records", {"a/x-seed0": relabelled(run)})
    (tmp_path / "records" / name).write_text("run,strategy\na,b\n")
    with pytest.raises(RecordError, match=r"records: cannot be read .*; restore it, or choose another --out"):
        assert Records(tmp_path).by_name
