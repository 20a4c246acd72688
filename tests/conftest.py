"""Fixtures that several files share."""

import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fedfa
from fedfa.learning.data.settings import DataSettings
from fedfa.learning.data_task import data_task
from fedfa.learning.models.settings import ModelSettings
from fedfa.learning.probe import say_once
from fedfa.runs.run import Run
from fedfa.watch import Watch
from tests.helpers.commands import CommandLine
from tests.helpers.reports import CLIENTS, make_run
from tests.helpers.texts import save_weights
from tests.helpers.watched import serving, simulate


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Any:
    """What fedfa has logged so far, as a function; lines that it logs once per process are logged again."""
    say_once.cache_clear()
    caplog.set_level(logging.WARNING, "fedfa")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "fedfa"]


@pytest.fixture(scope="module")
def task() -> fedfa.Task:
    """A small task: 12 clients of unequal size."""
    data = DataSettings(clients=12, partition="dirichlet-by-class", alpha=1.0)
    return data_task(data, ModelSettings(hidden=8), fedfa.LocalTraining(epochs=2), seed=0)


@pytest.fixture
def command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """``fedfa`` in this process, in a temporary folder."""
    return CommandLine(tmp_path, monkeypatch, capsys)


@pytest.fixture
def federation(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Flower daemons with so many SuperNodes; no process is left of them."""
    from fedfa.deployment.flower.federation import Federation  # not everyone has Flower

    (tmp_path / "federation").mkdir()
    with Federation(request.param, folder=tmp_path / "federation") as started:
        yield started
    assert started.processes() == []


@pytest.fixture(scope="module")
def comparison() -> list[Run]:
    return [
        make_run(label, (0.3, 0.5, 0.7, 0.8), seed=seed, synchronous=label == "fedavg", clients=CLIENTS)
        for seed in (1, 2)
        for label in ("fedavg", "fedfa-param")
    ]


@pytest.fixture(scope="module")
def odd() -> list[Run]:
    """What a report must stand: missed targets, refused rows, a run without updates, HTML in a name."""
    return [
        make_run("fedavg", (0.3, 0.7), seed=1, synchronous=True, refused=1),
        make_run("fedavg", (0.3, 0.4), seed=2, synchronous=True),
        make_run("only </script><b>$x_1$ & co", (), seed=1),
        make_run("fedasync", (0.2, 0.8, 0.8), seed=1, refused=2),
    ]


@pytest.fixture(scope="module")
def watched_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four runs: finished, interrupted, killed, and one of which only a checkpoint is left."""
    folder = tmp_path_factory.mktemp("runs")
    simulate(folder / "finished")
    with pytest.raises(KeyboardInterrupt):
        simulate(folder / "below" / "interrupted", interrupted=lambda: True, stop=fedfa.Stop(updates=10**6))
    shutil.copytree(folder / "below" / "interrupted", folder / "killed")
    state = json.loads((folder / "killed" / "live.json").read_text())
    state |= {"state": "running", "written": state["written"] - 600}
    state["about"]["label"] = 'a "label"\n<b>'
    (folder / "killed" / "live.json").write_text(json.dumps(state))
    (folder / "saved").mkdir()
    (folder / "saved" / "checkpoint.npz").touch()
    return folder


@pytest.fixture
def watch(watched_folder: Path) -> Iterator[Watch]:
    with serving(watched_folder) as watch:
        yield watch


@pytest.fixture
def chromium() -> Iterator[Any]:
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("no chromium is installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    quiet = ("--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run")
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu", *quiet])
        yield browser
        browser.close()


@pytest.fixture
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDFA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def weights(tmp_path: Path, cache_folder: Path) -> Path:
    return save_weights(tmp_path / "tiny-bert")
