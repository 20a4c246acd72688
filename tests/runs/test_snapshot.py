"""Snapshots: written, read, and damaged."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from fedfa.runs import live
from fedfa.runs.snapshot import Snapshot
from fedfa.watch.runs import Runs
from fedfa.watch.view import view
from tests.helpers.watched import Made, simulate


def test_a_snapshot_comes_back_from_its_file_as_it_was(tmp_path: Path) -> None:
    made, writer = Made(), live.Live(tmp_path)
    made.go_on(500)
    writer.tick(made.run, 1.5)
    text = (tmp_path / "live.json").read_text()
    assert "NaN" in text, "losses that are not finite are kept as they are"
    assert Snapshot.from_json(text).to_json() == text
    run = live.over(simulate(tmp_path / "run"))
    assert Snapshot.from_json(run.to_json()) == run


def damage(snapshot: dict[str, Any], what: str) -> Any:
    """The content of a live.json that fedfa did not write."""
    totals = snapshot["totals"]
    match what:
        case "half":
            return json.dumps(snapshot)[:1000]
        case "empty":
            return ""
        case "list":
            return [snapshot]
        case "foreign":
            return {"state": "running", "url": "http://localhost:8080"}
        case "one key short":
            return {key: value for key, value in snapshot.items() if key != "rates"}
        case "text for a number":
            return snapshot | {"seconds": "12"}
        case "flag for a number":
            return snapshot | {"version": True}
        case "unknown state":
            return snapshot | {"state": "sleeping"}
        case "table for a list":
            return snapshot | {"totals": totals | {"staleness": totals["staleness"] | {"counts": {}}}}
        case "ragged columns":
            return snapshot | {"totals": totals | {"recent": totals["recent"] | {"client": [1]}}}
        case _:
            return None


@pytest.mark.parametrize(
    "what",
    [
        "half", "empty", "list", "foreign", "one key short", "text for a number", "flag for a number", "unknown state",
        "table for a list", "ragged columns", "null",
    ],
)  # fmt: skip
def test_files_that_are_no_snapshots_are_ignored(tmp_path: Path, what: str) -> None:
    made = Made()
    made.go_on(20)
    live.Live(tmp_path / "good").tick(made.run, 1.5)
    shutil.copytree(tmp_path / "good", tmp_path / "bad")
    assert set(Runs(tmp_path).look()) == {"good", "bad"}
    file = tmp_path / "bad" / "live.json"
    damaged = damage(json.loads(file.read_text()), what)
    file.write_text(damaged if isinstance(damaged, str) else json.dumps(damaged))
    runs = Runs(tmp_path).look()
    assert set(runs) == {"good"}
    assert view("bad", runs, "")["run"] == "good"
