"""``fedfa`` as a user calls it, in a process of its own; or in this process, which is quicker where it only refuses."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedfa.cli import main

FEDFA = [sys.executable, "-m", "fedfa.cli"]
QUICK = ["--set", "data.clients=10", "--set", "strategy.concurrency=4", "--set", "model.hidden=8"]


def call(*words: str, cwd: Path, ok: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*FEDFA, *words], cwd=cwd, capture_output=True, text=True, timeout=180)
    assert done.returncode == ok, done.stdout + done.stderr
    return done


class CommandLine:
    """``fedfa`` in this process and a folder."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys
        monkeypatch.chdir(folder)

    def refusal(self, *words: str) -> str:
        """Stderr of a call that must end with exit status 2."""
        self.monkeypatch.setattr("sys.argv", ["fedfa", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        return self.capsys.readouterr().err


def last_json(done: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(done.stdout.strip().splitlines()[-1])
