"""``fedfa`` as a user calls it: in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

FEDFA = [sys.executable, "-m", "fedfa.cli"]
QUICK = ["--set", "data.clients=10", "--set", "strategy.concurrency=4", "--set", "model.hidden=8"]


def call(*words: str, cwd: Path, ok: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*FEDFA, *words], cwd=cwd, capture_output=True, text=True, timeout=180)
    assert done.returncode == ok, done.stdout + done.stderr
    return done


def last_json(done: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(done.stdout.strip().splitlines()[-1])
