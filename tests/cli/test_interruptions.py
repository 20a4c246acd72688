"""Real processes, killed and interrupted."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from fedfa.cli import main
from tests.helpers.commands import FEDFA, QUICK, call, last_json

LONG = ["run", *QUICK, "--set", "engine.checkpoint_seconds=0.1", "--json"]


def start(folder: Path, *words: str) -> "subprocess.Popen[str]":
    words = (*LONG, "--out", str(folder), *words)
    return subprocess.Popen([*FEDFA, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(path: Path, process: "subprocess.Popen[str]", newer_than: int = 0) -> None:
    """Wait until the file was written after this time."""
    deadline = time.monotonic() + 120
    while not (path.exists() and path.stat().st_mtime_ns > newer_than):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(("executor", "updates"), [("inline", 400), ("batched", 1200)])
def test_kill_9_and_ctrl_c_lose_nothing(executor: str, updates: int, tmp_path: Path) -> None:
    """Killed with SIGKILL, then interrupted with Ctrl-C, then finished: the same bytes as an undisturbed run."""
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
    """Killed with SIGKILL, then interrupted with Ctrl-C, then finished."""
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


def test_ctrl_c_before_a_run_starts_is_reported(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def pressed(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedfa.cli.starting.print_table", pressed)
    monkeypatch.setattr("sys.argv", ["fedfa", "strategies"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "fedfa: interrupted\n"
