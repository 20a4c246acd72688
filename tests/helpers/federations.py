"""Runs on real Flower daemons: what is known of them while they go.

Flower needs about a minute to notice a killed SuperNode or client process: the tests of these, of messages that
outlive their time, of a restarted SuperLink and of TLS run only with FEDFA_SLOW_TESTS=1.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedfa.deployment import journal
from fedfa.deployment.flower.federation import Federation

APPS = Path(__file__).parents[1] / "flower_apps"
EXAMPLE = Path(__file__).parents[2] / "examples" / "flower-digits"

slow = pytest.mark.skipif("FEDFA_SLOW_TESTS" not in os.environ, reason="takes minutes; set FEDFA_SLOW_TESTS=1")


def wait_until(condition: Callable[[], bool], seconds: float, federation: Federation, what: str) -> None:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            logs = {path.name: path.read_text()[-2000:] for path in federation.folder.glob("*.log")}
            raise AssertionError(f"{what}: not within {seconds} s\n" + "\n".join(f"{k}:\n{v}" for k, v in logs.items()))
        time.sleep(0.2)


def entries(folder: Path) -> list[dict]:
    """Headers in the journal of a run under way."""
    try:
        return [entry.header for entry in journal.read(folder / journal.FOLDER)]
    except FileNotFoundError:
        return []


def count(folder: Path, kind: str) -> int:
    return sum(entry["kind"] == kind for entry in entries(folder))


def losses(folder: Path) -> list[str]:
    """Why answers did not come or could not be used, in a run under way."""
    return [entry["outcome"] for entry in entries(folder) if entry["kind"] == "lost"]


def connected(federation: Federation) -> int:
    """How many nodes have reported to the SuperLink so far."""
    return (federation.folder / "superlink.log").read_text().count("Activated node_id")


def finished(folder: Path) -> Callable[[], bool]:
    return (folder / "manifest.json").exists


def model_of(folder: Path) -> np.ndarray:
    """The final model of a run of the tiny app, as its strategy held it."""
    with np.load(folder / "model.npz") as file:
        return np.concatenate([file["weight"].ravel(), file["bias"]])
