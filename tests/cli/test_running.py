"""The command line as a user meets it: real processes, real interruptions."""

import inspect
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, get_args

import pytest

import fedfa
import fedfa.errors
from fedfa.cli import elsewhere, main
from fedfa.cli.console import free_folder
from fedfa.deployment.app import check_app, write_app
from fedfa.runs.store import find_run
from fedfa.strategies.registry import STRATEGIES
from fedfa.strategies.staleness import Staleness

FEDFA = [sys.executable, "-m", "fedfa.cli"]
QUICK = ["--set", "data.clients=10", "--set", "strategy.concurrency=4", "--set", "model.hidden=8"]


def call(*words: str, cwd: Path, ok: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*FEDFA, *words], cwd=cwd, capture_output=True, text=True, timeout=180)
    assert done.returncode == ok, done.stdout + done.stderr
    return done


def last_json(done: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(done.stdout.strip().splitlines()[-1])


def test_help_is_quick_and_imports_no_torch(tmp_path: Path) -> None:
    code = "import sys, fedfa.cli; sys.argv[1:] = ['--help']; fedfa.cli.main(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "run " in done.stdout
    assert "paper " in done.stdout
    assert done.stdout.strip().endswith("False")
    for command in ("run", "compare", "report", "watch", "replay", "theory", "bench", "strategies", "init"):
        assert "--help" in call(command, "--help", cwd=tmp_path).stdout
    assert "..." not in call("--help", cwd=tmp_path).stdout.partition("Commands:")[2]
    assert (
        "FOLDER  A run's folder, or one that holds several runs.  [required]"
        in call("report", "--help", cwd=tmp_path).stdout
    )
    assert call("--version", cwd=tmp_path).stdout == f"fedfa {fedfa.__version__}\n"


def test_a_command_from_elsewhere_is_passed_on_whole(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A package names a function under ``fedfa.commands``; its options, ``--help`` among them, are its own."""
    package = tmp_path / "brought-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: brought\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[fedfa.commands]\npaper = brought:paper\n")
    (tmp_path / "brought.py").write_text("def paper(name: str, loud: bool = False) -> None:\n    print(name, loud)\n")
    monkeypatch.setattr(elsewhere, "entry_points", partial(found_in, tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    for words, said in ((["table1", "--loud"], "table1 True\n"), (["--help"], "Usage: fedfa paper [OPTIONS] NAME")):
        monkeypatch.setattr("sys.argv", ["fedfa", "paper", *words])
        main()
        assert said in capsys.readouterr().out


def found_in(folder: Path, *, group: str, name: str) -> Any:
    """The entry points of the packages in a folder alone."""
    points = (point for one in distributions(path=[str(folder)]) for point in one.entry_points)
    return [point for point in points if (point.group, point.name) == (group, name)]


def test_a_command_that_is_not_installed_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(elsewhere, "entry_points", partial(found_in, tmp_path))
    monkeypatch.setattr("sys.argv", ["fedfa", "paper", "table1", "--scale", "full"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert capsys.readouterr().err == (
        "fedfa: paper: not installed; it comes with the reproduction of the paper; from a checkout: "
        "pip install ./reproduction\n"
    )


def test_run_report_and_json(tmp_path: Path) -> None:
    done = call("run", "--json", "--set", "stop.updates=40", *QUICK, cwd=tmp_path)
    summary = last_json(done)
    assert summary["updates"] == 40
    assert summary["target"] == 0.9
    folder = tmp_path / "runs" / "digits"
    assert summary["folder"] == "runs/digits"
    names = {path.name for path in folder.iterdir()}
    files = {"config.toml", "updates.parquet", "evaluations.parquet", "clients.parquet", "manifest.json", "report.html"}
    assert files <= names
    page = (folder / "report.html").read_text()
    assert "fedfa run --json" in page
    assert json.loads((folder / "manifest.json").read_text())["command"].startswith("fedfa run --json")
    (folder / "report.html").unlink()
    again = last_json(call("report", "runs/digits", "--json", cwd=tmp_path))
    assert (tmp_path / again["report"]).is_file()
    second = last_json(call("run", "--json", "--set", "stop.updates=5", *QUICK, cwd=tmp_path))
    assert second["folder"] == "runs/digits-2"
    third = call("run", "--out", "runs/digits", *QUICK, cwd=tmp_path, ok=1)
    assert third.stderr == "fedfa: runs/digits: holds a finished run; choose another folder\n"


def test_theory_of_a_run(tmp_path: Path) -> None:
    words = ["--set", "stop.updates=60", "--set", "strategy.name=fedfa-delta", "--set", "engine.executor=inline"]
    call("run", *words, *QUICK, "--set", "strategy.name=fedfa-agree", "--out", "adapted", cwd=tmp_path)
    adapted = call("theory", "adapted", "--models", "2", "--json", cwd=tmp_path)
    longest = find_run(tmp_path / "adapted").evaluations["step"].drop_nans().max()
    assert last_json(adapted)["server_lr"] == longest > 1
    assert "Assumed: steps as long as clients agree, all taken as the longest." in adapted.stdout
    call("run", *words, *QUICK, "--set", "strategy.name=fedasync", "--out", "mixed", cwd=tmp_path)
    refused = call("theory", "mixed", cwd=tmp_path, ok=2).stderr
    assert "fedasync: Theorem 1 does not speak about it; give a run of fedfa-param, fedfa-delta, fedfa-prox" in refused
    call("run", *words, *QUICK, cwd=tmp_path)
    done = call("theory", "runs/digits", "--models", "4", "--json", cwd=tmp_path)
    found = last_json(done)
    assert len(found["models"]) == 4
    assert found["bound"]["total"] >= found["mean_squared_gradient"] > 0
    assert found["server_lr"] == 0.25
    assert found["gap"] == pytest.approx(2.3, abs=0.2)
    assert found["local_variance"] > 0
    assert "condition" in done.stdout
    assert "One generation of clients (M_c = 4)" in done.stdout
    assert done.stderr == ""
    wrong = call("theory", "nowhere", cwd=tmp_path, ok=2)
    assert wrong.stderr == "fedfa: nowhere: no such folder; give one that 'fedfa run' wrote\n"


def test_compare_prints_and_continues(tmp_path: Path) -> None:
    hinge = 'fedbuff:buffer=2:staleness={kind="hinge", a=2.0}'
    words = ["compare", "--strategies", f"fedavg,fedfa-param,{hinge}", "--seeds", "0,1", "--target", "0.5"]
    words += ["--set", "stop.updates=60", "--out", "both", "--json", *QUICK]
    first = last_json(call(*words, cwd=tmp_path))
    assert [row["label"] for row in first["strategies"]] == ["fedavg", "fedfa-param", hinge]
    assert [(run["label"], run["seed"]) for run in first["runs"]][:2] == [("fedavg", 0), ("fedavg", 1)]
    assert all(row["seeds"] == 2 for row in first["strategies"])
    taken = call(*words, cwd=tmp_path, ok=2)
    assert "holds runs already; add --resume" in taken.stderr
    one = tmp_path / "both" / "fedfa-param-seed1"
    before = (one / "updates.parquet").read_bytes()
    (one / "manifest.json").unlink()
    again = last_json(call(*words, "--resume", cwd=tmp_path))
    assert (one / "updates.parquet").read_bytes() == before
    for row in (*first["runs"], *again["runs"]):
        del row["wall_seconds"]
    assert again["runs"] == first["runs"]


def test_init_writes_once_and_runs(tmp_path: Path) -> None:
    call("init", cwd=tmp_path)
    assert "exists already" in call("init", cwd=tmp_path, ok=2).stderr
    done = call("run", "experiment.toml", "--json", "--set", "stop.updates=10", cwd=tmp_path)
    assert last_json(done)["strategy"]["name"] == "fedfa-param"
    assert "cannot be written" in call("init", "no/such/place.toml", cwd=tmp_path, ok=2).stderr


def test_strategies_lists_all_with_paper_and_parameters(tmp_path: Path) -> None:
    done = call("strategies", "--json", cwd=tmp_path)
    entries = {entry["name"]: entry for entry in last_json(done)}
    assert set(entries) == set(STRATEGIES)
    for entry in entries.values():
        assert entry["name"] in done.stdout
        assert entry["paper"]
        assert all(parameter["meaning"] for parameter in entry["parameters"]), entry["name"]
    assert "window" in {parameter["name"] for parameter in entries["fedfa-param"]["parameters"]}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "--set", "strategy.windw=3"], "unknown key; did you mean 'window'?"),
        (["run", "no.toml"], "no.toml: no such file"),
        (["run", "--resume"], "--resume: there is no run in runs/digits"),
        (["run", "--resume", "--out", "nowhere"], "--resume: there is no run in nowhere"),
        (["compare", "--seeds", "0,x"], "--seeds 0,x: must be whole numbers"),
        (["compare", "--jobs", "0"], "--jobs 0: must be at least 1"),
        (["compare", "--target", "7"], "--target 7.0: must be above 0 and at most 1"),
        (["compare", "--strategies", "fedavg,fedbuf"], "did you mean 'fedbuff'?"),
        (["compare", "--strategies", ""], "strategies = '': must be one of"),
        (["compare", "--strategies", "fedbuff:buffer"], "'buffer' must look like KEY=VALUE"),
        (
            ["compare", "--set", "strategy.buffer=3"],
            "For one strategy of several, give it there: --strategies NAME:KEY",
        ),
        (["run", "--set", "strategy.name=mine.py"], "a class of your own is named file.py:Class"),
    ],
)
def test_wrong_input_is_one_line_exit_2_and_nothing_written(words: list[str], message: str, tmp_path: Path) -> None:
    done = call(*words, cwd=tmp_path, ok=2)
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_report_of_nothing_is_one_line(tmp_path: Path) -> None:
    assert "no such folder" in call("report", "nowhere", cwd=tmp_path, ok=2).stderr
    (tmp_path / "empty").mkdir()
    assert "empty: holds no run; give a folder" in call("report", "empty", cwd=tmp_path, ok=1).stderr
    (tmp_path / "empty" / "checkpoint.npz").touch()
    assert "go on with the command that began it, and --resume" in call("report", "empty", cwd=tmp_path, ok=1).stderr
    (tmp_path / "empty" / "manifest.json").write_text("{}")
    told = call("report", "empty", cwd=tmp_path, ok=1).stderr
    assert told.startswith("fedfa: empty: cannot be read (its manifest.json is not that of a run)")


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for words in (["run"], ["compare", "--strategies", "fedavg", "--seeds", "0"]):
        told = call(*words, *QUICK, "--out", "file/x", cwd=tmp_path, ok=1).stderr
        assert told.startswith("fedfa: file")
        assert told.endswith("Not a directory; choose another place, or make room there\n")
        assert told.count("\n") == 1


def test_resume_finds_the_run_that_was_not_finished(tmp_path: Path) -> None:
    """A finished one has its report; where all have, it is the last."""
    first, second, third = (tmp_path / name for name in ("digits", "digits-2", "digits-3"))
    for folder in (first, second):
        folder.mkdir()
    (second / "report.html").touch()
    assert free_folder(first, resume=True) == first
    assert free_folder(first, resume=False) == third
    (first / "report.html").touch()
    assert free_folder(first, resume=True) == second


def test_deploy_try_checks_the_run_config_before_any_daemon_starts(tmp_path: Path) -> None:
    pytest.importorskip("flwr")
    app = tmp_path / "app"
    write_app(app, "digits")
    check_app(app, {"strategy": "mine.py:Own:rate=2.0", "seed": 3})
    for key, value, message in [
        ("strateg", "fedavg", "--set strateg: unknown key of the app's run config; did you mean 'strategy'?"),
        ("keep_updates", True, "did you mean 'keep-updates'?"),
        ("strategy", "fedav", "did you mean 'fedavg'?"),
        ("evaluate-every", "often", "must be a whole number"),
    ]:
        with pytest.raises(fedfa.ConfigError) as caught:
            check_app(app, {key: value})
        assert message in str(caught.value)
    done = call("deploy", "try", "app", "--set", "strategy=port-urgent", cwd=tmp_path, ok=2)
    assert "use port-non-urgent, which waits for them" in done.stderr
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)


LONG = ["run", *QUICK, "--set", "engine.checkpoint_seconds=0.1", "--json"]


def start(folder: Path, *words: str) -> "subprocess.Popen[str]":
    words = (*LONG, "--out", str(folder), *words)
    return subprocess.Popen([*FEDFA, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(path: Path, process: "subprocess.Popen[str]", newer_than: int = 0) -> None:
    """For a file, written after this time."""
    deadline = time.monotonic() + 120
    while not (path.exists() and path.stat().st_mtime_ns > newer_than):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(("executor", "updates"), [("inline", 400), ("batched", 1200)])
def test_kill_9_and_ctrl_c_lose_nothing(executor: str, updates: int, tmp_path: Path) -> None:
    """Killed outright, then interrupted politely, then finished: the same bytes as a run left alone."""
    choice = ["--set", f"engine.executor={executor}", "--set", f"stop.updates={updates}"]
    whole = start(tmp_path / "whole", *choice)
    assert whole.wait(timeout=180) == 0, whole.communicate()
    whole.communicate()
    folder = tmp_path / "parts"

    killed = start(folder, *choice)
    wait_for(folder / "checkpoint.npz", killed)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert not (folder / "manifest.json").exists()
    again = start(folder, *choice)
    assert "holds an unfinished run; continue it with resume" in again.communicate(timeout=60)[1]

    stamp = (folder / "checkpoint.npz").stat().st_mtime_ns
    paused = start(folder, "--resume", *choice)
    wait_for(folder / "checkpoint.npz", paused, newer_than=stamp)
    paused.send_signal(signal.SIGINT)
    _, message = paused.communicate(timeout=60)
    assert paused.returncode == 130
    assert "Continue with: fedfa run --out" in message
    assert "--resume" in message
    assert not (folder / "manifest.json").exists()
    assert f"See it so far: fedfa report {folder}" in message
    assert "(unfinished)" in call("report", str(folder), cwd=tmp_path).stdout

    last = start(folder, "--resume", *choice)
    out, err = last.communicate(timeout=180)
    assert last.returncode == 0, err
    assert json.loads(out.strip().splitlines()[-1])["updates"] == updates
    for name in ("updates.parquet", "evaluations.parquet", "clients.parquet", "config.toml"):
        assert (folder / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not (folder / "checkpoint.npz").exists()


def assert_gone(group: int) -> None:
    """No process of the group is left, within a few seconds."""
    for _ in range(100):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    raise AssertionError(f"process group {group} is still there")


def test_an_interrupted_comparison_is_resumable_and_leaves_no_process(tmp_path: Path) -> None:
    """Killed outright, then interrupted politely, then finished."""
    words = [*QUICK, "--strategies", "fedavg,fedfa-param", "--seeds", "0", "--out", "both"]
    words += ["--set", "engine.checkpoint_seconds=0.2", "--set"]
    checkpoint, stamp = tmp_path / "both" / "fedfa-param-seed0" / "checkpoint.npz", 0
    for number, (how, status) in enumerate([(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)]):
        process = subprocess.Popen(
            [*FEDFA, "compare", *words, "stop.updates=100000", *["--resume"] * number], cwd=tmp_path,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        wait_for(checkpoint, process, newer_than=stamp)
        time.sleep(1.0)
        if how == signal.SIGKILL:
            process.kill()
        else:
            os.killpg(process.pid, how)
        _, message = process.communicate(timeout=60)
        assert process.returncode == status, message
        assert_gone(process.pid)
        stamp = checkpoint.stat().st_mtime_ns
    assert "Continue with: fedfa compare --out both --resume --strategies fedavg,fedfa-param --seeds 0" in message
    assert list((tmp_path / "both").rglob("checkpoint.npz"))
    done = call("compare", *words, "stop.updates=1500", "--resume", "--json", cwd=tmp_path)
    assert all(run["updates"] >= 1500 for run in last_json(done)["runs"])


def test_ctrl_c_before_anything_began_is_told(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from fedfa import cli

    def pressed(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedfa.cli.starting.print_table", pressed)
    monkeypatch.setattr("sys.argv", ["fedfa", "strategies"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "fedfa: interrupted\n"


def test_public_names_are_there_and_nothing_else() -> None:
    """What is exported is what the documentation may name: classes and functions that are defined in the package."""
    listed = set(fedfa.__all__) - {"__version__"}
    assert listed <= set(dir(fedfa))
    for name in listed:
        found = getattr(fedfa, name)
        assert found.__name__ == name
        assert found.__module__.startswith("fedfa.")
        assert inspect.getdoc(found), f"{name} has no docstring"
    strategies = {cls.__name__ for cls in STRATEGIES.values()}
    staleness = {cls.__name__ for cls in get_args(Staleness) if inspect.isclass(cls)}
    errors = {name for name, cls in vars(fedfa.errors).items() if inspect.isclass(cls) and name in listed}
    assert strategies | staleness | errors <= listed
    with pytest.raises(AttributeError, match="module 'fedfa' has no attribute 'nothing'"):
        fedfa.nothing  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]
