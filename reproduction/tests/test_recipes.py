"""What is compared under which settings, and in which order: checked without any data."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedfa.errors import ConfigError
from fedfa.experiments.points import ingredients
from fedfa_reproduction.base import Comparison
from fedfa_reproduction.contenders import contenders, extended
from fedfa_reproduction.plan import plan
from fedfa_reproduction.published import paper
from fedfa_reproduction.recipes import BY_NAME, RECIPES
from fedfa_reproduction.study import Study
from fedfa_reproduction.workloads import ALL, CIFAR10, SENT140, SST2
from fedfa_reproduction.workloads import BY_NAME as WORKLOADS
from reproduction_helpers import call, study

OURS = {"fedfa-agree"}
"""What the paper does not have."""


def test_the_papers_numbers_are_whole() -> None:
    """Every split of the paper's tables has its numbers, for every strategy that the tables compare."""
    rows = {contender.row for contender in contenders(5, 10)} - OURS
    for name in ("table1", "table2"):
        assert set(paper()[name]) == {s.name for w in ALL if w.name in BY_NAME["table1"].tasks for s in w.splits}
        for column in paper()[name].values():
            assert set(column) == rows | {"target"}
            assert column["fedasync"] == "failed"
    targets = {split.name: split.target for workload in ALL for split in workload.splits}
    assert {name: column["target"] for name, column in paper()["table1"].items()}.items() <= targets.items()
    for column in paper()["table3"].values():
        assert all(0.6 < accuracy < 0.9 for accuracy in column.values())
    rows = {c.row for c in extended(5)} - OURS
    assert rows == set(paper()["table5"]["rounds"]) == set(paper()["table5"]["seconds"])


@pytest.mark.parametrize("scale", ["smoke", "full"])
@pytest.mark.parametrize("workload", ALL, ids=lambda workload: workload.name)
def test_every_recipe_is_valid_at_every_scale(workload, scale, tmp_path: Path) -> None:
    """Settings, strategies and names are checked without data, as before any run."""
    here = Study(scale, (workload,), (0, 1), tmp_path)
    for recipe in RECIPES:
        comparisons = list(recipe.comparisons(here))
        for one in comparisons:
            assert len({contender.key for contender in one.contenders}) == len(one.contenders), one.name
        planned = plan(here, comparisons)
        different = {(c.name, d.spec, here.ends_at_target(c)) for c in comparisons for d in c.contenders}
        assert len(planned) == len(different) * 2
        for run in planned:
            settings = run.experiment.as_table()["strategy"]
            assert settings["concurrency"] == run.experiment.strategy["concurrency"]
            size = settings.get("window", settings.get("buffer"))
            assert size is None or size == run.experiment.strategy.get("window", size) or recipe.name == "figure5"


def test_full_scale_is_the_papers_setting(tmp_path: Path) -> None:
    noniid, iid = WORKLOADS["cifar10"].splits
    for split, alpha, target in ((noniid, 0.1, 0.6), (iid, 5.0, 0.7)):
        experiment = Study("full", (), (0,), tmp_path).experiment(WORKLOADS["cifar10"], split)
        assert (experiment.data.clients, experiment.data.alpha, experiment.data.fraction) == (100, alpha, 1.0)
        assert (experiment.local.epochs, experiment.local.batch_size, experiment.local.lr) == (10, 32, 0.01)
        assert (experiment.model.name, experiment.model.norm, experiment.model.width) == ("resnet18", "batch", 64)
        assert (experiment.strategy["concurrency"], experiment.compare.target) == (10, target)


def test_what_a_recipe_varies_cannot_be_set(tmp_path: Path) -> None:
    def comparisons(name: str, *overrides: str) -> list[Comparison]:
        return list(BY_NAME[name].comparisons(study(tmp_path, overrides=overrides)))

    for name, text in (("table4", "strategy.concurrency=5"), ("table1", "data.alpha=1.0"), ("table5", "seed=3")):
        with pytest.raises(ConfigError, match=f"--set {text}: (this recipe sets it itself|use --seeds)"):
            comparisons(name, text)
    (same_work,) = comparisons("figure1", "stop.seconds=40")
    assert (same_work.experiment.stop.updates, same_work.experiment.stop.seconds) == (200, None)
    (unequal,) = comparisons("table5", "local.epochs=1")
    assert (unequal.experiment.local.least_epochs, unequal.experiment.local.epochs) == (1, 2)


def test_the_list_names_everything(tmp_path: Path) -> None:
    text = call("paper", cwd=tmp_path).stdout
    assert all(recipe.name in text for recipe in RECIPES)
    assert [f"table{n}" for n in range(1, 6)] + [f"figure{n}" for n in range(1, 7)] <= sorted(BY_NAME, reverse=True)


def test_caps_are_a_fifth_above_the_papers_slowest(tmp_path: Path) -> None:
    """FedAvg took 320 rounds of 10 on CIFAR-10, alpha = 5; FedBuff, the slowest of the others, 325 of 5."""

    def limits(here: Study) -> dict[str, int | None]:
        planned = plan(here, BY_NAME["table1"].comparisons(here)[1:])
        return {run.point.label: run.experiment.stop.updates for run in planned}

    here = Study("full", (CIFAR10,), (0,), tmp_path)
    assert limits(here)["fedavg"] == 3840
    assert limits(here)["fedfa-param:window=5"] == limits(here)["fedasync"] == 1950
    assert set(limits(replace(here, overrides=("stop.updates=7",))).values()) == {7}
    assert set(limits(replace(here, scale="smoke")).values()) == {None}


# In which order ------------------------------------------------------------------------------------------------------


@pytest.fixture
def names(tmp_path: Path) -> list[str]:
    """The runs of everything that the paper shows, with two seeds, in the order in which they are made."""
    here = Study("full", (CIFAR10, SENT140, SST2), (0, 1), tmp_path)
    return [run.name for run in plan(here, everything(here))]


def everything(here: Study) -> list[Comparison]:
    return [c for recipe in RECIPES if recipe.name != "figure1" for c in recipe.comparisons(here)]


def test_the_leading_strategies_come_first(names: list[str]) -> None:
    assert len(set(names)) == len(names)
    mild = [name.removeprefix("cifar10-iid/").removesuffix("-seed0-to-target") for name in names[:14]]
    assert mild[:3] == ["fedfa-param_window=5", "fedfa-agree_window=5", "fedfa-agree_window=10"]
    assert sorted(mild[3:6]) == [
        "fedfa-agree_window=5_server_lr=1.2", "fedfa-agree_window=5_server_lr=1.5", "fedfa-delta_window=5"
    ]  # fmt: skip
    assert [name.split("_")[0] for name in mild[6:12]] == ["fedbuff"] * 2 + ["fedavg"] + [
        "port-urgent", "port-non-urgent", "fedasync"
    ]  # fmt: skip
    assert all(name.startswith("fedfa-delta_window=5_server_lr") for name in mild[12:])


def test_the_most_informative_runs_come_first(names: list[str]) -> None:
    first = [min(n for n, found in enumerate(names) if found.startswith(name)) for name in (
        "cifar10-iid/", "cifar10-noniid-same-time/", "cifar10-iid/fedfa-param_window=5-seed1", "cifar10-iid-windows",
        "sent140-noniid/", "cifar10-iid-search/", "cifar10-iid-unequal", "cifar10-iid-search-phones",
        "cifar10-iid-mc2", "cifar10-noniid/",
    )]  # fmt: skip
    assert first == sorted(first)
    on_hard = [n for n, name in enumerate(names) if name.startswith("cifar10-noniid/") and "seed0-to-target" in name]
    to_the_end = min(n for n, name in enumerate(names) if "cifar10-iid/" in name and name.endswith("-seed0"))
    assert max(on_hard[:9]) < to_the_end  # the leading ones
    assert min(on_hard[9:]) > to_the_end
    last_first_seed = max(n for n, name in enumerate(names) if "seed0" in name)
    early = [name for name in names[:last_first_seed] if "seed1" in name]
    assert len(early) == 9  # FedFa, FedBuff and FedAvg on the mild split
    assert all(name.startswith("cifar10-iid/") for name in early)


def test_runs_that_share_their_data_are_made_together(tmp_path: Path) -> None:
    here = Study("full", (CIFAR10, SENT140, SST2), (0, 1), tmp_path)
    assert len({ingredients(run.experiment) for run in plan(here, everything(here)) if run.priority < (1, 0)}) == 1
