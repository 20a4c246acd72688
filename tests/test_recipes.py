"""The paper's tables and figures: carried out for real on the embedded data, and the numbers they show."""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from fedfa.recipes import RECIPES
from fedfa.recipes.contenders import Contender, contenders, extended
from fedfa.recipes.kitchen import make
from fedfa.recipes.lab import Contest, Lab
from fedfa.recipes.tables import table1, table2, table3, table5
from fedfa.recipes.workloads import ALL, DIGITS

from fedfa.bench import BY_NAME, choose
from fedfa.bench import BY_NAME as WORKLOADS
from fedfa.cli import main
from fedfa.cli.reproducing import paper
from fedfa.errors import ConfigError, RecordError
from fedfa.experiments.config import from_table
from fedfa.runs.store import find_runs
from test_cli import call, last_json
from test_report import make_run

SHORT = ("stop.seconds=16", "model.hidden=8", "data.clients=20", "local.epochs=2")


def lab(folder: Path, scale: str = "smoke", overrides: Sequence[str] = SHORT, seeds: Sequence[int] = (0,)) -> Lab:
    return Lab(scale, (DIGITS,), tuple(seeds), folder, tuple(overrides))  # pyright: ignore[reportArgumentType]


# The paper's own numbers ---------------------------------------------------------------------------------------------


def test_the_papers_numbers_are_whole() -> None:
    """Every split of the paper's tables has its numbers, for every strategy that the tables compare."""
    rows = {contender.row for contender in contenders(5, 10)}
    for name in ("table1", "table2"):
        assert set(paper()[name]) == {s.name for w in ALL if w.name in BY_NAME["table1"].tasks for s in w.splits}
        for column in paper()[name].values():
            assert set(column) == rows | {"target"}
            assert column["fedasync"] == "failed"
    targets = {split.name: split.target for workload in ALL for split in workload.splits}
    assert {name: column["target"] for name, column in paper()["table1"].items()}.items() <= targets.items()
    for column in paper()["table3"].values():
        assert all(0.6 < accuracy < 0.9 for accuracy in column.values())
    assert {c.row for c in extended(5)} == set(paper()["table5"]["rounds"]) == set(paper()["table5"]["seconds"])


@pytest.mark.parametrize("scale", ["smoke", "full"])
@pytest.mark.parametrize("workload", ALL, ids=lambda workload: workload.name)
def test_every_recipe_is_valid_at_every_scale(workload, scale, tmp_path: Path) -> None:
    """Settings, strategies and folders are checked without data, as before any run."""
    here = Lab(scale, (workload,), (0, 1), tmp_path)
    for recipe in RECIPES:
        contests = list(recipe.contests(here))
        plan = here.plan(contests)
        assert len(plan) == len({(c.name, d.spec) for c in contests for d in c.contenders}) * 2
        for point in plan:
            settings = point.experiment.as_table()["strategy"]
            assert settings["concurrency"] == point.experiment.strategy["concurrency"]
            size = settings.get("window", settings.get("buffer"))
            assert size is None or size == point.experiment.strategy.get("window", size) or recipe.name == "figure5"


def test_full_scale_is_the_papers_setting(tmp_path: Path) -> None:
    noniid, iid = WORKLOADS["cifar10"].splits
    for split, alpha, target in ((noniid, 0.1, 0.6), (iid, 5.0, 0.7)):
        experiment = Lab("full", (), (0,), tmp_path).experiment(WORKLOADS["cifar10"], split)
        assert (experiment.data.clients, experiment.data.alpha, experiment.data.fraction) == (100, alpha, 1.0)
        assert (experiment.local.epochs, experiment.local.batch_size, experiment.local.lr) == (10, 32, 0.01)
        assert (experiment.model.name, experiment.model.norm, experiment.model.width) == ("resnet18", "batch", 64)
        assert (experiment.strategy["concurrency"], experiment.compare.target) == (10, target)


# What the tables say -------------------------------------------------------------------------------------------------


def contest(name: str, *titles_and_rows: tuple[str, str], target: float = 0.7) -> Contest:
    experiment = from_table({"strategy": {"concurrency": 10, "window": 5}, "compare": {"target": target}})
    return Contest(name, "a title", experiment, tuple(Contender(row, title, row) for title, row in titles_and_rows))


def test_times_stand_beside_the_papers(tmp_path: Path) -> None:
    """FedAvg takes twice as long as FedFa; a strategy that one seed in two fails has failed."""
    chosen = contest("cifar10-iid", ("FedAvg", "fedavg"), ("FedFa-Delta", "fedfa-delta"), ("FedAsync", "fedasync"))
    runs = [
        make_run("FedAvg", (0.5, 0.8), synchronous=True),
        make_run("FedFa-Delta", (0.5, 0.8)),
        make_run("FedAsync", (0.5, 0.8)),
        make_run("FedAsync", (0.5, 0.6), seed=3),
    ]
    section = table1(lab(tmp_path), [(chosen, runs)])
    (grid,) = section.grids
    slow, fast = runs[0].time_to(0.7), runs[1].time_to(0.7)
    assert slow is not None and fast is not None and slow > fast  # noqa: PT018
    cells = {row[0]: row[1:] for row in grid.rows}
    assert cells["FedAvg"] == (f"{slow:.2f}", f"{slow / fast:.1f}×", "5,040", "5.9×", "–", "1 of 1", "80.0")
    assert cells["FedFa-Delta"] == (f"{fast:.2f}", "1.0×", "855", "1.0×", "–", "1 of 1", "80.0")
    assert cells["FedAsync"] == ("failed", "–", "failed", "–", "–", "1 of 2", "70.0")
    assert json.loads(json.dumps(section.values))["cells"][0]["paper"] == 5040
    rounds = {row[0]: row[1:5] for row in table2(lab(tmp_path), [(chosen, runs)]).grids[0].rows}
    own = runs[1].rounds_to(0.7)
    assert own is not None
    assert rounds["FedFa-Delta"] == (f"{own:.2f}", "1.0×", "230", "1.0×")


def test_best_accuracies_and_extensions(tmp_path: Path) -> None:
    chosen = contest("cifar10-noniid", ("FedAvg", "fedavg"), ("FedFa-Param", "fedfa-param"))
    runs = [make_run("FedAvg", (0.5, 0.6, 0.4)), make_run("FedFa-Param", (0.3,))]
    rows = table3(lab(tmp_path), [(chosen, runs)]).grids[0].rows
    assert list(rows) == [("FedAvg", "60.0", "65.7", "40.0", "1"), ("FedFa-Param", "30.0", "65.4", "30.0", "1")]
    other = contest("x", ("FedNova", "fednova"), ("FedNova with FedFa", "fedfa-nova"))
    cifar = replace(other, experiment=replace(other.experiment, name="cifar10-iid"))
    runs = [make_run("FedNova", (0.5,)), make_run("FedNova with FedFa", (0.8,))]
    rows = table5(lab(tmp_path), [(cifar, runs)]).grids[0].rows
    assert rows[0] == ("FedNova", "failed", "4,576", "failed", "390", "0 of 1", "50.0")
    assert rows[1][2:] == ("1,290", rows[1][3], "331", "1 of 1", "80.0")


# Carried out ---------------------------------------------------------------------------------------------------------


def test_everything_on_the_embedded_data(tmp_path: Path) -> None:
    """One command makes one page; the same command again makes no run; each number comes from the records."""
    words = ["paper", "all", "--task", "digits", "--json", "--out", "p"]
    for setting in SHORT:
        words += ["--set", setting]
    done = last_json(call(*words, cwd=tmp_path))
    assert set(done) == {"scale", "page", "runs", "wanted"} | set(BY_NAME)
    page = (tmp_path / done["page"]).read_text()
    assert all(f'id="about-{name}"' in page for name in BY_NAME)
    ids = re.findall(r'id="([^"]+)"', page.split("<script")[0])
    assert len(ids) == len(set(ids))
    assert "fedfa paper all" in page
    manifests = {path: path.stat().st_mtime_ns for path in (tmp_path / "p").rglob("manifest.json")}
    assert done["runs"] == done["wanted"] == 3 + 28 + 14 + 4 + 9 + 20 + 4 * 7 + 2 + 5 + 17 + 9 + 30 + 12
    assert len(manifests) < done["wanted"]  # some serve several questions
    one = last_json(call(*words, cwd=tmp_path))
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "p").rglob("manifest.json")} == manifests
    assert one == done
    runs = {run.folder.name: run for run in find_runs(tmp_path / "p" / "digits-noniid-same-time") if run.folder}
    (cell,) = [c for c in done["table3"]["cells"] if (c["contest"], c["spec"]) == ("digits-noniid", "fedavg")]
    assert cell["best_mean"] == runs["fedavg-seed0"].best_accuracy
    assert done["figure1"]["rows"][0]["waiting"] > 0.3
    assert done["figure1"]["rows"][2]["waiting"] == 0.0
    changed = call(*[word.replace("=16", "=30") for word in words], cwd=tmp_path, ok=2)
    assert re.search(r"holds a run with stop.seconds = 16.0, now 30.0; choose another --out\n$", changed.stderr)


def test_full_scale_ends_at_the_target_unless_more_is_asked(tmp_path: Path) -> None:
    here = lab(tmp_path, "full", ("stop.seconds=300", "compare.target=0.3", "engine.evaluate_every=5"))
    to_target, whole = BY_NAME["table1"].contests(here)[1:], BY_NAME["table3"].contests(here)[1:]
    few = [
        [replace(c, contenders=tuple(d for d in c.contenders if d.row == "fedfa-param")) for c in found]
        for found in (to_target, whole)
    ]
    ((_, (short,)),) = here.carry_out(few[0], jobs=1)
    assert short.manifest["ended"] == "accuracy"
    assert short.label == "FedFa-Param"
    ((_, (first,)), (_, (second,))) = here.carry_out(few[0] + few[1], jobs=1)
    assert first.manifest["ended"] == second.manifest["ended"] == "seconds"
    assert first.time_to(0.3) == short.time_to(0.3)
    ((_, (again,)),) = here.carry_out(few[0], jobs=1)
    assert again.manifest["ended"] == "seconds"


def test_unequal_work_makes_fednova_differ(tmp_path: Path) -> None:
    here = lab(tmp_path)
    (found,) = BY_NAME["table5"].contests(here)
    assert (found.experiment.local.least_epochs, found.experiment.local.epochs) == (1, 2)
    ((_, runs),) = here.carry_out([replace(found, contenders=found.contenders[:1])], jobs=1)
    steps = runs[0].accepted.group_by("client").agg(low=_column("num_steps").min(), high=_column("num_steps").max())
    assert (steps["low"] == steps["high"]).all()
    assert steps["low"].n_unique() == 2


def _column(name: str):
    import polars as pl

    return pl.col(name)


# Choosing ------------------------------------------------------------------------------------------------------------


def test_without_data_the_embedded_one_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDFA_DATA", raising=False)
    order = choose("table4", scale="smoke", tasks=None, seeds=[0], folder=tmp_path)
    assert [workload.name for _, found in order.recipes for workload in found.workloads] == ["digits"]
    assert any("cifar10" in line and "--data DIR" in line for line in order.remarks)
    assert any("embedded digits" in line for line in order.remarks)


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
        (["table1", "--seeds", "a"], "--seeds a: must be whole numbers"),
        (["table1", "--seeds", "-1"], "--seeds -1: must be whole numbers, 0 or more"),
    ],
)
def test_mistakes_are_told_before_anything_runs(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FEDFA_DATA", raising=False)
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


def test_a_run_on_other_data_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Same settings, but the labels are others: yesterday's runs say nothing about them."""
    ordered = partial(choose, "figure1", scale="smoke", tasks=None, seeds=[0], folder=tmp_path, overrides=SHORT)
    order = ordered()
    page, (section,) = make(order, jobs=1)
    assert page.is_file()
    assert [row["label"] for row in section.values["rows"]] == ["FedAvg", "FedBuff (model mean)", "FedFa-Param"]
    make(order)
    from fedfa.learning.task import Task

    monkeypatch.setattr(Task, "digest", lambda self, seed: "other")
    with pytest.raises(ConfigError, match="holds a run on other data or weights; choose another --out"):
        make(ordered())


def test_what_a_recipe_varies_cannot_be_set(tmp_path: Path) -> None:
    def contests(name: str, *overrides: str) -> list[Contest]:
        return list(BY_NAME[name].contests(lab(tmp_path, overrides=overrides)))

    for name, text in (("table4", "strategy.concurrency=5"), ("table1", "data.alpha=1.0"), ("table5", "seed=3")):
        with pytest.raises(ConfigError, match=f"--set {text}: (this recipe sets it itself|use --seeds)"):
            contests(name, text)
    (same_work,) = contests("figure1", "stop.seconds=40")
    assert (same_work.experiment.stop.updates, same_work.experiment.stop.seconds) == (200, None)
    (unequal,) = contests("table5", "local.epochs=1")
    assert (unequal.experiment.local.least_epochs, unequal.experiment.local.epochs) == (1, 2)


def test_the_list_names_everything(tmp_path: Path) -> None:
    text = call("paper", cwd=tmp_path).stdout
    assert all(recipe.name in text for recipe in RECIPES)
    assert [f"table{n}" for n in range(1, 6)] + [f"figure{n}" for n in range(1, 7)] <= sorted(BY_NAME, reverse=True)


def test_phones_beside_the_long_tail(tmp_path: Path) -> None:
    """The paper's weather is 3 s + Exp(5 s): median, tail and the slowest of ten follow."""
    section = BY_NAME["weather"].show(lab(tmp_path), [])
    tail = section.values["rows"][0]
    assert tail["median"] == pytest.approx(3 + 5 * math.log(2), rel=0.05)
    assert tail["p99"] == pytest.approx(3 + 5 * math.log(100), rel=0.08)
    assert tail["fedavg_round_seconds"] == pytest.approx(3 + 5 * np.sum(1 / np.arange(1, 11)), rel=0.05)
    small, large = section.values["rows"][1:]
    assert large["median"] > 3 * small["median"]
    assert small["p99"] / small["median"] > tail["p99"] / tail["median"]


def test_a_damaged_run_is_named(tmp_path: Path) -> None:
    order = choose("figure5", scale="smoke", tasks=["digits"], seeds=[0], folder=tmp_path, overrides=SHORT)
    _, (section,) = make(order, jobs=2)
    assert [row[0] for row in section.grids[1].rows] == ["K = 2", "K = 5", "K = 10", "K = 20"]
    for line in section.figures[1].layers:
        if hasattr(line, "y") and not isinstance(line.y, float):
            assert list(line.y) == sorted(line.y)
    broken = next(tmp_path.rglob("updates.parquet"))
    broken.write_bytes(b"no parquet")
    with pytest.raises(RecordError, match="cannot be read"):
        make(order)
    with pytest.raises(ConfigError, match="seeds = "):
        make(replace(order, recipes=[(r, replace(here, seeds=(0, 0))) for r, here in order.recipes]))
