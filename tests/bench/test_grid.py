"""``fedfa bench grid`` and ``start``: which cells there are, and what a row and a measurement of memory say."""

import copy
import json
from pathlib import Path

import pytest

from fedfa.bench import start
from fedfa.bench.cases import MODELS, OPTIMIZERS, SIZES, STRATEGIES, Case, cases
from fedfa.bench.grid import WAYS, by_hand, forget_peak
from fedfa.learning.models.small import mlp
from tests.helpers.commands import CommandLine, call

FEW = "FedFa-Param, 10 in flight"


def test_every_model_meets_all_its_sizes_and_strategies() -> None:
    found = list(cases())
    usual = {(case.model, case.sizes, case.strategy) for case in found if case.optimizer == "sgd"}
    rules = {name: list(STRATEGIES)[:2] if kind.large else STRATEGIES for name, kind in MODELS.items()}
    assert usual == {(name, s, rule) for name, kind in MODELS.items() for s in kind.sizes for rule in rules[name]}
    others = [case for case in found if case.optimizer != "sgd"]
    assert {case.optimizer for case in others} == set(OPTIMIZERS) - {"sgd"}
    assert len(set(found)) == len(found)
    assert {case.model for case in cases(["cnn-28", "mlp"])} == {"cnn-28", "mlp"}
    assert len(list(cases(quick=True))) == len(MODELS)


@pytest.mark.parametrize("sizes", SIZES)
def test_clients_have_the_sizes_that_are_named(sizes: str) -> None:
    data = Case("mlp", sizes, FEW, "sgd").data()
    numbers = {len(targets) for _, targets in data}
    words = sizes.split()
    if words[0] == "all":
        assert numbers == {int(words[1])}
    elif words[1:2] == ["to"]:
        assert int(words[0]) <= min(numbers) < max(numbers) <= int(words[2])
    assert all(size % 32 != 1 for size in numbers)


def test_rounds_are_whole() -> None:
    for case in cases():
        assert case.updates(quick=True) >= 1
        if case.rule.synchronous:
            assert case.updates(quick=False) % case.rule.concurrency == 0


def test_the_loop_learns_in_both_modes() -> None:
    for strategy in ("FedAvg, 10 in flight", FEW):
        case = Case("mlp", "all 32", strategy, "momentum")
        end = mlp()
        start = copy.deepcopy(end)
        assert by_hand(case, lambda end=end: end, case.data(), 20) == 20 * 32
        assert any((a != b).any() for a, b in zip(start.parameters(), end.parameters(), strict=True))


def test_a_quick_grid_has_a_row_with_all_ways(tmp_path: Path) -> None:
    call("bench", "grid", "--quick", "--models", "mlp", "--json", "grid.json", cwd=tmp_path)
    (row,) = json.loads((tmp_path / "grid.json").read_text())["measurements"]["grid"]
    details = row["details"]
    assert set(details["rates"]) == {"loop", *WAYS}
    assert {len(turns) for turns in details["rates"].values()} == {2}  # the first and a later run
    assert details["first_ratio"] == details["rates"]["auto"][0] / row["baseline"]
    assert details["auto_takes"] in WAYS


def test_peaks_of_memory_can_be_forgotten() -> None:
    big = bytearray(1 << 28)
    held = forget_peak()
    del big
    assert forget_peak() <= held - (1 << 27)


def test_an_unknown_model_is_refused(command_line: CommandLine) -> None:
    assert "--models mpl: did you mean 'mlp'?" in command_line.refusal("bench", "grid", "--models", "mpl")
    assert "--models: is for one measurement; name it: fedfa bench grid" in command_line.refusal(
        "bench", "job", "--models", "mlp"
    )


@pytest.mark.parametrize("way", ["loop", "fedfa"])
def test_a_start_ends_after_its_imports(way: str) -> None:
    imported, ended = start.seconds(way, "MLP 64-64-10")
    assert 0 < imported < ended
