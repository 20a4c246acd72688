"""Which numbers of the paper stand beside a run, and how far apart the same run comes out."""

from pathlib import Path

import polars as pl
import pytest

from fedfa_reproduction.measures import with_accuracy
from fedfa_reproduction.recipes import BY_NAME
from fedfa_reproduction.records import Records
from fedfa_reproduction.study import Study
from fedfa_reproduction.workloads import CIFAR10, CIFAR10_CNN
from reproduction_helpers import comparison, made, make_run, study

COVERAGE, RERUNS = BY_NAME["coverage"], BY_NAME["reruns"]
TWO = [("FedAvg", "fedavg"), ("FedFa-Param", "fedfa-param")]


def test_a_cell_is_the_seeds_of_the_form_that_has_most(tmp_path: Path) -> None:
    here = Study("full", (CIFAR10, CIFAR10_CNN), (0, 1), tmp_path, only_show=True)
    wanted = COVERAGE.comparisons(here)
    labels = {
        "cifar10-iid": [("FedFa-Delta 1/M_c", 0), ("FedFa-Delta 1/K", 0), ("FedFa-Delta 1/K", 1)],
        "cifar10-iid-mc20": [("FedAvg", 0)],
        "cifar10-iid-unequal": [("FedProx with FedFa-Delta", 1)],
    }
    results = [
        (one, [make_run(label, (0.5,), seed=seed) for label, seed in labels.pop(one.name, [])]) for one in wanted
    ]
    assert labels == {}
    section = COVERAGE.show(here, results)
    rows = {row[0]: row[1:] for row in section.grids[0].rows}
    assert rows["1, 2: CIFAR-10, alpha = 5"] == (*["–"] * 6, "2")
    assert rows["3: CIFAR-10, alpha = 5"] == ("–", "", "–", "", "", "–", "–")
    assert rows["4: M_c = 20"] == ("1", "", "–", "", "", "", "–")
    assert section.grids[1].rows == [("5", "–", "–", "–", "1")]
    assert section.values == {"numbers": 92, "run": 5, "part": 0, "none": 87}


def test_a_shorter_run_covers_a_part(tmp_path: Path, without_data: None) -> None:
    """Of the records: every cell of the paper's with alpha = 0.1 on ResNet-18 that is not without a run."""
    here = Study("full", (CIFAR10,), (0,), Path(__file__).parents[1], only_show=True)
    section = COVERAGE.show(here, [(one, []) for one in COVERAGE.comparisons(here)])
    rows = {row[0]: row[1:] for row in section.grids[0].rows}
    assert rows["1, 2: CIFAR-10, alpha = 0.1"] == (*["part"] * 4, "–", "part", "part")


def test_workloads_that_the_paper_does_not_have_answer_nothing(tmp_path: Path) -> None:
    here = study(tmp_path)
    assert COVERAGE.comparisons(here) == []
    assert COVERAGE.show(here, []).values == {"numbers": 92, "run": 0, "part": 0, "none": 92}


@pytest.fixture
def there(tmp_path: Path) -> Study:
    """With a run of each of two strategies."""
    here = study(tmp_path)
    made(here, comparison("once", *TWO))
    return here


def again(records: Records, strategy: str, lower_by: float) -> None:
    """Record a run once more, as it would come out elsewhere."""
    (name,) = [name for name in records.by_name if name.startswith(f"once/{strategy}")]
    records.add(f"again/{strategy}-seed0", with_accuracy(records.run(name), pl.col("accuracy") - lower_by))


def test_the_same_run_twice_is_the_same(there: Study) -> None:
    again(there.records, "fedavg", 0.0)
    section = RERUNS.show(there, [])
    assert section.values == {"pairs": 1, "different": []}
    assert not section.grids


def test_how_far_apart_the_same_run_comes_out(there: Study) -> None:
    again(there.records, "fedavg", 0.0)
    again(there.records, "fedfa-param", 0.25)
    section = RERUNS.show(there, [])
    assert section.values["pairs"] == 2
    (pair,) = section.values["different"]
    assert all("fedfa-param" in name for name in pair["runs"])
    first, second = pair["levels"]
    assert abs(first - second) == pytest.approx(0.25)
    assert section.grids[0].rows[0][2] == "25.0"
