"""Processes that train one run's clients: the same bytes in the records, whatever happens to a process."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedfa
from fedfa.errors import ConfigError
from fedfa.executors import cores, inline, team
from fedfa.executors.base import WorkOrder
from fedfa.executors.inline import Inline
from fedfa.learning.device import CPU
from fedfa.runs.store import read_run
from fedfa.simulation.settings import EngineSettings
from fedfa.simulation.simulate import simulation
from fedfa.simulation.together import alone, undisturbed
from tests.helpers.simulations import StopAfter

pytestmark = pytest.mark.skipif(sys.platform != "linux" or torch.cuda.is_available(), reason="forks cannot train here")


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Net(nn.Module):
    """A small CNN with everything that could differ between processes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
        self.drop, self.head = nn.Dropout(0.3), nn.Linear(4 * 36, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.drop(torch.relu(self.norm(self.conv(images))).flatten(1)))


def blobs(client: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(client)
    labels = torch.randint(0, 3, (20 + client,), generator=generator)
    return torch.randn(len(labels), 1, 8, 8, generator=generator) + labels[:, None, None, None], labels


def make_task(**local: Any) -> fedfa.Task:
    return fedfa.Task(
        model=lambda: Net(),
        clients=[blobs(client) for client in range(12)],
        test=blobs(99),
        local=fedfa.LocalTraining(**{"epochs": 3, "batch_size": 16, "lr": 0.05} | local),
    )


def records(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.parquet")}


def simulated(
    folder: Path, workers: Any, strategy: Any = None, task: fedfa.Task | None = None, **settings: Any
) -> fedfa.Run:
    strategy = strategy or fedfa.FedFaParam(concurrency=5, window=3)
    own = {"stop": {"updates": 50}, "out": folder} | settings
    return fedfa.simulate(strategy, task or make_task(), engine={"executor": "inline", "workers": workers}, **own)


def have_cores(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(number)))
    monkeypatch.setattr(cores, "_QUOTA", Path("there is none"))


@pytest.fixture
def teams(monkeypatch: pytest.MonkeyPatch) -> list[team.Team]:
    """All teams that are started."""
    started: list[team.Team] = []

    class Seen(team.Team):
        def __init__(self, *settings: Any) -> None:
            super().__init__(*settings)
            started.append(self)

    monkeypatch.setattr(inline, "Team", Seen)
    return started


@pytest.mark.parametrize(
    "local", [{}, {"momentum": 0.9}, {"optimizer": "adamw", "lr": 1e-3}, {"least_epochs": 1, "weight_decay": 1e-3}]
)
@pytest.mark.parametrize("strategy", [fedfa.PortUrgent(concurrency=6, buffer=2), fedfa.FedProx(concurrency=4)])
def test_records_are_those_of_one_process(
    local: dict[str, Any], strategy: fedfa.Strategy, tmp_path: Path, teams: list[team.Team]
) -> None:
    """Port calls clients back, FedProx pulls them towards the published model."""
    alone = simulated(tmp_path / "alone", 1, strategy, make_task(**local))
    assert not teams
    spread = simulated(tmp_path / "spread", 3, strategy, make_task(**local))
    assert [len(one.processes) for one in teams] == [3]
    assert len(records(tmp_path / "alone")) >= 2
    assert records(tmp_path / "alone") == records(tmp_path / "spread")
    np.testing.assert_array_equal(alone.model, spread.model)
    assert alone.manifest["fingerprint"] == spread.manifest["fingerprint"]
    assert spread.manifest["executor"] == "inline"


def test_a_run_continues_with_another_number_of_workers(tmp_path: Path) -> None:
    for workers in (3, 1, 2):
        with pytest.raises(KeyboardInterrupt):
            simulated(tmp_path / "parts", workers, interrupted=StopAfter(1), resume=True, stop={"updates": 10**6})
    stop = {"updates": len(read_run(tmp_path / "parts", or_unfinished=True).accepted) + 30}
    simulated(tmp_path / "parts", 2, resume=True, stop=stop)
    simulated(tmp_path / "again", 1, stop=stop)
    assert records(tmp_path / "parts") == records(tmp_path / "again")


@pytest.mark.parametrize("kills", [1, inline.MOST_LOSSES])
def test_a_killed_process_changes_nothing(kills: int, tmp_path: Path, teams: list[team.Team]) -> None:
    """Its clients are trained again; after too many losses, in the run's own process."""

    class Killing:
        """Kills a process of each of the first teams, as soon as it is there."""

        def __init__(self) -> None:
            self.killed: list[team.Team] = []

        def __call__(self) -> bool:
            for one in teams:
                if one not in self.killed and len(self.killed) < kills:
                    os.kill(one.processes[0].pid or 0, signal.SIGKILL)
                    self.killed.append(one)
            return False

    task, long = make_task(epochs=40), {"updates": 60}
    simulated(tmp_path / "alone", 1, task=task, stop=long)
    killing = Killing()
    simulated(tmp_path / "killed", 2, task=task, stop=long, interrupted=killing)
    assert len(killing.killed) == kills
    assert len(teams) == min(kills + 1, inline.MOST_LOSSES)
    assert records(tmp_path / "alone") == records(tmp_path / "killed")
    assert not any(process.is_alive() for one in teams for process in one.processes)


def test_a_failing_client_is_reported_as_in_one_process(tmp_path: Path) -> None:
    runs = []
    for workers in (1, 2):
        task = make_task()
        task.targets[:20] = 7  # the first client's labels fit no class
        runs.append(simulated(tmp_path / str(workers), workers, task=task))
    assert "Target 7 is out of bounds" in "".join(runs[0].updates["outcome"].to_list())
    assert records(tmp_path / "1") == records(tmp_path / "2")


def test_discarded_work_is_not_mistaken_for_new_work() -> None:
    task = make_task()
    executor = Inline(task, 0, workers=2)
    base = task.initial(0).vector
    try:
        for client in range(6):
            executor.submit(WorkOrder(client, 0, client, 0, base, 3, 0.0, float(client)))
        executor.result(0)
        for client in range(1, 6):
            executor.discard(client)
            executor.submit(WorkOrder(client, 0, client, 0, base, 1, 0.0, 0.5))
        assert [executor.result(client).num_steps for client in range(1, 6)] == [2.0, 2.0, 2.0, 2.0, 2.0]
    finally:
        executor.close()


def test_work_is_handed_out_while_the_engine_evaluates(teams: list[team.Team]) -> None:
    task = make_task()
    executor = Inline(task, 0, workers=2)
    try:
        for client in range(10):
            executor.submit(WorkOrder(client, 0, client, 0, task.initial(0).vector, 3, 0.0, float(client)))
        executor.result(0)
        patience = time.monotonic() + 60
        while len(teams[0]._finished) < 9 and time.monotonic() < patience:
            task.evaluator(0)(task.initial(0).vector, executor.meanwhile)
        assert sorted(teams[0]._finished) == list(range(1, 10))
    finally:
        executor.close()


@pytest.mark.parametrize("started", [0, 1])
def test_a_machine_without_room_for_more_processes(
    started: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, logged: Any, teams: list[team.Team]
) -> None:
    fork, forks = os.fork, list[int]()

    def refused_after() -> int:
        forks.append(1)
        if len(forks) > started:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return fork()

    monkeypatch.setattr("os.fork", refused_after)
    run = simulated(tmp_path / "run", 3)
    assert len(run.accepted) == 50
    assert [len(one.processes) for one in teams] == [1] * started
    assert ["no other can be started" in line for line in logged()] == [True] * (1 - started)


def test_auto_starts_a_team_only_where_clients_are_worth_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, teams: list[team.Team]
) -> None:
    have_cores(monkeypatch, 2)
    monkeypatch.setattr(inline, "CLIENT_SECONDS", 60.0)
    simulated(tmp_path / "short clients", "auto")
    monkeypatch.setattr(inline, "CLIENT_SECONDS", 0.0)
    monkeypatch.setattr(inline, "ALONE_SECONDS", 60.0)
    simulated(tmp_path / "short run", "auto")
    monkeypatch.setattr(inline, "ALONE_SECONDS", 0.02)
    have_cores(monkeypatch, 1)
    simulated(tmp_path / "one core", "auto")
    assert not teams
    have_cores(monkeypatch, 2)
    simulated(tmp_path / "two", "auto")
    assert [len(one.processes) for one in teams] == [2]
    assert records(tmp_path / "two") == records(tmp_path / "one core")


def test_a_team_grows_with_the_share_of_the_cores(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, teams: list[team.Team]
) -> None:
    share = [2]
    have_cores(monkeypatch, 4)
    monkeypatch.setattr(inline, "ALONE_SECONDS", 0.0)
    monkeypatch.setattr(inline, "CLIENT_SECONDS", 0.0)

    def more() -> bool:
        share[0] = 3
        return False

    steps = simulation(
        fedfa.FedFaParam(concurrency=5, window=3), make_task(epochs=40), stop={"updates": 50}, out=tmp_path,
        engine=EngineSettings(executor="inline"), interrupted=more, cores=lambda: share[0],
    )  # fmt: skip
    with undisturbed(1, CPU):
        alone(steps)
    assert [len(one.processes) for one in teams] == [3]


def test_why_there_is_no_team_is_said_once(logged: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multiprocessing.current_process", lambda: type("Process", (), {"daemon": True}))
    for workers in (lambda: 2, 2, 2):
        Inline(make_task(), 0, workers=workers)
    monkeypatch.undo()
    why = "a daemonic process may not start others"
    assert logged() == [f"engine.workers = 2: one process trains all clients ({why})."]
    torch.set_num_threads(2)
    assert "threads" in team.why_alone()
    torch.set_num_threads(1)
    monkeypatch.setattr("sys.platform", "darwin")
    assert "Linux" in team.why_alone()


def test_mistakes_in_the_number_are_one_line() -> None:
    for wrong in (0, -1, 20_000, "many", 1.5, True):
        with pytest.raises(ConfigError, match=r"^engine.workers = .*: must be (auto, or between 1|a whole number)"):
            fedfa.simulate("fedfa-param", make_task(), engine={"workers": wrong})


ENDLESS = """
import fedfa, torch
from tests.executors.test_team import make_task
from fedfa.executors import inline, team

class Told(team.Team):
    def __init__(self, *settings):
        super().__init__(*settings)
        print(*(process.pid for process in self.processes), flush=True)

inline.Team = Told
torch.set_num_threads(2)
torch.rand(2000, 2000) @ torch.rand(2000, 2000)  # other threads were used before the fork
strategy = fedfa.FedFaParam(concurrency=5, window=3)
fedfa.simulate(strategy, make_task(epochs=400), stop={"updates": 10**6}, engine={"executor": "inline", "workers": 3})
"""


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGINT])
def test_no_process_outlives_the_run(by: signal.Signals) -> None:
    run = subprocess.Popen([sys.executable, "-c", ENDLESS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert run.stdout
    assert run.stderr
    pids = [int(word) for word in run.stdout.readline().split()]
    assert len(pids) == 3
    assert all(map(alive, pids))
    run.send_signal(by)
    said = run.communicate(timeout=60)[1]
    assert said.count("Traceback") == (by == signal.SIGINT)
    patience = time.monotonic() + 30
    while any(map(alive, pids)) and time.monotonic() < patience:
        time.sleep(0.05)
    assert not any(map(alive, pids))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")")[-1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
