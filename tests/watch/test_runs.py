"""The runs below a folder."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedfa.watch import Watch
from fedfa.watch.metrics import metrics
from fedfa.watch.runs import Runs
from fedfa.watch.view import view
from tests.helpers.watched import TOKEN, ask, simulate


def test_the_page_counts_the_runs_that_are_not_listed(
    watch: Watch, watched_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown() -> dict[str, Any]:
        return json.loads(ask(watch, f"/{TOKEN}/data.json?run=")[2])

    assert shown()["left_out"] == ""
    monkeypatch.setattr("fedfa.watch.runs.MOST_RUNS", 3)
    assert len(shown()["runs"]) == 3
    assert shown()["left_out"] == "and 1 more; watch a folder further down to see them"


def test_a_folder_that_does_not_exist_yet(tmp_path: Path) -> None:
    runs = Runs(tmp_path / "later")
    assert runs.look() == {}
    assert view("", {}, "later")["standing"] == "waiting: there is no run in later yet"
    assert metrics({}) == "\n"
    simulate(tmp_path / "later")
    assert runs.look()["."].state == "finished"
    (tmp_path / "later" / "updates.parquet").write_bytes(b"damaged")
    damaged = Runs(tmp_path / "later").look()["."]
    assert (damaged.state, damaged.snapshot) == ("failed", None)
    assert "cannot be read" in damaged.ended
