"""``compare``: strategies side by side in one process."""

from pathlib import Path

import fedfa
from fedfa import Stop
from fedfa.runs.store import read_run
from tests.helpers.simulations import Mine


def test_compare_runs_objects_side_by_side(task: fedfa.Task) -> None:
    small = [fedfa.FedAvg(concurrency=4), Mine(concurrency=4)]
    runs = fedfa.compare(small, task, seeds=(0, 1), stop=Stop(updates=20), engine={"executor": "inline"})
    assert [(run.label, run.seed) for run in runs] == [("fedavg", 0), ("mine", 0), ("fedavg", 1), ("mine", 1)]
    figure = fedfa.plot(runs[0])
    assert figure.axes[0].get_xlabel()


def test_compare_records_every_run_in_a_folder_of_its_own(task: fedfa.Task, tmp_path: Path) -> None:
    runs = fedfa.compare(["fedavg", "fedbuff:buffer=3"], task, seeds=[0, 1], out=str(tmp_path), stop=Stop(updates=12))
    names = ["fedavg-seed0", "fedavg-seed1", "fedbuff_buffer=3-seed0", "fedbuff_buffer=3-seed1"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert {run.label: run.manifest["strategy"].get("buffer") for run in runs} == {
        "fedavg": None,
        "fedbuff:buffer=3": 3,
    }
    assert read_run(str(tmp_path / "fedavg-seed1")).seed == 1
