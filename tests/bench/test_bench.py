"""``fedfa bench``: turns, rows, and that memory is used only for clients that were dispatched."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedfa
from fedfa.bench import aggregation, base, engine, growth, lanes, together, workers
from fedfa.bench.base import Options
from fedfa.bench.registry import BENCHMARKS, as_grid, choose
from fedfa.errors import ConfigError
from fedfa.executors.lanes import Lanes
from fedfa.learning.device import CPU
from fedfa.strategies.base import Flight, Update
from tests.helpers.commands import CommandLine, call

WITHOUT_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


def test_sides_are_measured_in_turns_and_the_first_turn_does_not_count() -> None:
    order: list[str] = []

    def way(name: str, values: list[float]) -> Any:
        return lambda: order.append(name) or values.pop(0)

    rates = base.take_turns({"a": way("a", [9, 1, 5, 2]), "b": way("b", [7, 4, 4, 4])}, 3, lambda _: None)
    assert order == ["a", "b"] * 4
    assert base.middle(rates["a"]) == 2
    assert base.Row("case", "x/s", 6.0, 4.0, "b").as_dict()["ratio"] == 1.5


def test_bench_measures_what_is_named_and_writes_json(tmp_path: Path) -> None:
    words = ["aggregation", "engine", "aggregation", "checkpoint"]
    done = call("bench", *words, "--quick", "--json", "all.json", cwd=tmp_path)
    found = json.loads((tmp_path / "all.json").read_text())
    assert list(found["measurements"]) == ["engine", "aggregation", "checkpoint"]
    assert found["machine"]["numpy"] == np.__version__
    assert found["command"].startswith("fedfa bench aggregation")
    (alone,) = found["measurements"]["engine"]
    assert alone["ratio"] == alone["ours"] / alone["baseline"]
    assert alone["details"]["bytes"] > 1_000 * 4_000  # a thousand models of a thousand floats in flight
    assert [row["details"]["strategy"] for row in found["measurements"]["aggregation"]] == list(aggregation.BYTES)
    assert all(row["ours"] > 0 < row["baseline"] for rows in found["measurements"].values() for row in rows)
    assert "100,000 clients, 1,000 in flight" in done.stdout
    assert "plain copy" in done.stdout
    assert done.stderr == ""
    assert [path.name for path in tmp_path.iterdir()] == ["all.json"]


def test_runs_side_by_side_are_those_that_come_one_by_one() -> None:
    (row,) = together.measure(Options(quick=True), lambda _: None)
    assert row.beside.endswith(" updates")
    assert {name: len(found) for name, found in row.details["rates"].items()} == {"side by side": 2, "one by one": 2}


def test_growth_sweeps_and_draws(tmp_path: Path) -> None:
    call("bench", "growth", "--quick", "--json", "growth.json", "--out", "figures", cwd=tmp_path)
    rows = json.loads((tmp_path / "growth.json").read_text())["measurements"]["growth"]
    points = [row["details"] for row in rows]
    assert {(p["d"], p["K"]) for p in points if "d" in p} == {
        (d, k) for d in growth.QUICK_LENGTHS for k in growth.QUICK_WINDOWS
    }
    assert {(p["clients"], p["in_flight"]) for p in points if "clients" in p} == {(10, 10), (1_000, 10), (1_000, 100)}
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {"growth.pdf", "growth.png"}


def test_the_list_names_all_benchmarks(tmp_path: Path) -> None:
    lines = call("bench", "--list", cwd=tmp_path).stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(BENCHMARKS)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["agregation"], "bench agregation: no such measurement; did you mean 'aggregation'?"),
        (["engine", "--compile"], "--compile: is for one measurement; name it: fedfa bench gpu"),
        (["--repeats", "0"], "--repeats 0: must be at least 1"),
        pytest.param(["gpu"], "bench gpu: no GPU that torch can use", marks=WITHOUT_GPU),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(words: list[str], message: str, command_line: CommandLine) -> None:
    refusal = command_line.refusal("bench", *words)
    assert message in refusal
    assert refusal.count("\n") == 1


@WITHOUT_GPU
def test_without_a_gpu_its_benchmark_is_left_out_and_named() -> None:
    wanted, remarks = choose([])
    assert wanted == ["job", "start", "engine", "aggregation", "checkpoint"]
    assert remarks == ["gpu: left out, no GPU that torch can use."]
    with pytest.raises(ConfigError, match="no GPU"):
        choose(["engine", "gpu"])


def test_lanes_are_measured_without_a_gpu() -> None:
    """All of this benchmark but the profile runs on lanes without a GPU, too."""
    task = fedfa.Task(
        model=lambda: torch.nn.Linear(4, 2),
        clients=[(torch.randn(8, 4), torch.arange(8) % 2) for _ in range(3)],
        test=(torch.randn(8, 4), torch.arange(8) % 2),
    )
    executor = Lanes.prepared(task, 0, CPU)
    assert lanes.together(task, executor, 3) > 0
    assert Lanes.prepared(task, 0, CPU).pool is executor.pool
    assert len(executor.pool.free) == 3


def test_vectors_that_do_not_fit_in_memory_are_repeated_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    length = 100_000
    fixed = 2 * (12 * length + 16 * aggregation.COPY)
    monkeypatch.setattr(aggregation, "free_memory", lambda: fixed + 2 * 4 * length * 4)
    (row,) = aggregation.rows_of(length, [("fedfa-param", 20)], 1, lambda _: None)
    assert row.details["distinct_vectors"] == 4
    assert "4 vectors in rotation" in as_grid("aggregation", [row]).rows[0][-1]
    monkeypatch.setattr(aggregation, "free_memory", lambda: fixed)
    assert aggregation.rows_of(length, [("fedfa-param", 20)], 1, lambda _: None) == []


def test_a_client_costs_memory_only_after_its_first_dispatch() -> None:
    """With a thousand million clients, dictionaries and models grow with the dispatches, not with N."""
    sizes: list[tuple[int, ...]] = []

    def look(run: Any) -> None:
        models = {id(flight.base) for flight in run.in_flight.values()}
        sizes.append((len(run.counts), len(run.idle.moved), len(run.in_flight), len(models), run.dispatches))

    fedfa.simulate(
        fedfa.FedFaParam(concurrency=50, window=5), engine.NoTask(10**9, 10), stop=fedfa.Stop(updates=400),
        executor=engine.NoExecutor(10), progress=look,
    )  # fmt: skip
    touched, moved, in_flight, models, dispatches = sizes[-1]
    assert dispatches == 450
    assert touched <= dispatches
    assert moved <= 2 * dispatches
    assert models <= in_flight == 50


def test_options_determine_the_number_of_turns() -> None:
    assert (Options().turns(5), Options(quick=True).turns(5), Options(quick=True, repeats=3).turns(5)) == (5, 1, 3)


@pytest.mark.parametrize("name", aggregation.BYTES)
def test_rules_can_be_sharded_by_parameter_range_but_for_ports_cosine_and_agreement(name: str) -> None:
    """docs/scale.md: each coordinate's new value depends on that coordinate, and on scalars that all shards know."""
    length, cut = 12, 5
    rng = np.random.default_rng(1)
    results = rng.integers(-8, 8, (9, length)).astype(np.float32)  # sums of such numbers are exact
    results[:, :cut] += 8  # clients agree on these

    def last_model(part: slice) -> np.ndarray:
        strategy, start = aggregation.strategy_of(name, 4), np.zeros(length, np.float32)[part]
        strategy.begin(start)
        for number, result in enumerate(results):
            update = Update(1, number, 0, result[part], start, 1 + number, 1.0)
            assert not strategy.receive(update, {1: Flight(number, 0)}).refused
        assert strategy.version >= 2
        return strategy.model

    shards = np.concatenate([last_model(slice(cut)), last_model(slice(cut, length))])
    assert np.array_equal(last_model(slice(length)), shards) == (name not in ("port", "fedfa-agree"))


def test_the_rate_of_workers_leaves_out_the_first_updates() -> None:
    clock = workers.Clock()
    start = clock.seen[0][1]
    clock.seen += [(10, start + 50.0), (20, start + 51.0), (25, start + 51.5), (100, start + 59.0)]
    assert clock.rate() == pytest.approx(80 / 8.0)
