"""A reproduction in pieces: stopped by the clock and continued, the best first, and shown while runs are missing."""

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fedfa.recipes import RECIPES
from fedfa.recipes.figures import figure3, figure4
from fedfa.recipes.kitchen import make
from fedfa.recipes.lab import Lab
from fedfa.recipes.markdown import BEGIN, END, check_markdown
from fedfa.recipes.questions import faster_cell
from fedfa.recipes.tables import table1, table2, table3
from fedfa.recipes.workloads import CIFAR10, DIGITS, SENT140, SST2
from polars.testing import assert_frame_equal

import fedfa
from fedfa.bench import BY_NAME, choose
from fedfa.cli.console import command_typed
from fedfa.errors import ConfigError
from fedfa.experiments import comparison
from fedfa.experiments.comparison import _run_point
from fedfa.experiments.config import load_experiment
from fedfa.report.shapes import Line, number
from fedfa.report.tables import summarise
from fedfa.runs.run import INTERRUPTED, Run
from fedfa.runs.stop import Stop
from fedfa.runs.store import find_runs, read_run, write_run
from fedfa.watch.view import standing
from test_cli import call
from test_recipes import SHORT, contest, lab
from test_report import make_run

# By the clock --------------------------------------------------------------------------------------------------------


def test_a_run_that_the_clock_stops_ends_in_the_same_records(tmp_path: Path) -> None:
    """Stopped again and again, it keeps its checkpoint, is not counted, and takes the very same course in the end."""
    few = ("model.hidden=8", "data.clients=20", "stop.seconds=500")
    _, chosen, *_ = BY_NAME["figure5"].contests(lab(tmp_path / "pieces", overrides=few))
    one = replace(chosen, contenders=chosen.contenders[1:2])
    (point,) = lab(tmp_path / "pieces", overrides=few).plan([one])
    (whole,) = lab(tmp_path / "whole", overrides=few).plan([one])
    assert _run_point(point, "", True, time.time() - 1) is None
    assert not point.folder.exists()  # no new run is begun
    pieces, so_far = 1, None
    while (done := _run_point(point, "", True, time.time() + 0.25)) is None:
        assert (point.folder / "checkpoint.npz").is_file()
        assert not (point.folder / "manifest.json").exists()
        so_far = read_run(point.folder, or_unfinished=True)
        pieces += 1
        assert pieces < 1000
    assert pieces > 1
    assert so_far is not None
    assert so_far.unfinished
    expected = _run_point(whole, "", True, math.inf)
    assert expected is not None
    assert 0 < so_far.seconds < expected.seconds
    assert_frame_equal(so_far.updates, expected.updates.head(len(so_far.updates)))  # what it left was its beginning
    assert not (point.folder / "unfinished.json").exists()
    for found, same in ((done, expected), (read_run(point.folder), read_run(whole.folder))):
        assert_frame_equal(found.updates, same.updates)
        assert_frame_equal(found.evaluations, same.evaluations)
        assert found.manifest["ended"] == same.manifest["ended"] == "seconds"
    comparison._last_task.clear()


def test_minutes_and_show_at_the_command_line(tmp_path: Path) -> None:
    """The time is over before anything is done: the page says so, nothing fails, and the same command goes on."""
    words = ["paper", "figure5", "--task", "digits", "--out", "p", "--jobs", "1"]
    for setting in SHORT:
        words += ["--set", setting]
    done = call(*words, "--minutes", "0.0001", cwd=tmp_path)
    assert "0 of 33 runs are there; repeat the command to go on" in done.stdout
    assert "not run" in (tmp_path / "p" / "figure5.html").read_text()
    assert "33 of 33 runs are there\n" in call(*words, "--minutes", "30", cwd=tmp_path).stdout
    (tmp_path / "p" / "digits-iid-windows" / "fedfa-param_window=5-seed0" / "manifest.json").unlink()
    shown = call(*words, "--show", cwd=tmp_path)
    assert "32 of 33 runs are there; repeat the command without --show to go on" in shown.stdout
    assert shown.stdout.count("not run") == 2  # the row's accuracy and its seeds


# In which order ------------------------------------------------------------------------------------------------------


def test_the_most_informative_runs_come_first(tmp_path: Path) -> None:
    here = Lab("full", (CIFAR10, SENT140, SST2), (0, 1), tmp_path)
    wanted = [c for recipe in RECIPES if recipe.name != "figure1" for c in recipe.contests(here)]
    plan = here.plan(wanted)
    names = [str(point.folder.relative_to(tmp_path)) for point in plan]
    assert len(set(names)) == len(names)
    mild = [name.removeprefix("cifar10-iid/").removesuffix("-seed0-to-target") for name in names[:14]]
    assert mild[:2] == ["fedfa-param_window=5", "fedfa-delta_window=5_anchor=bases"]
    assert mild[2] == "fedfa-delta_window=10_anchor=bases"
    assert all(name.startswith("fedfa-delta_window=5_anchor=") for name in mild[3:6])
    assert [name.split("_")[0] for name in mild[6:12]] == ["fedbuff"] * 2 + ["fedavg"] + [
        "port-urgent", "port-non-urgent", "fedasync"
    ]  # fmt: skip
    assert all(name.startswith("fedfa-delta_window=5_server_lr") for name in mild[12:])
    first = {name: min(n for n, found in enumerate(names) if found.startswith(name)) for name in (
        "cifar10-iid/", "cifar10-noniid-same-time/", "cifar10-iid/fedfa-param_window=5-seed1", "cifar10-iid-windows",
        "sent140-noniid/", "cifar10-iid-search/", "cifar10-iid-unequal", "cifar10-iid-search-phones",
        "cifar10-iid-mc2", "cifar10-noniid/",
    )}  # fmt: skip
    assert list(first.values()) == sorted(first.values())
    on_hard = [n for n, name in enumerate(names) if name.startswith("cifar10-noniid/") and "seed0-to-target" in name]
    to_the_end = min(n for n, name in enumerate(names) if "cifar10-iid/" in name and name.endswith("-seed0"))
    assert max(on_hard[:9]) < to_the_end  # the leading ones
    assert min(on_hard[9:]) > to_the_end
    last_first_seed = max(n for n, name in enumerate(names) if "seed0" in name)
    early = [name for name in names[:last_first_seed] if "seed1" in name]
    assert len(early) == 9  # FedFa, FedBuff and FedAvg on the mild split
    assert all(name.startswith("cifar10-iid/") for name in early)
    tasks = [comparison.ingredients(point.experiment) for point in plan if point.rank < (1, 0)]
    assert len(set(tasks)) == 1


def test_caps_are_a_fifth_above_the_papers_slowest(tmp_path: Path) -> None:
    """FedAvg took 320 rounds of 10 on CIFAR-10, alpha = 5; FedBuff, the slowest of the others, 325 of 5."""
    here = Lab("full", (CIFAR10,), (0,), tmp_path)
    limits = {p.label: p.experiment.stop.updates for p in here.plan(BY_NAME["table1"].contests(here)[1:])}
    assert limits["fedavg"] == 3840
    assert limits["fedfa-param:window=5"] == limits["fedasync"] == 1950
    given = replace(here, overrides=("stop.updates=7",))
    assert {p.experiment.stop.updates for p in given.plan(BY_NAME["table1"].contests(given))} == {7}
    smoke = replace(here, scale="smoke")
    assert {p.experiment.stop.updates for p in smoke.plan(BY_NAME["table1"].contests(smoke))} == {None}


# With runs missing ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", ["smoke", "full"])
def test_everything_is_shown_without_any_run(scale, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDFA_DATA", raising=False)
    order = choose("all", scale=scale, tasks=None, seeds=[0, 1], folder=tmp_path, only_show=True)
    assert {w.name for _, own in order.recipes for w in own.workloads} == {"cifar10", "sent140", "sst2", "digits"}
    file = tmp_path / "told.md"
    file.write_text(f"# By hand\n\n{BEGIN}\nold\n{END}\n\nalso by hand\n")
    _, sections = make(order, command="fedfa paper all --show", markdown=file)
    assert standing(order)[0] == 0 < standing(order)[1]
    for section in sections:
        for grid in section.grids if section.name != "weather" else ():
            assert all("not run" in row for row in grid.rows), grid.title
    text = file.read_text()
    assert text.startswith(f"# By hand\n\n{BEGIN}\n")
    assert text.endswith(f"{END}\n\nalso by hand\n")
    assert "\nold\n" not in text
    assert "| FedFa-Param | not run | – | 1,102 | 1.3× | – | not run |" in text
    assert f"`fedfa paper table1 --scale {scale} --seeds 0,1 --data DIR`" in text
    again = file.read_text()
    make(order, command="fedfa paper all --show", markdown=file)
    assert file.read_text() == again


def test_seeds_that_are_missing_are_told(tmp_path: Path) -> None:
    chosen = contest("cifar10-iid", ("FedAvg", "fedavg"), ("FedFa-Param", "fedfa-param"), ("FedAsync", "fedasync"))
    runs = [make_run("FedAvg", (0.5, 0.8)), make_run("FedAvg", (0.5, 0.8), seed=1), make_run("FedFa-Param", (0.75,))]
    here = lab(tmp_path, seeds=(0, 1))
    rows = {row[0]: row for row in table1(here, [(chosen, runs)]).grids[0].rows}
    assert rows["FedAvg"][6] == "2 of 2"
    assert rows["FedFa-Param"][6] == "1 of 1 (1 not run)"
    assert rows["FedAsync"][1:] == ("not run", "–", "failed", "–", "–", "not run", "–")
    assert [row[4] for row in table3(here, [(chosen, runs)]).grids[0].rows] == ["2", "1 (1 not run)", "not run"]
    lost = make_run("FedAsync", (0.1,))
    lost.manifest["ended"] = "diverged: accuracy below 0.15 for 300 updates"
    rows = {row[0]: row for row in table1(here, [(chosen, [*runs, lost])]).grids[0].rows}
    assert rows["FedAsync"][1] == "failed (diverged)"


SLOW = (0.2, 0.3, 0.4, 0.45, 0.5, 0.6, 0.8)


def test_one_lucky_evaluation_is_not_a_steady_one(tmp_path: Path) -> None:
    chosen = contest("cifar10-iid", ("FedAvg", "fedavg"), ("FedFa-Param", "fedfa-param"))
    lucky, steady = make_run("FedAvg", (0.5, 0.8, 0.5, 0.6)), make_run("FedFa-Param", (0.5, 0.69, 0.7, 0.72))
    assert lucky.time_to(0.7) is not None
    assert lucky.steady_time_to(0.68) is None
    assert steady.steady_time_to(0.68) == steady.evaluations["seconds"][-1]
    grid = table1(lab(tmp_path), [(chosen, [lucky, steady])]).grids[0]
    assert grid.headers[5].endswith("mean of 3 at 68 % (s)")
    assert [row[5] != "–" for row in grid.rows] == [False, True]
    assert math.isclose(lucky.jumps(2), 0.2)  # down by 30 points, up by 10
    section = figure3(lab(tmp_path), [(chosen, [lucky, steady])])
    rows = {row[0]: row[1:] for row in section.grids[0].rows}
    assert section.grids[0].headers == ("Strategy", "50 %", "60 %", "65 %", "68 %", "Jumps")
    assert rows["FedAvg"][2:] == ("–", "–", f"{100 * lucky.jumps():.1f}")
    assert rows["FedFa-Param"][3] != "–"
    whole, near = section.figures
    lines = [
        next(line for line in figure.layers if isinstance(line, Line) and line.label == "FedAvg")
        for figure in (whole, near)
    ]
    assert [max(line.y) for line in lines] == pytest.approx([80, 100 * 1.9 / 3])  # a mean of three is not so lucky
    assert near.y_range == pytest.approx((55, 72))


def test_strategies_are_compared_seed_by_seed(tmp_path: Path) -> None:
    chosen = contest("cifar10-iid-search", ("FedFa-Param", "fedfa-param"), ("Delta 1/K", "fedfa-delta"))
    runs = [make_run("FedFa-Param", scores, seed=seed) for seed, scores in enumerate([SLOW[2:], SLOW])]
    runs += [make_run("Delta 1/K", scores, seed=seed) for seed, scores in enumerate([SLOW[4:], SLOW])]

    def cell(of: str, runs: list[fedfa.Run] = runs) -> str:
        rows = {row.label: row for row in summarise(runs, chosen.target)}
        return faster_cell(rows[of], rows["FedFa-Param"])

    took = [run.time_to(chosen.target) for run in runs]
    assert took[3] == took[1]
    expected = math.sqrt((took[0] or 0) / (took[2] or 1))
    assert cell("Delta 1/K") == f"{expected:.2f} (1.00 to {expected**2:.2f})"
    assert cell("FedFa-Param") == "–"
    assert cell("Delta 1/K", [*runs[:3], make_run("Delta 1/K", (0.2,), seed=1)]) == "–"  # one never got there


def test_records_are_enough_to_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No data, no weights, another executor: the records say what they were made with. Other settings are refused."""
    here = lab(tmp_path)
    _, chosen, *_ = BY_NAME["figure5"].contests(here)
    one = replace(chosen, contenders=chosen.contenders[1:2])
    (point,) = here.plan([one])
    assert _run_point(point, "", True, math.inf) is not None
    comparison._last_task.clear()
    monkeypatch.setattr(type(point.experiment), "make_task", lambda self: (_ for _ in ()).throw(ConfigError("no data")))
    shown = replace(here, only_show=True, overrides=(*SHORT, "engine.executor=inline"))
    ((_, (run,)),) = shown.carry_out([one])
    assert run.label == "K = 5"
    assert shown.label_counts(point.experiment) is not None
    with pytest.raises(ConfigError, match="no data"):
        here.carry_out([one])
    other = replace(shown, overrides=(*SHORT, "local.lr=0.3"))
    with pytest.raises(ConfigError, match=r"holds a run with local\.lr = 0\.1, now 0\.3"):
        other.carry_out([replace(one, experiment=other.experiment(DIGITS, DIGITS.splits[-1]))])


def test_label_counts_are_kept_to_be_shown_without_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = lab(tmp_path)
    shown = replace(here, only_show=True)
    experiment = here.experiment(DIGITS, DIGITS.splits[-1])
    counted, others = here.label_counts(experiment), replace(experiment, seed=1)
    assert counted is not None
    monkeypatch.setattr(type(experiment), "make_task", lambda self: (_ for _ in ()).throw(ConfigError("no data")))
    kept = shown.label_counts(experiment)
    assert kept is not None
    assert kept.equals(counted)
    assert shown.label_counts(others) is None
    with pytest.raises(ConfigError, match="no data"):
        here.label_counts(others)


def test_a_recipe_shows_other_workloads_only_with_runs_of_their_own(tmp_path: Path) -> None:
    """Runs on the digits to the target are no reason to list all other questions on the digits as not run."""
    (tmp_path / "digits-iid" / "fedavg-seed0").mkdir(parents=True)
    (tmp_path / "digits-iid" / "fedavg-seed0" / "manifest.json").touch()
    order = choose("all", scale="full", tasks=None, seeds=[0], folder=tmp_path, only_show=True)
    with_digits = {recipe.name for recipe, own in order.recipes if DIGITS in own.workloads}
    assert {"table1", "figure3", "table3", "figure2"} <= with_digits
    assert not {"delta", "refill", "mixing", "table4", "table5", "figure5"} & with_digits


def test_two_models_on_one_data_set_are_two_workloads(tmp_path: Path) -> None:
    """The paper's numbers stand beside ResNet-18 alone, and the split they share is drawn once."""
    both = ["cifar10", "cifar10-cnn"]
    order = choose("table4", scale="full", tasks=both, seeds=[0], folder=tmp_path, only_show=True)
    _, (section,) = make(order)
    assert [grid.title for grid in section.grids] == [
        "CIFAR-10, ResNet-18, IID, alpha = 5",
        "CIFAR-10, small CNN, IID, alpha = 5",
    ]
    papers = [{cell for row in grid.rows for cell in row[2::2]} for grid in section.grids]
    assert "62.1" in papers[0]
    assert papers[1] == {"–"}
    order = choose("figure2", scale="full", tasks=both, seeds=[0], folder=tmp_path, only_show=True)
    _, (section,) = make(order)
    assert len(section.text) == 1 + 3  # that of each alpha nothing is there


def test_runs_of_different_models_are_not_averaged(tmp_path: Path) -> None:
    here = lab(tmp_path, seeds=(0, 1))
    chosen = contest("mixed", ("FedAvg", "fedavg"))
    runs = {point.folder: make_run("fedavg", (0.5,), seed=point.experiment.seed) for point in here.plan([chosen])}
    assert [run.label for run in here._named(chosen, runs)] == ["FedAvg", "FedAvg"]
    next(iter(runs.values())).manifest["task"] = "toy/cnn"
    with pytest.raises(ConfigError, match="mixed: holds runs of toy/cnn and toy/mlp; keep one of them"):
        here._named(chosen, runs)


def test_markdown_without_markers_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine\n")
    with pytest.raises(ConfigError, match="must hold the lines"):
        check_markdown(tmp_path / "README.md")
    assert (tmp_path / "README.md").read_text() == "mine\n"


# A longer run for a shorter one --------------------------------------------------------------------------------------


def test_a_run_cut_short_is_the_run_that_ended_there() -> None:
    """On a CPU a run is the same every time: cut, the long one must be the short one, row by row."""
    whole = fedfa.simulate("fedfa-param", stop={"updates": 100})
    reached = whole.evaluations["accuracy"][4]
    limits: dict[str, Any]
    for limits in ({"updates": 60}, {"accuracy": reached}, {"updates": 60, "seconds": 20.0, "accuracy": 0.999}):
        short, cut = fedfa.simulate("fedfa-param", stop=limits), whole.cut(Stop(**limits))
        assert cut is not None
        assert_frame_equal(cut.updates, short.updates)
        on_time = short.evaluations.filter(short.evaluations["updates"] % 10 == 0)  # "seconds" ends in one off the grid
        assert_frame_equal(cut.evaluations, on_time)
        for key in ("ended", "seconds", "stop"):
            assert cut.manifest[key] == short.manifest[key], key
    for further in (Stop(updates=101), Stop(seconds=whole.seconds + 1), Stop(accuracy=1.0)):
        assert whole.cut(further) is None
    given_up = fedfa.simulate("fedfa-param", stop={"updates": 100, "diverged_below": 0.99, "diverged_updates": 35})
    assert given_up.cut(Stop(updates=100)) is given_up


def test_a_longer_run_serves_a_shorter_one(tmp_path: Path) -> None:
    """The short ones are not made: neither after the long one, nor later in the same order; other settings are."""
    here = lab(tmp_path, "full", ("stop.seconds=40", "engine.evaluate_every=5"))
    long = contest("long", ("Delta", "fedfa-delta:window=5:anchor=model"), ("K = 3", "fedfa-param:window=3"))
    limits = replace(long.experiment.stop, seconds=None, updates=20)
    short = replace(
        contest("short", ("Delta", "fedfa-delta:window=5:server_lr=0.1"), ("K = 4", "fedfa-param:window=4")),
        experiment=replace(long.experiment, stop=limits),
        stage="windows",
    )
    ((_, longs), (_, shorts)) = here.carry_out([long, short], jobs=1)
    made = sorted(str(path.parent.relative_to(tmp_path)) for path in tmp_path.glob("*/*/manifest.json"))
    assert made == [
        "long/fedfa-delta_window=5_anchor=model-seed0",
        "long/fedfa-param_window=3-seed0",
        "short/fedfa-param_window=4-seed0",
    ]  # fmt: skip
    served = {run.label: run for run in shorts}["Delta"]
    assert served.folder == longs[0].folder
    assert len(served.accepted) == 20 < len(longs[0].accepted)
    assert sum(point in here.shelf for point in here.plan([long, short])) == 4
    deeper = replace(short, experiment=replace(long.experiment, stop=replace(limits, updates=10_000)))
    assert sum(point in here.shelf for point in here.plan([deeper])) == 1  # its own folder's, refused when taken


def test_a_run_that_went_on_past_the_target_is_shown_to_its_end(tmp_path: Path) -> None:
    """Wherever it lies, so that a recipe alone shows what it shows among all the others."""
    here = lab(tmp_path, "full", ("stop.seconds=40", "engine.evaluate_every=5"))
    there = contest("there", ("FedFa-Param", "fedfa-param:window=5"))
    ((_, (whole,)),) = here.carry_out([there], jobs=1)
    low = replace(there.experiment, compare=replace(there.experiment.compare, target=0.2))
    asked = replace(there, name="asked", experiment=low, ends_at_target=True)
    ((_, (shown,)),) = here.carry_out([asked])
    assert shown.folder == whole.folder
    assert shown.time_to(0.2) < shown.evaluations["seconds"].max() == whole.evaluations["seconds"].max()
    assert not (tmp_path / "asked").exists()


def test_what_a_shorter_run_says_of_a_target_it_did_not_reach(tmp_path: Path) -> None:
    """Table 1 shows how long it was not there; once a run to the target or the budget is there, that one counts."""
    here = lab(tmp_path, "full")
    start = contest("start", ("FedFa-Param", "fedfa-param:window=5"))
    small = replace(start.experiment, model=replace(start.experiment.model, hidden=8), stop=Stop(seconds=20.0))
    start = replace(start, experiment=small)
    far = replace(start.experiment, compare=replace(start.experiment.compare, target=0.99), stop=Stop(seconds=60.0))
    whole = replace(start, name="whole", experiment=far, ends_at_target=True)
    asked = replace(whole, contenders=(*whole.contenders, *contest("", ("FedAvg", "fedavg")).contenders))
    ((_, (short,)),) = here.carry_out([start], jobs=1)
    shown = replace(here, only_show=True)

    def first_cells(table: Any) -> list[str]:
        return [row[1] for row in table(shown, shown.carry_out([asked])).grids[0].rows]

    best = f"(best {100 * short.best_accuracy:.1f} %)"
    assert first_cells(table1) == [f"> 20.0 {best}", "not run"]
    assert first_cells(table2) == [f"> {len(short.accepted) / 5:.2f} {best}", "not run"]
    here.carry_out([whole], jobs=1)
    assert first_cells(table1) == ["failed", "not run"]


def test_an_interrupted_run_is_shown_as_far_as_it_went(tmp_path: Path) -> None:
    """Its records alone will do, without the checkpoint, and the run stays in the queue."""
    here = lab(tmp_path, "full")
    asked = contest("asked", ("FedFa-Param", "fedfa-param:window=5"), target=0.999)
    asked = replace(asked, experiment=replace(asked.experiment, stop=Stop(seconds=1e6)))
    (point,) = here.plan([asked])
    assert _run_point(point, "", True, time.time() + 0.5) is None
    (point.folder / "checkpoint.npz").unlink()
    so_far = read_run(point.folder, or_unfinished=True)
    shown = replace(here, only_show=True)
    results = shown.carry_out([asked])
    assert results[0][1] == []
    assert point not in shown.shelf
    assert table1(shown, results).grids[0].rows[0][1].startswith(f"> {number(so_far.seconds)} (best ")
    section = figure4(shown, results)
    assert section.text[0].endswith("As far as they went: FedFa-Param.")
    assert "FedFa-Param" in {line.label for line in section.figures[0].layers if isinstance(line, Line)}
    comparison._last_task.clear()


def test_of_an_interrupted_run_the_longest_is_kept(tmp_path: Path) -> None:
    def so_far(updates: int) -> Run:
        done = fedfa.simulate("fedfa-param", stop={"updates": updates})
        return replace(done, manifest=done.manifest | {"ended": INTERRUPTED, "fingerprint": "same"})

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


def test_the_same_time_for_every_strategy(tmp_path: Path) -> None:
    here = lab(tmp_path, "full", SHORT)
    (chosen,) = BY_NAME["same-time"].contests(here)
    two = replace(chosen, contenders=chosen.contenders[:1] + chosen.contenders[6:7])
    ((_, runs),) = results = here.carry_out([two], jobs=1)
    assert {run.seconds for run in runs} == {16.0}
    section = BY_NAME["same-time"].show(here, results)
    headers = section.grids[0].headers
    assert headers[:6] == ("Strategy", "Best (%)", "3.20 s", "6.40 s", "11.2 s", "16.0 s")
    assert headers[-2:] == ("Jumps", "Seeds")
    rows = {row[0]: row for row in section.grids[0].rows}
    for run in runs:
        for place, by in ((2, 3.2), (5, 16.0)):
            last = [row["accuracy"] for row in run.evaluations.to_dicts() if by - 0.15 * 16 < row["seconds"] <= by]
            last = last or [row["accuracy"] for row in run.evaluations.to_dicts() if row["seconds"] <= by][-1:]
            assert rows[run.label][place] == f"{100 * sum(last) / len(last):.1f}"
    assert [figure.name for figure in section.figures] == ["digits-noniid-same-time"]
    budgets = [
        c.experiment.stop.seconds
        for c in BY_NAME["same-time"].contests(replace(here, workloads=(CIFAR10, SST2), overrides=()))
    ]
    assert budgets == [1000, 300]


def test_other_seeds_are_shown_where_they_are_there(tmp_path: Path) -> None:
    made, shown = (replace(lab(tmp_path, "full", SHORT), seeds=seeds) for seeds in ((0, 1), (0, 2)))
    (chosen,) = BY_NAME["same-time"].contests(made)
    one = replace(chosen, contenders=chosen.contenders[:1])
    made.carry_out([one], jobs=1)
    assert made.all_seeds == (0, 1)
    shown = replace(shown, only_show=True)
    assert shown.all_seeds == (0, 2, 1)
    assert [point.experiment.seed for point in shown.plan([chosen]) if "fedavg-" in point.folder.name] == [0, 2, 1]
    assert {point.experiment.seed for point in shown.plan([chosen]) if "fedasync" in point.folder.name} == {0, 2}
    ((_, runs),) = shown.carry_out([one])
    assert [run.seed for run in runs] == [0, 1]
    order = choose("same-time", scale="full", tasks=["digits"], seeds=[0], folder=tmp_path, overrides=SHORT,
                   only_show=True)  # fmt: skip
    make(order, markdown=tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    assert "seeds" not in page.split("Scale: full; ")[1].split(".")[0]
    assert "seed 0, and others where they are there." in page
    assert "fedfa paper same-time --scale full --seeds 0,1 " in page
    other = replace(chosen, contenders=chosen.contenders[1:2])
    replace(made, seeds=(0,)).carry_out([other], jobs=1)
    both = replace(chosen, contenders=chosen.contenders[:2])
    ((_, runs),) = replace(shown, folder=tmp_path).carry_out([both])
    assert [run.seed for run in runs] == [0, 0]  # or one strategy would be compared with the other's seeds


def test_other_seeds_are_not_chosen_by_how_slow_they_were(tmp_path: Path) -> None:
    """A run that ended at its target goes beyond a given number of updates only where it was late there."""
    here = lab(tmp_path, "full", ("stop.seconds=200", "engine.evaluate_every=5"))
    to_target = replace(contest("all", ("FedFa-Param", "fedfa-param:window=5")), ends_at_target=True)
    early = replace(to_target.experiment, compare=replace(to_target.experiment.compare, target=0.5))
    to_target = replace(to_target, experiment=early)
    ((_, (run,)),) = replace(here, seeds=(1,)).carry_out([to_target], jobs=1)
    assert run.manifest["ended"] == "accuracy"
    few = replace(early.stop, seconds=None, updates=5)
    short = replace(to_target, name="short", experiment=replace(early, stop=few), ends_at_target=False)
    for asked, shown in ((1, 1), (0, 0)):
        shows = replace(here, seeds=(asked,), only_show=True)
        assert [len(runs) for _, runs in shows.carry_out([to_target, short])] == [1, shown]


# What runs end by, and what records keep -----------------------------------------------------------------------------


def test_a_run_that_has_diverged_ends_early(tmp_path: Path) -> None:
    """No evaluation (every 10 updates) reaches 99 % for 35 updates in a row: seen at the 40th."""
    stop = {"updates": 100, "diverged_below": 0.99, "diverged_updates": 35}
    run = fedfa.simulate("fedfa-param", stop=stop, out=tmp_path / "run")
    assert run.manifest["ended"] == "diverged: accuracy below 0.99 for 40 updates"
    assert len(run.accepted) == 40
    assert fedfa.simulate("fedfa-param", stop=stop, out=tmp_path / "run", resume=True).manifest == run.manifest
    easy = fedfa.simulate("fedfa-param", stop=stop | {"diverged_below": 0.01})
    assert easy.manifest["ended"] == "updates"
    with pytest.raises(ConfigError, match="goes with diverged_updates"):
        fedfa.simulate("fedavg", stop={"updates": 1, "diverged_below": 0.1})
    with pytest.raises(ConfigError, match="set at least one of updates, seconds, accuracy, wall_seconds"):
        fedfa.simulate("fedavg", stop={"diverged_below": 0.1, "diverged_updates": 5})


def test_records_hold_no_local_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = "paper table1 --data /home/me/data --out /srv/out --set data.folder=/x --markdown=/srv/a.md --data=/y"
    monkeypatch.setattr("sys.argv", ["fedfa", *words.split(), "/home/me/b.toml", "--set", "local.lr=0.1"])
    assert command_typed() == (
        "fedfa paper table1 --data DIR --out out --set data.folder=DIR --markdown=a.md --data=DIR b.toml "
        "--set local.lr=0.1"
    )
    experiment = load_experiment(None, [f"data.folder={tmp_path}", "stop.updates=1"])
    experiment.run(tmp_path / "run", command=command_typed())
    assert all(str(tmp_path).encode() not in file.read_bytes() for file in (tmp_path / "run").iterdir())
