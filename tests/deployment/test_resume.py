"""Killed and stopped deployments continue where they were."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fedfa import FedAvg, FedFaDelta, PortNonUrgent, RecordError, Strategy
from fedfa.deployment import journal
from fedfa.deployment.engine import Deployment
from fedfa.deployment.transport import Event, Failure, TrainRequest
from fedfa.report.page import write_report
from fedfa.runs.recorder import Outcome
from fedfa.runs.store import UNFINISHED, find_runs, is_begun
from tests.helpers.deployments import Crash, Scripted, assert_journal_gives, deploy, deployment, good, rows


@pytest.mark.parametrize("crash_at", [0, 1, 4, 7, 11])
@pytest.mark.parametrize("checkpoints", [1e-9, 1e9])
@pytest.mark.parametrize(
    "make",
    [lambda: FedFaDelta(concurrency=3), lambda: FedAvg(concurrency=3), lambda: PortNonUrgent(concurrency=3, buffer=2)],
    ids=["fedfa-delta", "fedavg", "port-non-urgent"],
)
def test_a_killed_run_continues_where_it_was(
    tmp_path: Path, make: Callable[[], Strategy], checkpoints: float, crash_at: int
) -> None:
    """No accepted update is lost, and the state is the one before the crash, bit for bit."""
    states: list[str] = []

    def behave(order: TrainRequest, node: int) -> list[Event]:
        return good(order) if order.dispatch % 5 else [Failure(order.dispatch, Outcome("failed", "x"))]

    def watch(run: Deployment) -> None:
        states.append(state(run))
        if run.accepted == crash_at:
            raise Crash

    settings = {
        "strategy": make(), "bench_seconds": 0.0, "checkpoint_seconds": checkpoints,
        "keep_updates": True, "evaluate_every": 2,
    }  # fmt: skip
    with pytest.raises(Crash):
        deploy(tmp_path / "run", Scripted(3, behave), progress=watch, **settings)
    before, states[:] = states[-1], []

    settings["strategy"] = make()
    run = deployment(tmp_path / "run", Scripted(3, behave), resume=True, **settings)
    note, replayed = run._note, []
    run._note = lambda *args, **facts: (replayed.append(state(run)), note(*args, **facts))[1]  # pyright: ignore
    run.run()
    assert replayed[0] == before
    assert run.accepted == 12
    lost = [row for row in rows(tmp_path / "run") if row["outcome"] == "lost: the server was started again"]
    assert len(lost) <= 3
    assert_journal_gives(tmp_path / "run", run.strategy.model)


def state(run: Deployment) -> str:
    """Everything the next event depends on."""
    plain = {
        "version": run.strategy.version,
        "model": run.strategy.model.tobytes().hex(),
        "strategy": str(run.strategy.state_dict()),
        "flights": [(f.dispatch, f.base_version, f.client, f.base.tobytes().hex()) for f in run.in_flight.values()],
        "random": str(run.random.getstate()),
        "updates": run.record.updates.array().tobytes().hex(),
        "evaluations": run.record.evaluations.array().tobytes().hex(),
        "others": [run.accepted, run.dispatches, run.unfilled, run.fruitless, run.clients, run.benched, run.now],
    }
    return json.dumps(plain, default=str)


def test_without_keep_updates_the_journal_stays_short_and_is_removed_at_the_end(tmp_path: Path) -> None:
    seen: list[int] = []

    def watch(run: Deployment) -> None:
        seen.append(len(journal.segments(tmp_path / "run" / journal.FOLDER)))

    deploy(tmp_path / "run", Scripted(3, good), checkpoint_seconds=1e-9, progress=watch)
    assert max(seen) == 1
    assert not (tmp_path / "run" / journal.FOLDER).exists()
    assert not (tmp_path / "run" / "checkpoint.npz").exists()


def test_a_folder_in_use_is_not_overwritten_and_is_resumed_with_its_settings_alone(tmp_path: Path) -> None:
    def stop_early(run: Deployment) -> None:
        if run.accepted == 3:
            raise Crash

    with pytest.raises(RecordError, match="no unfinished run"):
        deploy(tmp_path / "run", Scripted(3, good), resume=True)
    with pytest.raises(Crash):
        deploy(tmp_path / "run", Scripted(3, good), progress=stop_early)
    with pytest.raises(RecordError, match="unfinished run; continue it with resume"):
        deploy(tmp_path / "run", Scripted(3, good))
    with pytest.raises(RecordError, match="other settings"):
        deploy(tmp_path / "run", Scripted(3, good), resume=True, strategy=FedAvg(concurrency=3))
    deploy(tmp_path / "run", Scripted(3, good), resume=True)
    with pytest.raises(RecordError, match="finished run; choose another"):
        deploy(tmp_path / "run", Scripted(3, good))


def test_a_stopped_run_leaves_its_records_and_its_continuation_replaces_them(tmp_path: Path) -> None:
    def stop_early(run: Deployment) -> None:
        if run.accepted == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        deploy(tmp_path / "run", Scripted(3, good), progress=stop_early)
    (begun,) = find_runs(tmp_path / "run")
    assert begun.label == "fedfa-param (unfinished)"
    assert len(begun.accepted) == 7
    assert begun.evaluations["updates"].to_list() == [0, 5]
    assert "Trained by real clients" in write_report([begun], tmp_path / "run", 0.1, "").read_text()
    deploy(tmp_path / "run", Scripted(3, good), resume=True)
    (whole,) = find_runs(tmp_path / "run")
    assert whole.label == "fedfa-param"
    assert whole.accepted[:7].equals(begun.accepted)
    assert not is_begun(tmp_path / "run")
    assert not (tmp_path / "run" / UNFINISHED).exists()
