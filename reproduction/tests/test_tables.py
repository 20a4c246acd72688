"""What the tables say of runs made by hand."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedfa.report.shapes import Line
from fedfa.report.tables import summarise
from fedfa.runs.run import Run
from fedfa_reproduction.figures import figure3
from fedfa_reproduction.measures import mean_change, steady_time_to
from fedfa_reproduction.questions import faster_cell
from fedfa_reproduction.recipes import BY_NAME
from fedfa_reproduction.tables import table1, table2, table3, table5
from reproduction_helpers import comparison, make_run, study


def test_times_stand_beside_the_papers(tmp_path: Path) -> None:
    """FedAvg takes twice as long as FedFa; a strategy that one seed in two fails has failed."""
    chosen = comparison("cifar10-iid", ("FedAvg", "fedavg"), ("FedFa-Delta", "fedfa-delta"), ("FedAsync", "fedasync"))
    runs = [
        make_run("FedAvg", (0.5, 0.8), synchronous=True),
        make_run("FedFa-Delta", (0.5, 0.8)),
        make_run("FedAsync", (0.5, 0.8)),
        make_run("FedAsync", (0.5, 0.6), seed=3),
    ]
    section = table1(study(tmp_path), [(chosen, runs)])
    (grid,) = section.grids
    slow, fast = runs[0].time_to(0.7), runs[1].time_to(0.7)
    assert slow == 2 * (fast or 0)
    cells = {row[0]: row[1:] for row in grid.rows}
    assert cells["FedAvg"] == (f"{slow:.2f}", "2.0×", "5,040", "5.9×", "–", "1 of 1", "80.0")
    assert cells["FedFa-Delta"] == (f"{fast:.2f}", "1.0×", "855", "1.0×", "–", "1 of 1", "80.0")
    assert cells["FedAsync"] == ("failed", "–", "failed", "–", "–", "1 of 2", "70.0")
    assert json.loads(json.dumps(section.values))["cells"][0]["paper"] == 5040
    rounds = {row[0]: row[1:5] for row in table2(study(tmp_path), [(chosen, runs)]).grids[0].rows}
    own = runs[1].rounds_to(0.7)
    assert own is not None
    assert rounds["FedFa-Delta"] == (f"{own:.2f}", "1.0×", "230", "1.0×")


def test_a_strategy_that_the_paper_does_not_have_stands_without_its_numbers(tmp_path: Path) -> None:
    chosen = comparison("cifar10-iid", ("FedFa-Agree", "fedfa-agree"), ("FedFa-Delta", "fedfa-delta"))
    runs = [make_run("FedFa-Agree", (0.8,)), make_run("FedFa-Delta", (0.8,))]
    rows = {row[0]: row[3:5] for row in table1(study(tmp_path), [(chosen, runs)]).grids[0].rows}
    assert rows == {"FedFa-Agree": ("–", "–"), "FedFa-Delta": ("855", "1.0×")}


def test_best_accuracies_and_extensions(tmp_path: Path) -> None:
    chosen = comparison("cifar10-noniid", ("FedAvg", "fedavg"), ("FedFa-Param", "fedfa-param"))
    runs = [make_run("FedAvg", (0.5, 0.6, 0.4)), make_run("FedFa-Param", (0.3,))]
    rows = table3(study(tmp_path), [(chosen, runs)]).grids[0].rows
    assert list(rows) == [("FedAvg", "60.0", "65.7", "40.0", "1"), ("FedFa-Param", "30.0", "65.4", "30.0", "1")]
    other = comparison("x", ("FedNova", "fednova"), ("FedNova with FedFa", "fedfa-nova"))
    cifar = replace(other, experiment=replace(other.experiment, name="cifar10-iid"))
    runs = [make_run("FedNova", (0.5,)), make_run("FedNova with FedFa", (0.8,))]
    rows = table5(study(tmp_path), [(cifar, runs)]).grids[0].rows
    assert rows[0] == ("FedNova", "failed", "4,576", "failed", "390", "0 of 1", "50.0")
    assert rows[1][2:] == ("1,290", rows[1][3], "331", "1 of 1", "80.0")


def test_seeds_that_are_missing_are_told(tmp_path: Path) -> None:
    chosen = comparison("cifar10-iid", ("FedAvg", "fedavg"), ("FedFa-Param", "fedfa-param"), ("FedAsync", "fedasync"))
    runs = [make_run("FedAvg", (0.5, 0.8)), make_run("FedAvg", (0.5, 0.8), seed=2), make_run("FedFa-Param", (0.75,))]
    here = study(tmp_path, seeds=(0, 1))
    rows = {row[0]: row for row in table1(here, [(chosen, runs)]).grids[0].rows}
    assert rows["FedAvg"][6] == "2 of 2"
    assert rows["FedFa-Param"][6] == "1 of 1 (1 not run)"
    assert rows["FedAsync"][1:] == ("not run", "–", "failed", "–", "–", "not run", "–")
    assert [row[4] for row in table3(here, [(chosen, runs)]).grids[0].rows] == ["2", "1 (1 not run)", "not run"]
    lost = make_run("FedAsync", (0.1,))
    lost.manifest["ended"] = "diverged: accuracy below 0.15 for 300 updates"
    rows = {row[0]: row for row in table1(here, [(chosen, [*runs, lost])]).grids[0].rows}
    assert rows["FedAsync"][1] == "failed (diverged)"


def test_one_lucky_evaluation_is_not_a_steady_one(tmp_path: Path) -> None:
    chosen = comparison("cifar10-iid", ("FedAvg", "fedavg"), ("FedFa-Param", "fedfa-param"))
    lucky, steady = make_run("FedAvg", (0.5, 0.8, 0.5, 0.6)), make_run("FedFa-Param", (0.5, 0.69, 0.7, 0.72))
    assert lucky.time_to(0.7) is not None
    assert steady_time_to(lucky, 0.68) is None
    assert steady_time_to(steady, 0.68) == steady.evaluations["seconds"][-1]
    grid = table1(study(tmp_path), [(chosen, [lucky, steady])]).grids[0]
    assert grid.headers[5].endswith("mean of 3 at 68 % (s)")
    assert [row[5] != "–" for row in grid.rows] == [False, True]
    assert math.isclose(mean_change(lucky, 2), 0.2)  # down by 30 points, up by 10
    section = figure3(study(tmp_path), [(chosen, [lucky, steady])])
    rows = {row[0]: row[1:] for row in section.grids[0].rows}
    assert section.grids[0].headers == ("Strategy", "50 %", "60 %", "65 %", "68 %", "Jumps")
    assert rows["FedAvg"][2:] == ("–", "–", f"{100 * mean_change(lucky):.1f}")
    assert rows["FedFa-Param"][3] != "–"
    whole, near = section.figures
    lines = [
        next(line for line in figure.layers if isinstance(line, Line) and line.label == "FedAvg")
        for figure in (whole, near)
    ]
    assert [max(line.y) for line in lines] == pytest.approx([80, 100 * 1.9 / 3])  # a mean of three is not so lucky
    assert near.y_range == pytest.approx((55, 72))


STEPS = (0.2, 0.3, 0.4, 0.45, 0.5, 0.6, 0.8)


def test_strategies_are_compared_seed_by_seed() -> None:
    target = 0.7
    runs = [make_run("FedFa-Param", scores, seed=seed) for seed, scores in enumerate([STEPS[2:], STEPS])]
    runs += [make_run("Delta 1/K", scores, seed=seed) for seed, scores in enumerate([STEPS[4:], STEPS])]

    def cell(of: str, runs: list[Run] = runs) -> str:
        rows = {row.label: row for row in summarise(runs, target)}
        return faster_cell(rows[of], rows["FedFa-Param"])

    took = [run.time_to(target) for run in runs]
    assert took[3] == took[1]
    expected = math.sqrt((took[0] or 0) / (took[2] or 1))
    assert cell("Delta 1/K") == f"{expected:.2f} (1.00 to {expected**2:.2f})"
    assert cell("FedFa-Param") == "–"
    assert cell("Delta 1/K", [*runs[:3], make_run("Delta 1/K", (0.2,), seed=1)]) == "–"  # one never got there


def test_phones_beside_the_long_tail(tmp_path: Path) -> None:
    """The paper's weather is 3 s + Exp(5 s): median, tail and the slowest of ten follow."""
    section = BY_NAME["weather"].show(study(tmp_path), [])
    tail = section.values["rows"][0]
    assert tail["median"] == pytest.approx(3 + 5 * math.log(2), rel=0.05)
    assert tail["p99"] == pytest.approx(3 + 5 * math.log(100), rel=0.08)
    assert tail["fedavg_round_seconds"] == pytest.approx(3 + 5 * np.sum(1 / np.arange(1, 11)), rel=0.05)
    small, large = section.values["rows"][1:]
    assert large["median"] > 3 * small["median"]
    assert small["p99"] / small["median"] > tail["p99"] / tail["median"]
