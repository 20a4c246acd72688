"""The points of a comparison."""

from pathlib import Path

import pytest

import fedfa
from fedfa.experiments.config import from_table, load_experiment
from fedfa.experiments.points import in_order, jobs_for, points
from tests.helpers.simulations import SMALL_EXPERIMENT


def test_comparisons_are_checked_before_anything_runs(tmp_path: Path) -> None:
    experiment = load_experiment(None, ["strategy.window=3"])
    todo = points(experiment, ["fedavg", "fedfa-param", "fedbuff:buffer=2:refill=immediate"], [0, 1], tmp_path)
    assert len(todo) == 6
    assert todo[0].experiment.strategy == {"name": "fedavg"}
    assert todo[2].experiment.strategy == {"name": "fedfa-param", "window": 3}
    assert todo[5].experiment.strategy == {"name": "fedbuff", "buffer": 2, "refill": "immediate"}
    assert todo[5].folder == tmp_path / "fedbuff_buffer=2_refill=immediate-seed1"
    for specs, seeds, message in [
        (["fedavg", "fedavg"], [0], "one is given twice"),
        (["fedavg"], [0, 0], "one is given twice"),
        (["fedavgg"], [0], "did you mean 'fedavg'?"),
        (["fedbuff:bufer=2"], [0], "unknown key; did you mean 'buffer'?"),
        (["fedbuff:buffer=2:refill"], [0], "'refill' must look like KEY=VALUE"),
        (["fedfa-param:concurrency=60"], [0], "concurrency = 60: more than the 50 clients there are"),
    ]:
        with pytest.raises(fedfa.ConfigError) as caught:
            points(experiment, specs, seeds, tmp_path)
        assert message in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_runs_that_share_their_data_follow_each_other(tmp_path: Path) -> None:
    todo = points(from_table(SMALL_EXPERIMENT), ["fedavg", "fedasync"], [0, 1], tmp_path)
    assert [point.experiment.seed for point in todo] == [0, 1, 0, 1]
    assert [point.experiment.seed for point in in_order(todo)] == [0, 0, 1, 1]


@pytest.mark.parametrize("executor", ["auto", "ray"])
def test_a_run_that_uses_the_whole_machine_runs_alone(executor: str, tmp_path: Path) -> None:
    todo = points(from_table(SMALL_EXPERIMENT | {"engine": {"executor": executor}}), ["fedavg"], [0], tmp_path)
    assert (jobs_for(todo) == 1) >= (executor == "ray")
