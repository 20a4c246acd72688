"""Compiled steps of a stack: the same beside anybody, refused where they are wrong, the same in a resumed run."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fedfa
from fedfa import Stop
from fedfa.errors import ConfigError
from fedfa.executors import stack
from fedfa.executors.batched import Batched
from fedfa.executors.compiled import compile_times
from fedfa.executors.stack import Stacks
from fedfa.simulation.settings import EngineSettings
from tests.helpers.simulations import quick
from tests.helpers.training import order, own_task

COMPILER = pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="needs a C++ compiler")


def linear(sizes: tuple[int, ...] = (10, 17, 5, 10), **settings: Any) -> fedfa.Task:
    return own_task(lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 4)), sizes, **settings)


def as_captured(step: Any, *examples: Any) -> Any:
    """In place of the compiler: steps in plain PyTorch."""

    def run(times: int, *inputs: Any) -> None:
        for _ in range(times):
            step(*inputs)

    return run


@COMPILER
def test_compiled_clients_are_those_of_captured_steps_beside_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a stack of its own or shared with a task that has more data; a client with bad data fails alone."""
    monkeypatch.setattr(stack, "WIDTHS", (4,))
    first, second, captured = linear(), linear((3, 17, 17, 17), lr=0.2), Batched(linear(), 0)
    stacks = Stacks()
    for task in (first, second):
        stacks.share(task)
    compiled, beside = Batched(first, 0, compile=True), Batched(second, 0, compile=True)
    assert (captured.name, compiled.name, len(stacks.all)) == ("batched", "batched, compiled", 1)
    second.targets[:3] = 9  # of four classes
    stacks.all[0]._gather(stacks.all[0].members)
    for executor in (captured, compiled):
        for client in (2, 0, 1):
            executor.submit(order(first, client))
    for client in (0, 1):
        beside.submit(order(second, client))
    shared = [compiled.result(client) for client in range(3)]
    assert beside.result(0).error == "IndexError: Target 9 is out of bounds."
    assert beside.result(1).params is not None
    for client, ours in enumerate(shared):
        theirs = captured.result(client)
        compiled.submit(order(first, client))
        assert compiled.result(client).params.tobytes() == ours.params.tobytes()
        torch.testing.assert_close(torch.from_numpy(ours.params), torch.from_numpy(theirs.params))


def test_without_a_compiler_steps_are_captured_and_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, logged: Any
) -> None:
    def missing(*_: Any) -> None:
        raise RuntimeError("no working C++ compiler\nlooked everywhere")

    monkeypatch.setattr("fedfa.executors.compiled.compile_graph", missing)
    task = linear()
    assert Batched(task, 0, compile=True).name == "batched"
    assert Batched(task, 0, compile=True).name == "batched"
    lines = [line for line in logged() if "compiled" in line]
    assert lines == ["Steps are not compiled, only captured: RuntimeError: no working C++ compiler"]


def test_wrong_compiled_steps_are_refused(monkeypatch: pytest.MonkeyPatch, logged: Any) -> None:
    monkeypatch.setattr(stack, "compile_times", lambda *_: lambda times, *inputs: None)
    assert Batched(linear(), 0, compile=True).name == "batched"
    assert "Steps are not compiled, only captured: a batched step differs from a plain one by 100.0%" in logged()[0]


def test_stacks_are_shared_in_the_same_mode_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack, "compile_times", as_captured)
    task = linear()
    names = [Batched(task, 0, compile=compile).name for compile in (False, True, False, True)]
    assert names == ["batched", "batched, compiled"] * 2
    assert [one.compiled for one in Stacks.of(task).all] == [False, True]


def test_an_error_in_a_compiled_step_is_one_of_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("index out of bounds")

    monkeypatch.setattr("fedfa.executors.compiled.compile_graph", lambda *_: fails)
    with pytest.raises(stack.CannotCapture, match="RuntimeError: index out of bounds"):
        compile_times(fails)(1)


@pytest.mark.parametrize(("began", "later"), [(True, "auto"), (False, "auto"), (False, True)])
def test_a_run_goes_on_with_the_steps_it_began_with(
    began: bool, later: bool | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stack, "compile_times", as_captured)
    name, stop = "batched, compiled" if began else "batched", Stop(updates=30)
    monkeypatch.setattr("fedfa.simulation.settings.COMPILED_FROM", 1e12 if began else 0)  # now auto would not
    settings: dict[str, Any] = {"out": tmp_path, "executor": "batched"}
    task = linear()
    with pytest.raises(KeyboardInterrupt):
        quick("fedavg:concurrency=2", task, compile=began, stop=Stop(seconds=1e6), interrupted=lambda: True, **settings)
    for executor in ("auto", "batched"):  # continued, and then finished
        again = settings | {"executor": executor, "compile": later, "stop": stop, "resume": True}
        run = quick("fedavg:concurrency=2", task, **again)
        assert (run.manifest["executor"], run.manifest["executor_because"]) == (name, "the run began with it")
    if began:
        with pytest.raises(fedfa.RecordError, match="finished run with other settings"):
            quick("fedavg:concurrency=2", task, compile=False, stop=stop, resume=True, **settings)


def test_auto_compiles_runs_that_repay_it(monkeypatch: pytest.MonkeyPatch) -> None:
    task, decided = linear(), EngineSettings(executor="batched").decided
    assert decided(task, 0, 9, lambda: 9e6)[0].compile is False
    settings, why = decided(task, 0, 9, lambda: 12e6)
    assert (settings.compile, why) == (
        True, "chosen by the settings; some 12,000,000 local steps, which repay compiling them"
    )  # fmt: skip
    for executor, compile in (("batched", False), ("batched", True), ("inline", "auto")):
        settings, why = EngineSettings(executor=executor, compile=compile).decided(task, 0, 9, lambda: 12e6)
        assert (settings.compile, why) == (compile, "chosen by the settings")


def test_wrong_settings_are_refused() -> None:
    assert [EngineSettings.of({"compile": value}).compile for value in ("auto", True, False)] == ["auto", True, False]
    with pytest.raises(ConfigError, match=r"engine\.compile = 'always': must be auto, true or false"):
        EngineSettings.of({"compile": "always"})
    with pytest.raises(ConfigError, match=r"engine\.compile = 1: must be true or false"):
        EngineSettings.of({"compile": 1})
