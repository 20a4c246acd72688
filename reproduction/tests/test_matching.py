"""A longer run for a shorter one, and what is there of a run that did not come to its end."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from polars.testing import assert_frame_equal

import fedfa
from fedfa.errors import ConfigError
from fedfa.report.shapes import Line, number
from fedfa.runs.stop import Stop
from fedfa.runs.store import read_run
from fedfa_reproduction.figures import figure4
from fedfa_reproduction.measures import cut
from fedfa_reproduction.plan import plan
from fedfa_reproduction.study import Study
from fedfa_reproduction.tables import table1, table2
from reproduction_helpers import comparison, first_cells, made, shown, study, there, with_stop

PARAM = ("FedFa-Param", "fedfa-param:window=5")


def showing(here: Study, **changes: Any) -> Study:
    """From the records alone, read anew."""
    return replace(here, only_show=True, **changes)


def test_a_run_cut_short_is_the_run_that_ended_there() -> None:
    """On a CPU a run is the same every time: cut, the long one must be the short one, row by row."""
    whole = fedfa.simulate("fedfa-param", stop={"updates": 100})
    reached = whole.evaluations["accuracy"][4]
    limits: dict[str, Any]
    for limits in ({"updates": 60}, {"accuracy": reached}, {"updates": 60, "seconds": 20.0, "accuracy": 0.999}):
        short, same = fedfa.simulate("fedfa-param", stop=limits), cut(whole, Stop(**limits))
        assert same is not None
        assert_frame_equal(same.updates, short.updates)
        on_time = short.evaluations.filter(short.evaluations["updates"] % 10 == 0)  # "seconds" ends in one off the grid
        assert_frame_equal(same.evaluations, on_time)
        for key in ("ended", "seconds", "stop"):
            assert same.manifest[key] == short.manifest[key], key
    for further in (Stop(updates=101), Stop(seconds=whole.seconds + 1), Stop(accuracy=1.0)):
        assert cut(whole, further) is None
    given_up = fedfa.simulate("fedfa-param", stop={"updates": 100, "diverged_below": 0.99, "diverged_updates": 35})
    assert cut(given_up, Stop(updates=100)) is given_up


def test_a_longer_run_serves_a_shorter_one(tmp_path: Path) -> None:
    """The short ones are not made: neither after the long one, nor later in the same command; other settings are."""
    here = study(tmp_path, "full", ("stop.seconds=40", "engine.evaluate_every=5"))
    long = comparison("long", ("Delta", "fedfa-delta:window=5"), ("K = 3", "fedfa-param:window=3"))
    short = comparison("short", ("Delta", "fedfa-delta:window=5:server_lr=0.1"), ("K = 4", "fedfa-param:window=4"))
    short = with_stop(replace(short, stage=long.stage + 1), seconds=None, updates=20)
    ((_, longs), (_, shorts)) = made(here, long, short)
    assert sorted(here.records.by_name) == [
        "long/fedfa-delta_window=5-seed0",
        "long/fedfa-param_window=3-seed0",
        "short/fedfa-param_window=4-seed0",
    ]  # fmt: skip
    served = {run.label: run for run in shorts}["Delta"]
    assert served.manifest["run"] == longs[0].manifest["run"]
    assert len(served.accepted) == 20 < len(longs[0].accepted)
    assert there(here, long, short) == 4
    assert there(here, with_stop(short, updates=10_000)) == 1  # under its own name, refused when taken


def test_a_run_that_went_on_past_the_target_is_shown_to_its_end(tmp_path: Path) -> None:
    """Whatever its name, so that a recipe alone shows what it shows among all the others."""
    here = study(tmp_path, "full", ("stop.seconds=40", "engine.evaluate_every=5"))
    first = comparison("there", PARAM)
    ((_, (whole,)),) = made(here, first)
    asked = replace(comparison("asked", PARAM, target=0.2), ends_at_target=True)
    ((_, (again,)),) = made(here, asked)
    assert again.manifest["run"] == whole.manifest["run"]
    assert again.time_to(0.2) < again.evaluations["seconds"].max() == whole.evaluations["seconds"].max()
    assert not (tmp_path / "work" / "asked").exists()


def test_what_a_shorter_run_says_of_a_target_it_did_not_reach(tmp_path: Path) -> None:
    """Table 1 shows how long it was not there; once a run to the target or the budget is there, that one counts."""
    here = study(tmp_path, "full")
    start = with_stop(comparison("start", PARAM), seconds=20.0)
    whole = with_stop(comparison("whole", PARAM, target=0.99), seconds=60.0)
    whole = replace(whole, ends_at_target=True)
    asked = replace(whole, contenders=(*whole.contenders, *comparison("", ("FedAvg", "fedavg")).contenders))
    ((_, (short,)),) = made(here, start)
    best = f"(best {100 * short.best_accuracy:.1f} %)"
    assert first_cells(table1, here, asked) == [f"> 20.0 {best}", "not run"]
    assert first_cells(table2, here, asked) == [f"> {len(short.accepted) / 5:.2f} {best}", "not run"]
    made(here, whole)
    assert first_cells(table1, here, asked) == ["failed", "not run"]


def test_an_interrupted_run_is_shown_as_far_as_it_went(tmp_path: Path) -> None:
    """Its rows alone will do, without the checkpoint, and it is still to be made."""
    here = study(tmp_path, "full")
    asked = with_stop(comparison("asked", PARAM, target=0.999), seconds=1e6)
    (planned,) = plan(here, [asked])
    folder, until = planned.point.folder, time.time() + 0.5
    with pytest.raises(KeyboardInterrupt):
        planned.experiment.run(folder, label=planned.point.label, interrupted=lambda: time.time() >= until)
    (folder / "checkpoint.npz").unlink()
    so_far = read_run(folder, or_unfinished=True)
    only = showing(here)
    results = shown(here, asked)
    assert results[0][1] == []
    assert planned not in only.answers
    assert table1(only, results).grids[0].rows[0][1].startswith(f"> {number(so_far.seconds)} (best ")
    section = figure4(only, results)
    assert section.text[0].endswith("As far as they went: FedFa-Param.")
    assert "FedFa-Param" in {line.label for line in section.figures[0].layers if isinstance(line, Line)}


def test_records_are_enough_to_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No data, no weights, another executor: the records say what they were made with. Other settings are refused."""
    here = study(tmp_path)
    one = comparison("one", PARAM)
    made(here, one)
    monkeypatch.setattr(type(one.experiment), "make_task", lambda self: (_ for _ in ()).throw(ConfigError("no data")))
    inline = replace(one.experiment, engine=replace(one.experiment.engine, executor="inline"))
    ((_, (run,)),) = shown(here, replace(one, experiment=inline))
    assert run.label == "FedFa-Param"
    with pytest.raises(ConfigError, match="no data"):
        made(replace(here), one)
    faster = replace(one.experiment, local=replace(one.experiment.local, lr=0.3))
    with pytest.raises(ConfigError, match=r"holds a run .* with local\.lr = 0\.1, now 0\.3"):
        shown(here, replace(one, experiment=faster))


def test_runs_with_a_retired_setting_are_shown_and_not_made(tmp_path: Path) -> None:
    """They answer what asks for that setting, and nothing else; and nobody makes more of them."""
    here = study(tmp_path)
    one = comparison("one", PARAM)
    made(here, one)
    settings = tmp_path / "records" / "settings.jsonl"
    settings.write_text(settings.read_text().replace('"model": {', '"model": {"recalibrate": 2000, '))
    other = comparison("other", PARAM)
    retired = {"model.recalibrate": 2000}
    assert there(showing(here), replace(one, retired=retired), other) == 1
    assert there(showing(here), replace(other, retired=retired)) == 1
    with pytest.raises(ConfigError, match=r"model\.recalibrate = 2000, now None"):
        shown(here, one)
    ((_, runs),) = made(replace(here, seeds=(0, 1)), replace(one, retired=retired))
    assert [run.seed for run in runs] == [0]


def test_other_seeds_are_not_chosen_by_how_slow_they_were(tmp_path: Path) -> None:
    """A run that ended at its target goes beyond a given number of updates only where it was late there."""
    here = study(tmp_path, "full", ("stop.seconds=200", "engine.evaluate_every=5"))
    to_target = replace(comparison("all", PARAM, target=0.5), ends_at_target=True)
    ((_, (run,)),) = made(replace(here, seeds=(1,)), to_target)
    assert run.manifest["ended"] == "accuracy"
    short = with_stop(replace(to_target, name="short", ends_at_target=False), seconds=None, updates=5)
    for asked, expected in ((1, 1), (0, 0)):
        results = shown(replace(here, seeds=(asked,)), to_target, short)
        assert [len(runs) for _, runs in results] == [1, expected]
