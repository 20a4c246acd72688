"""The wall-clock engine, with a scripted transport instead of Flower."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from fedfa import PortUrgent
from fedfa.deployment.engine import Deployment
from fedfa.deployment.transport import Event, Failure, Nodes, TrainRequest
from fedfa.errors import ConfigError
from fedfa.report.page import write_report
from fedfa.runs import live
from fedfa.runs.recorder import Outcome
from fedfa.runs.store import read_run
from fedfa.strategies.registry import STRATEGIES
from fedfa.watch.runs import Runs
from fedfa.watch.view import view
from tests.helpers.deployments import Scripted, assert_journal_gives, deploy, faulty, good, rows


@pytest.mark.parametrize("name", [name for name in STRATEGIES if name != "port-urgent"])
def test_every_strategy_runs_and_its_records_make_a_report(tmp_path: Path, name: str) -> None:
    deploy(tmp_path / "run", Scripted(5, good), strategy=STRATEGIES[name](concurrency=5), target=0.1)
    run = read_run(tmp_path / "run")
    assert len(run.accepted) == 12
    assert run.manifest["clock"] == "wall"
    assert run.evaluations["updates"].to_list() == [0, 5, 10, 12]
    page = write_report([run], tmp_path / "run", 0.1, "").read_text()
    assert "Trained by real clients; times are wall seconds." in page
    assert "virtual" not in page.split("<script")[0]


def test_port_urgent_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="use port-non-urgent"):
        deploy(tmp_path / "run", Scripted(3, good), strategy=PortUrgent())


def test_the_same_arrivals_give_the_same_models_as_the_strategy_alone(tmp_path: Path) -> None:
    transport = Scripted(3, good)
    run = deploy(tmp_path / "run", transport, keep_updates=True)
    assert_journal_gives(tmp_path / "run", run.strategy.model)
    with np.load(tmp_path / "run" / "model.npz") as file:
        assert file["weight"].shape == (2, 3)
        # the flat vector holds the same numbers, tensor by tensor
        assert sorted(np.concatenate([file["weight"].ravel(), file["bias"]])) == sorted(run.strategy.model)


def test_bad_answers_free_their_slots_and_are_recorded(tmp_path: Path) -> None:
    run = deploy(tmp_path / "run", Scripted(3, faulty), bench_seconds=0.0, keep_updates=True)
    outcomes = {row["dispatch"] % 7: row["outcome"] for row in rows(tmp_path / "run")}
    assert outcomes[0] == outcomes[4] == "accepted"
    assert outcomes[1] == "refused: not finite (NaN or Inf)"
    assert outcomes[2].startswith("refused: wrong shape (7,), not (8,)")
    assert outcomes[3] == "failed: the client app raised (ZeroDivisionError)"
    assert outcomes[5].startswith("refused: wrong shape str")
    assert outcomes[6].startswith("refused: no work done: -1 examples")
    dispatches = [row["dispatch"] for row in rows(tmp_path / "run")]
    assert len(dispatches) == len(set(dispatches)), "a repeat is never counted"
    assert_journal_gives(tmp_path / "run", run.strategy.model)


def test_a_node_that_fails_is_benched_twice_as_long_each_time(tmp_path: Path) -> None:
    def behave(order: TrainRequest, node: int) -> list[Event]:
        return [Failure(order.dispatch, Outcome("failed", "x"))] if node == 100 else good(order)

    deploy(tmp_path / "run", Scripted(2, behave), bench_seconds=0.05, stop_seconds=0.7, evaluate_every=10**6)
    failed = [row for row in rows(tmp_path / "run") if row["outcome"] == "failed: x"]
    pauses = [b["dispatched_seconds"] - a["seconds"] for a, b in pairwise(failed)]
    assert len(pauses) >= 2
    assert all(pause >= 0.05 * 2**nth for nth, pause in enumerate(pauses))


def test_a_deployment_waits_for_nodes_and_uses_one_that_joins_late(tmp_path: Path, caplog) -> None:
    transport = Scripted(0, good)

    def behave(order: TrainRequest, node: int) -> list[Event]:
        late = [Nodes(frozenset({100, 101}))] if order.dispatch == 3 else []
        return [*late, *good(order)]

    transport.behave = behave
    transport.events.put(Nodes(frozenset({100})))
    caplog.set_level("INFO", "fedfa")
    deploy(tmp_path / "run", transport)
    assert {node for node, order in transport.sent if order.dispatch <= 3} == {100}
    assert {node for node, _ in transport.sent} == {100, 101}
    assert any("waiting for nodes" in message for message in caplog.messages)


def test_a_node_that_leaves_gets_no_more_work(tmp_path: Path) -> None:
    def behave(order: TrainRequest, node: int) -> list[Event]:
        return [Nodes(frozenset({101, 102})), *good(order)] if order.dispatch == 4 else good(order)

    transport = Scripted(3, behave)
    deploy(tmp_path / "run", transport)
    assert all(node != 100 for node, order in transport.sent if order.dispatch > 4)


def test_a_deployment_can_be_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "EVERY_SECONDS", 0.0)
    seen: list[dict] = []

    def look(run: Deployment) -> None:
        seen.append(view("", Runs(tmp_path).look(), ""))

    deploy(tmp_path / "run", Scripted(3, good), progress=look)
    running = [one for one in seen if one["kind"] == "running"]
    assert len(running) > 10
    assert {value for one in running for name, value, _ in one["tiles"] if name == "training now"} == {"3"}
    assert not (tmp_path / "run" / "live.json").exists()
    assert view("", Runs(tmp_path).look(), "")["standing"] == "finished: updates"
