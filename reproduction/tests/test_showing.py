"""What is shown while runs or data are missing, and what a command chooses to show."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedfa.cli import main
from fedfa.errors import ConfigError
from fedfa_reproduction.label_counts import label_counts
from fedfa_reproduction.making import make
from fedfa_reproduction.markdown import BEGIN, END, check_markdown
from fedfa_reproduction.plan import plan, with_titles
from fedfa_reproduction.queue import how_many
from fedfa_reproduction.recipes import BY_NAME
from fedfa_reproduction.selection import choose
from fedfa_reproduction.study import Study
from fedfa_reproduction.workloads import CIFAR10, DIGITS, SST2
from reproduction_helpers import SHORT, comparison, made, make_run, shown, study


@pytest.mark.parametrize("scale", ["smoke", "full"])
def test_everything_is_shown_without_any_run(scale, tmp_path: Path, without_data: None) -> None:
    selection = choose("all", scale=scale, tasks=None, seeds=[0, 1], folder=tmp_path, only_show=True)
    assert {w.name for one in selection.chosen for w in one.study.workloads} == {"cifar10", "sent140", "sst2", "digits"}
    file = tmp_path / "told.md"
    file.write_text(f"# By hand\n\n{BEGIN}\nold\n{END}\n\nalso by hand\n")
    _, sections = make(selection, command="fedfa paper all --show", markdown=file, draw=False)
    there, wanted = how_many(selection.study, selection.comparisons)
    assert 0 == there < wanted
    for section in sections:
        for grid in section.grids if section.name not in ("weather", "coverage") else ():
            assert all("not run" in row for row in grid.rows), grid.title
        if section.name == "table1":
            rows = {row[0]: row for row in section.grids[1].rows}
            assert rows["FedFa-Param"] == ("FedFa-Param", "not run", "–", "1,102", "1.3×", "–", "not run", *rows[
                "FedFa-Param"
            ][7:])  # fmt: skip
    text = file.read_text()
    assert text.startswith(f"# By hand\n\n{BEGIN}\n")
    assert text.endswith(f"{END}\n\nalso by hand\n")
    assert "\nold\n" not in text
    assert "\n\nNot run.\n\n" in text
    assert f"`fedfa paper table1 --scale {scale} --seeds 0,1 --data DIR`" in text
    make(selection, command="fedfa paper all --show", markdown=file, draw=False)
    assert file.read_text() == text


def test_rows_that_were_not_run_are_folded(tmp_path: Path) -> None:
    one = BY_NAME["figure5"].comparisons(study(tmp_path))[1]
    made(study(tmp_path), replace(one, contenders=one.contenders[1:2]))
    selection = choose("figure5", scale="smoke", tasks=["digits"], seeds=[0], folder=tmp_path, overrides=SHORT,
                       only_show=True)  # fmt: skip
    make(selection, markdown=tmp_path / "told.md", draw=False)
    text = (tmp_path / "told.md").read_text()
    assert "\n| K = 5 |" in text
    assert "| K = 2 | not run" not in text
    assert "\nNot run: K = 2; K = 10; K = 20.\n" in text


def test_markdown_without_markers_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine\n")
    with pytest.raises(ConfigError, match="must hold the lines"):
        check_markdown(tmp_path / "README.md")
    assert (tmp_path / "README.md").read_text() == "mine\n"


def test_figures_are_drawn_only_when_asked_for(tmp_path: Path) -> None:
    selection = choose("weather", scale="smoke", tasks=None, seeds=[0], folder=tmp_path, only_show=True)
    page, _ = make(selection, draw=False)
    assert "weather.pdf" not in page.read_text()
    assert not (tmp_path / "figures").exists()
    make(selection, draw=True)
    assert 'href="figures/weather.pdf"' in page.read_text()
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == ["weather.pdf", "weather.png"]


# Choosing ------------------------------------------------------------------------------------------------------------


def test_without_data_the_embedded_one_serves(tmp_path: Path, without_data: None) -> None:
    selection = choose("table4", scale="smoke", tasks=None, seeds=[0], folder=tmp_path)
    assert [workload.name for one in selection.chosen for workload in one.study.workloads] == ["digits"]
    assert any("cifar10" in line and "--data DIR" in line for line in selection.remarks)
    assert any("embedded digits" in line for line in selection.remarks)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tabel1"], "tabel1: did you mean 'table1'?"),
        (["table1", "--scale", "huge"], "--scale huge: must be one of smoke, full"),
        (["table1", "--task", "cifar"], "--task cifar: did you mean 'cifar10'?"),
        (["table1", "--task", "cifar10"], "--task cifar10: dataset = 'cifar10': say where it is"),
        (["table1", "--task", "cifar10", "--data", "nowhere"], "nowhere: no such folder; give one that holds cifar10"),
        (["table1", "--set", "local.lr=-1"], "digits-noniid: local.lr = -1.0: must be above 0"),
        (["table1", "--show", "--minutes", "1"], "--show: runs nothing; leave --minutes out"),
        (["table1", "--minutes", "0"], "--minutes 0: must be above 0"),
        (["table1", "--jobs", "0"], "--jobs 0: must be at least 1"),
        (["table1", "--seeds", "a"], "--seeds a: must be whole numbers"),
        (["table1", "--seeds", "-1"], "--seeds -1: must be whole numbers, 0 or more"),
    ],
)
def test_mistakes_are_told_before_anything_runs(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_data: None,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["fedfa", "paper", *words])
    with pytest.raises(SystemExit) as end:
        main()
    said = capsys.readouterr()
    assert end.value.code == 2
    assert message in said.err
    assert len(said.err.strip().splitlines()) == 1
    assert not said.out
    assert not list(tmp_path.iterdir())


def test_a_recipe_shows_other_workloads_only_with_runs_of_their_own(tmp_path: Path) -> None:
    """Runs on the digits to the target are no reason to list all other questions on the digits as not run."""
    here = study(tmp_path, "full", ("stop.seconds=5",))
    one = BY_NAME["table1"].comparisons(here)[1]
    made(here, replace(one, contenders=tuple(c for c in one.contenders if c.row == "port-urgent")))
    selection = choose("all", scale="full", tasks=None, seeds=[0], folder=tmp_path, overrides=["stop.seconds=5"],
                       only_show=True)  # fmt: skip
    with_digits = {one.recipe.name for one in selection.chosen if DIGITS in one.study.workloads}
    assert {"table1", "figure3", "figure2"} <= with_digits
    assert not {"delta", "refill", "mixing", "table4", "table5", "figure5"} & with_digits


def test_two_models_on_one_data_set_are_two_workloads(tmp_path: Path, without_data: None) -> None:
    """The paper's numbers stand beside ResNet-18 alone, and the split they share is drawn once."""
    both = ["cifar10", "cifar10-cnn"]
    selection = choose("table4", scale="full", tasks=both, seeds=[0], folder=tmp_path, only_show=True)
    _, (section,) = make(selection, draw=False)
    assert [grid.title for grid in section.grids] == [
        "CIFAR-10, ResNet-18, IID, alpha = 5",
        "CIFAR-10, small CNN, IID, alpha = 5",
    ]
    papers = [{cell for row in grid.rows for cell in row[2::2]} for grid in section.grids]
    assert "62.1" in papers[0]
    assert papers[1] == {"–"}
    selection = choose("figure2", scale="full", tasks=both, seeds=[0], folder=tmp_path, only_show=True)
    _, (section,) = make(selection, draw=False)
    assert len(section.text) == 1 + 3  # that of each alpha nothing is there


def test_label_counts_are_kept_to_be_shown_without_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = study(tmp_path)
    only = replace(here, only_show=True)
    experiment = here.experiment(DIGITS, DIGITS.splits[-1])
    counted, others = label_counts(here, experiment), replace(experiment, seed=1)
    assert counted is not None
    monkeypatch.setattr(type(experiment), "make_task", lambda self: (_ for _ in ()).throw(ConfigError("no data")))
    kept = label_counts(only, experiment)
    assert kept is not None
    assert kept.equals(counted)
    assert label_counts(only, others) is None
    with pytest.raises(ConfigError, match="no data"):
        label_counts(here, others)


def test_runs_of_different_models_are_not_averaged(tmp_path: Path) -> None:
    here = study(tmp_path, seeds=(0, 1))
    chosen = comparison("mixed", ("FedAvg", "fedavg"))
    runs = {planned.name: make_run("fedavg", (0.5,), seed=planned.seed) for planned in plan(here, [chosen])}
    assert [run.label for run in with_titles(here, chosen, runs)] == ["FedAvg", "FedAvg"]
    next(iter(runs.values())).manifest["task"] = "toy/cnn"
    with pytest.raises(ConfigError, match="mixed: holds runs of toy/cnn and toy/mlp; keep one of them"):
        with_titles(here, chosen, runs)


# The same time, and other seeds --------------------------------------------------------------------------------------


def test_the_same_time_for_every_strategy(tmp_path: Path) -> None:
    here = study(tmp_path, "full", SHORT)
    (chosen,) = BY_NAME["same-time"].comparisons(here)
    two = replace(chosen, contenders=chosen.contenders[:1] + chosen.contenders[6:7])
    ((_, runs),) = results = made(here, two)
    assert {run.seconds for run in runs} == {16.0}
    section = BY_NAME["same-time"].show(here, results)
    headers = section.grids[0].headers
    assert headers[:6] == ("Strategy", "Best (%)", "3.20 s", "6.40 s", "11.2 s", "16.0 s")
    assert headers[-2:] == ("Jumps", "Seeds")
    rows = {row[0]: row for row in section.grids[0].rows}
    for run in runs:
        for column, by in ((2, 3.2), (5, 16.0)):
            last = [row["accuracy"] for row in run.evaluations.to_dicts() if by - 0.15 * 16 < row["seconds"] <= by]
            last = last or [row["accuracy"] for row in run.evaluations.to_dicts() if row["seconds"] <= by][-1:]
            assert rows[run.label][column] == f"{100 * sum(last) / len(last):.1f}"
    assert [figure.name for figure in section.figures] == ["digits-noniid-same-time"]
    papers = Study("full", (CIFAR10, SST2), (0,), tmp_path)
    assert [c.experiment.stop.seconds for c in BY_NAME["same-time"].comparisons(papers)] == [1000, 300]


def test_other_seeds_are_shown_where_they_are_there(tmp_path: Path) -> None:
    here = study(tmp_path, "full", SHORT, seeds=(0, 1))
    (chosen,) = BY_NAME["same-time"].comparisons(here)
    one, other = (replace(chosen, contenders=chosen.contenders[n : n + 1]) for n in (0, 1))
    made(here, one)
    assert here.all_seeds() == (0, 1)
    only = study(tmp_path, "full", SHORT, seeds=(0, 2), only_show=True)
    assert only.all_seeds() == (0, 2, 1)
    assert [run.seed for run in plan(only, [chosen]) if run.point.label == "fedavg"] == [0, 2, 1]
    assert {run.seed for run in plan(only, [chosen]) if run.point.label == "fedasync"} == {0, 2}
    ((_, runs),) = shown(only, one)
    assert [run.seed for run in runs] == [0, 1]
    selection = choose("same-time", scale="full", tasks=["digits"], seeds=[0], folder=tmp_path, overrides=SHORT,
                       only_show=True)  # fmt: skip
    make(selection, markdown=tmp_path / "page.md", draw=False)
    page = (tmp_path / "page.md").read_text()
    assert "seeds" not in page.split("Scale: full; ")[1].split(".")[0]
    assert "seed 0, and others where they are there." in page
    assert "fedfa paper same-time --scale full --seeds 0,1 " in page
    made(study(tmp_path, "full", SHORT), other)
    ((_, runs),) = shown(only, replace(chosen, contenders=chosen.contenders[:2]))
    assert [run.seed for run in runs] == [0, 0]  # or one strategy would be compared with the other's seeds
