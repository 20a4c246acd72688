"""The wall-clock engine, with a scripted transport instead of Flower."""

import json
import math
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedfa import (
    FedAvg,
    FedFaDelta,
    FedFaParam,
    PortNonUrgent,
    PortUrgent,
    RecordError,
    Strategy,
    Task,
)
from fedfa.deployment import journal
from fedfa.deployment.app import KINDS, write_app
from fedfa.deployment.engine import Deployment
from fedfa.deployment.replay import replay_journal, verify_replay
from fedfa.deployment.settings import DeploymentSettings, settings_of
from fedfa.deployment.transport import Answer, Event, Failure, Nodes, TrainRequest
from fedfa.errors import ConfigError
from fedfa.executors.base import Trained
from fedfa.report.page import write_report
from fedfa.runs import live
from fedfa.runs.recorder import Outcome
from fedfa.runs.store import UNFINISHED, find_runs, is_begun, read_run
from fedfa.settings import load_object
from fedfa.strategies.registry import STRATEGIES
from fedfa.watch.runs import Runs
from fedfa.watch.view import view


class Crash(BaseException):
    """Stands for kill -9: nothing is tidied up."""


def make_task() -> Task:
    data = (torch.randn(8, 3, generator=torch.Generator().manual_seed(1)), torch.arange(8) % 2)
    return Task(model=lambda: nn.Linear(3, 2), clients=[data], test=data, name="tiny")


class Scripted:
    """Nodes 100, 101, ...; every order is answered by ``behave``, first in first out."""

    def __init__(self, nodes: int, behave: Callable[[TrainRequest, int], list[Event]]) -> None:
        self.events: SimpleQueue[Event] = SimpleQueue()
        self.behave = behave
        self.sent: list[tuple[int, TrainRequest]] = []
        self.events.put(Nodes(frozenset(range(100, 100 + nodes))))

    def send(self, node: int, order: TrainRequest) -> None:
        self.sent.append((node, order))
        for event in self.behave(order, node):
            self.events.put(event)


def good(order: TrainRequest, node: int = 0) -> list[Event]:
    step = np.float32(0.1) * np.sin(np.arange(len(order.base), dtype=np.float32) + order.dispatch)
    return [Answer(order.dispatch, Trained(order.base + step, 10 + order.dispatch % 3, 4.0, 0.5))]


def deploy(folder: Path, transport: Scripted, resume: bool = False, **settings: object) -> Deployment:
    run = deployment(folder, transport, resume=resume, **settings)
    run.result = run.run()  # pyright: ignore[reportAttributeAccessIssue]
    return run


def deployment(
    folder: Path, transport: Scripted, *, strategy: Strategy | None = None, task: Task | None = None,
    progress: Callable[[Deployment], None] = lambda run: None, **settings: Any,
) -> Deployment:  # fmt: skip
    defaults = {"out": str(folder), "evaluate_every": 5}
    if not any(key.startswith("stop_") for key in settings):
        defaults["stop_updates"] = 12
    return Deployment(
        strategy=strategy or FedFaParam(concurrency=3, window=2), task=task or make_task(), transport=transport,
        settings=DeploymentSettings(**(defaults | settings)), progress=progress,
    )  # fmt: skip


def rows(folder: Path) -> list[dict]:
    return read_run(folder).updates.to_dicts()


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


def assert_journal_gives(folder: Path, model: np.ndarray) -> int:
    """The journal alone, and a fresh strategy, must end in this model bit for bit; how many updates it holds."""
    from fedfa.strategies.base import Flight, Update

    strategy, updates, in_flight, bases = None, 0, {}, {}
    for header, params in journal.read(folder / journal.FOLDER):
        kind, client = header["kind"], header.get("client")
        if kind == "begin":
            settings = dict(header["strategy"])
            strategy = STRATEGIES[settings.pop("name")](**settings)
            strategy.begin(params, header["num_trainable"])
            continue
        assert strategy is not None
        bases[strategy.version] = strategy.model
        if kind == "dispatch":
            in_flight[client] = Flight(header["dispatch"], header["base_version"])
        elif kind == "lost":
            strategy.lost(client, in_flight)
            del in_flight[client]
        elif kind == "update":
            which = (client, header["dispatch"], header["base_version"])
            base = bases[header["base_version"]]
            strategy.receive(Update(*which, params, base, header["num_examples"], header["num_steps"]), in_flight)
            del in_flight[client]
            updates += 1
    assert strategy is not None
    assert strategy.model.tobytes() == model.tobytes()
    return updates


def faulty(order: TrainRequest, node: int) -> list[Event]:
    """Every kind of nonsense, in turn."""
    (answer,) = good(order)
    assert isinstance(answer, Answer)
    trained = answer.trained
    match order.dispatch % 7:
        case 1:
            return [Answer(order.dispatch, replace(trained, params=trained.params * np.float32(math.nan)))]
        case 2:
            return [Answer(order.dispatch, replace(trained, params=trained.params[:-1]))]
        case 3:
            return [Failure(order.dispatch, Outcome("failed", "the client app raised (ZeroDivisionError)"))]
        case 4:
            return [answer, answer]  # a repeat
        case 5:
            return [Answer(order.dispatch, replace(trained, params="nonsense"))]
        case 6:
            return [Answer(order.dispatch, replace(trained, num_examples=-1))]
    return [answer]


def test_bad_answers_free_their_slots_and_are_told_in_the_record(tmp_path: Path) -> None:
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


def test_it_waits_for_nodes_and_gives_work_to_one_that_joins_late(tmp_path: Path, caplog) -> None:
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


def test_without_keep_updates_the_journal_stays_short_and_goes_in_the_end(tmp_path: Path) -> None:
    seen: list[int] = []

    def watch(run: Deployment) -> None:
        seen.append(len(journal.segments(tmp_path / "run" / journal.FOLDER)))

    deploy(tmp_path / "run", Scripted(3, good), checkpoint_seconds=1e-9, progress=watch)
    assert max(seen) == 1
    assert not (tmp_path / "run" / journal.FOLDER).exists()
    assert not (tmp_path / "run" / "checkpoint.npz").exists()


def test_a_folder_in_use_is_not_overwritten_and_other_settings_do_not_continue_it(tmp_path: Path) -> None:
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


def test_a_stopped_run_leaves_what_it_has_and_its_end_replaces_it(tmp_path: Path) -> None:
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


# The journal ---------------------------------------------------------------------------------------------------------


def write_three(folder: Path) -> bytes:
    log = journal.Journal(folder)
    for number in range(3):
        log.append({"kind": "update", "number": number}, np.full(5, number, np.float32))
    log.close()
    return (folder / "000000.log").read_bytes()


def test_a_torn_last_entry_is_cut_off_wherever_it_was_torn(tmp_path: Path) -> None:
    whole = write_three(tmp_path / "whole")
    second_end = len(whole) * 2 // 3
    for cut in range(second_end, len(whole)):
        folder = tmp_path / str(cut)
        folder.mkdir()
        for tail in (b"", b"\0" * (len(whole) - cut)):  # lost, or never written though the file had grown
            (folder / "000000.log").write_bytes(whole[:cut] + tail)
            if whole[:cut] + tail == whole:
                continue
            assert [entry.header["number"] for entry in journal.read(folder)] == [0, 1]
            log = journal.Journal(folder)
            log.append({"kind": "lost", "number": 9})
            log.close()
            assert [entry.header["number"] for entry in journal.read(folder)] == [0, 1, 9]


def test_damage_in_the_middle_is_an_error_and_not_skipped(tmp_path: Path) -> None:
    whole = bytearray(write_three(tmp_path))
    whole[len(whole) // 2] ^= 1
    (tmp_path / "000000.log").write_bytes(whole)
    with pytest.raises(RecordError, match="damaged at byte"):
        list(journal.read(tmp_path))


def test_only_one_process_may_write_a_journal(tmp_path: Path) -> None:
    first = journal.Journal(tmp_path)
    with pytest.raises(RecordError, match="another server still writes it"):
        journal.Journal(tmp_path)
    first.close()
    journal.Journal(tmp_path).close()


def test_missing_segments_are_noticed(tmp_path: Path) -> None:
    log = journal.Journal(tmp_path)
    for _ in range(2):
        log.next_segment()
    log.close()
    (tmp_path / "000001.log").unlink()
    with pytest.raises(RecordError, match="segments are missing"):
        list(journal.read(tmp_path))


@pytest.mark.parametrize("name", [name for name in STRATEGIES if name != "port-urgent"])
def test_a_journal_gives_every_arrival_and_the_model_again(tmp_path: Path, name: str) -> None:
    settings = {"strategy": STRATEGIES[name](concurrency=5), "keep_updates": True, "bench_seconds": 0.0}
    deploy(tmp_path / "run", Scripted(6, faulty), checkpoint_seconds=1e-9, **settings)
    replayed = replay_journal(tmp_path / "run")
    verify_replay(tmp_path / "run", replayed)
    outcomes = {arrival.outcome.partition(":")[0] for arrival in replayed.arrivals}
    assert outcomes >= {"accepted", "refused", "failed"}


def test_a_replay_that_differs_is_told(tmp_path: Path) -> None:
    deploy(tmp_path / "run", Scripted(3, good), keep_updates=True)
    replayed = replay_journal(tmp_path / "run")
    changed = replayed.strategy.model.copy()
    changed[0] = np.nextafter(changed[0], np.float32(1))
    replayed.strategy.model = changed
    with pytest.raises(RecordError, match="the journal ends in model"):
        verify_replay(tmp_path / "run", replayed)
    replayed.arrivals[3] = replayed.arrivals[3]._replace(outcome="refused: no reason")
    with pytest.raises(RecordError, match="arrival 3 is"):
        verify_replay(tmp_path / "run", replayed)
    del replayed.arrivals[3:]
    with pytest.raises(RecordError, match="arrival 3 is nothing in the journal"):
        verify_replay(tmp_path / "run", replayed)
    deploy(tmp_path / "other", Scripted(3, good))
    with pytest.raises(RecordError, match="only deployments with keep-updates = true"):
        replay_journal(tmp_path / "other")


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


# Apps ----------------------------------------------------------------------------------------------------------------


def fedfa(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "fedfa.cli", *words], capture_output=True, text=True, check=False)


def test_the_example_is_what_deploy_init_writes(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "flower-digits"
    done = fedfa("deploy", "init", str(tmp_path / "flower-digits"), "--task", "digits")
    assert done.returncode == 0, done.stderr
    names = sorted(path.name for path in (tmp_path / "flower-digits").iterdir())
    assert names == ["README.md", "client_app.py", "pyproject.toml", "server_app.py", "task.py"]
    for name in names:
        assert (tmp_path / "flower-digits" / name).read_text() == (example / name).read_text(), name
    again = fedfa("deploy", "init", str(tmp_path / "flower-digits"))
    assert again.returncode == 2
    assert "give another folder" in again.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_app_has_every_key_and_a_task_that_trains(tmp_path: Path, kind: str) -> None:
    write_app(tmp_path / "My App", kind)
    project = tomllib.loads((tmp_path / "My App" / "pyproject.toml").read_text())
    config = project["tool"]["flwr"]["app"]["config"]
    assert {key.replace("-", "_") for key in config} == {f.name for f in fields(DeploymentSettings)}
    assert settings_of(config).out == "runs/my-app"
    make = load_object(f"{tmp_path / 'My App' / 'task.py'}:task", "task")
    server, site = make(0, None), make(0, {"partition-id": 1, "num-partitions": 2})
    assert server.initial(0).vector.tobytes() == site.initial(0).vector.tobytes()
    assert site.num_clients in (1, 2)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"out": ""}, "out = ''"),
        ({"out": "x", "ttl-seconds": 0.0}, "ttl_seconds = 0.0: must be above 0"),
        ({"out": "x", "wire": "zip"}, "must be one of flat, named"),
        ({"out": "x", "keep-updates": 3}, "must be true or false"),
    ],
)
def test_a_wrong_run_config_is_told_in_a_line(config: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings_of(config)
