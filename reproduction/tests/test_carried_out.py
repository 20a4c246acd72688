"""Recipes carried out for real on the embedded data, and stopped by the clock."""

import re
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import fedfa.learning.task
from fedfa.errors import ConfigError, RecordError
from fedfa.runs.store import read_run
from fedfa_reproduction.making import make
from fedfa_reproduction.plan import plan
from fedfa_reproduction.recipes import BY_NAME
from fedfa_reproduction.records import Records
from fedfa_reproduction.selection import Chosen, choose
from reproduction_helpers import SHORT, call, last_json, made, study

WORDS = ["--task", "digits", "--out", "p", *(word for setting in SHORT for word in ("--set", setting))]


def test_everything_on_the_embedded_data(tmp_path: Path) -> None:
    """One command makes one page; the same command again makes no run; each number comes from the records."""
    words = ["paper", "all", *WORDS, "--json"]
    done = last_json(call(*words, cwd=tmp_path))
    assert set(done) == {"scale", "page", "runs", "wanted"} | set(BY_NAME)
    page = (tmp_path / done["page"]).read_text()
    assert all(f'id="about-{name}"' in page for name in BY_NAME)
    ids = re.findall(r'id="([^"]+)"', page.split("<script")[0])
    assert len(ids) == len(set(ids))
    assert "fedfa paper all" in page
    assert done["runs"] == done["wanted"] == 3 + 28 + 14 + 4 + 9 + 20 + 4 * 7 + 2 + 5 + 17 + 9 + 30 + 12
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "p" / "records").rglob("*.*")}
    assert not list((tmp_path / "p" / "work").iterdir())
    records = Records(tmp_path / "p")
    assert len(records.by_name) < done["wanted"]  # some serve several questions
    one = last_json(call(*words, cwd=tmp_path))
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "p" / "records").rglob("*.*")} == files
    assert one == done
    (cell,) = [c for c in done["table3"]["cells"] if (c["comparison"], c["spec"]) == ("digits-noniid", "fedavg")]
    assert cell["best_mean"] == records.run("digits-noniid-same-time/fedavg-seed0").best_accuracy
    assert done["figure1"]["rows"][0]["waiting"] > 0.3
    assert done["figure1"]["rows"][2]["waiting"] == 0.0
    changed = call(*[word.replace("=16", "=30") for word in words], cwd=tmp_path, ok=2)
    assert re.search(r"holds a run .* with stop.seconds = 16.0, now 30.0; choose another --out\n$", changed.stderr)


def test_full_scale_ends_at_the_target_unless_more_is_asked(tmp_path: Path) -> None:
    here = study(tmp_path, "full", ("stop.seconds=300", "compare.target=0.3", "engine.evaluate_every=5"))
    to_target, whole = (
        replace(one, contenders=tuple(c for c in one.contenders if c.row == "fedfa-param"))
        for name in ("table1", "table3")
        for one in BY_NAME[name].comparisons(here)[1:]
    )
    ((_, (short,)),) = made(here, to_target)
    assert short.manifest["ended"] == "accuracy"
    assert short.label == "FedFa-Param"
    ((_, (first,)), (_, (second,))) = made(here, to_target, whole)
    assert first.manifest["ended"] == second.manifest["ended"] == "seconds"
    assert first.time_to(0.3) == short.time_to(0.3)
    ((_, (again,)),) = made(here, to_target)
    assert again.manifest["ended"] == "seconds"


def test_unequal_work_makes_fednova_differ(tmp_path: Path) -> None:
    here = study(tmp_path)
    (found,) = BY_NAME["table5"].comparisons(here)
    assert (found.experiment.local.least_epochs, found.experiment.local.epochs) == (1, 2)
    ((_, runs),) = made(here, replace(found, contenders=found.contenders[:1]))
    count = pl.col("num_steps")
    steps = runs[0].accepted.group_by("client").agg(low=count.min(), high=count.max())
    assert (steps["low"] == steps["high"]).all()
    assert steps["low"].n_unique() == 2


def test_a_run_on_other_data_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_data: None) -> None:
    """Same settings, but the labels are others: yesterday's runs say nothing about them."""

    def asked():
        return choose("figure1", scale="smoke", tasks=None, seeds=[0], folder=tmp_path, overrides=SHORT)

    page, (section,) = make(asked(), jobs=1)
    assert page.is_file()
    assert [row["label"] for row in section.values["rows"]] == ["FedAvg", "FedBuff (model mean)", "FedFa-Param"]
    make(asked())
    monkeypatch.setattr(fedfa.learning.task.Task, "digest", lambda self, seed: "other")
    with pytest.raises(ConfigError, match="on other data or weights; choose another --out"):
        make(asked())


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    def asked():
        return choose("figure5", scale="smoke", tasks=["digits"], seeds=[0], folder=tmp_path, overrides=SHORT)

    _, (section,) = make(asked(), jobs=2)
    assert [row[0] for row in section.grids[1].rows] == ["K = 2", "K = 5", "K = 10", "K = 20"]
    for line in section.figures[1].layers:
        if hasattr(line, "y") and not isinstance(line.y, float):
            assert list(line.y) == sorted(line.y)
    (tmp_path / "records" / "digits" / "updates.parquet").write_bytes(b"no parquet")
    with pytest.raises(RecordError, match="cannot be read"):
        make(asked())
    selection = asked()
    twice = replace(selection.study, seeds=(0, 0))
    chosen = [Chosen(one.recipe, twice, one.comparisons) for one in selection.chosen]
    with pytest.raises(ConfigError, match="seeds = "):
        make(replace(selection, study=twice, chosen=chosen))


# By the clock --------------------------------------------------------------------------------------------------------


def test_a_run_in_pieces_ends_in_the_same_records(tmp_path: Path) -> None:
    """Stopped again and again, it keeps its checkpoint, is not counted, and goes the very same way in the end."""
    few = ("model.hidden=8", "data.clients=20", "stop.seconds=2000")
    one = BY_NAME["figure5"].comparisons(study(tmp_path, overrides=few))[1]
    one = replace(one, contenders=one.contenders[1:2])
    here, whole = (study(tmp_path / name, overrides=few) for name in ("pieces", "whole"))
    (planned,) = plan(here, [one])
    folder, task = planned.point.folder, planned.experiment.make_task()
    ((_, (expected,)),) = made(whole, one)

    def go_on(*, interrupted: bool) -> None:
        """It asks ten times a second whether it is."""
        label = planned.point.label
        planned.experiment.run(folder, resume=True, label=label, task=task, interrupted=lambda: interrupted)

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            go_on(interrupted=True)
        assert (folder / "checkpoint.npz").is_file()
        assert not (folder / "manifest.json").exists()
        so_far = read_run(folder, or_unfinished=True)
        assert so_far.unfinished
        assert 0 < so_far.seconds < expected.seconds
        assert_frame_equal(so_far.updates, expected.updates.head(len(so_far.updates)))  # it is the beginning
    go_on(interrupted=False)
    assert not (folder / "unfinished.json").exists()
    ((_, (done,)),) = made(here, one)  # takes what is there into the records
    assert not folder.exists()
    for found in (done, Records(tmp_path / "pieces").run(planned.name)):
        assert_frame_equal(found.updates, expected.updates)
        assert_frame_equal(found.evaluations, expected.evaluations)
        assert found.manifest["ended"] == expected.manifest["ended"] == "seconds"


def test_minutes_and_show_at_the_command_line(tmp_path: Path) -> None:
    """The time is over before anything is done: the page says so, nothing fails, and the same command goes on."""
    words = ["paper", "figure5", *WORDS, "--jobs", "1"]
    done = call(*words, "--minutes", "0.0001", cwd=tmp_path)
    assert "0 of 33 runs are there; repeat the command to go on" in done.stdout
    assert "not run" in (tmp_path / "p" / "figure5.html").read_text()
    assert not (tmp_path / "p" / "work").exists()  # no new run is begun
    assert "33 of 33 runs are there\n" in call(*words, "--minutes", "30", cwd=tmp_path).stdout
    index = tmp_path / "p" / "records" / "runs.csv"
    lines = index.read_text().splitlines(keepends=True)
    index.write_text("".join(line for line in lines if "digits-iid-windows/fedfa-param_window=5-seed0" not in line))
    shown = call(*words, "--show", cwd=tmp_path)
    assert "32 of 33 runs are there; repeat the command without --show to go on" in shown.stdout
    assert shown.stdout.count("not run") == 2  # the row's accuracy and its seeds


def test_the_run_in_hand_is_saved_when_the_time_is_over(tmp_path: Path) -> None:
    """It leaves a checkpoint, and the next command goes on from there."""
    words = ["paper", "figure5", *WORDS, "--jobs", "1", "--set", "stop.seconds=1000000"]
    done = call(*words, "--minutes", "0.12", cwd=tmp_path)
    assert "0 of 33 runs are there" in done.stdout
    (checkpoint,) = (tmp_path / "p" / "work").glob("*/*/checkpoint.npz")
    before = read_run(checkpoint.parent, or_unfinished=True)
    call(*words, "--minutes", "0.12", cwd=tmp_path)
    after = read_run(checkpoint.parent, or_unfinished=True)
    assert after.seconds > before.seconds > 0
    assert_frame_equal(after.updates.head(len(before.updates)), before.updates)
