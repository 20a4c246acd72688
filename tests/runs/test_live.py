"""``live.json``: what a run under way tells of itself."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import fedfa
from fedfa.runs import live
from fedfa.runs.snapshot import Snapshot
from fedfa.runs.store import read_run
from fedfa.watch.metrics import metrics
from fedfa.watch.runs import Runs, Seen
from fedfa.watch.view import view
from tests.helpers.watched import Made, simulate, written


def test_the_file_stays_small_and_its_sums_are_those_of_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "EVERY_SECONDS", 0.0)
    made, writer = Made(), live.Live(tmp_path / "run")
    for arrivals in (0, 3, 300, 5000, 1, 12_000):
        made.go_on(arrivals)
        writer.tick(made.run, 1.5)
        assert (tmp_path / "run" / "live.json").stat().st_size < 60_000
        snapshot = written(tmp_path / "run")
        totals = snapshot.totals
        updates, evaluations = made.record.update_frame(), made.record.evaluation_frame()
        accepted = updates.filter(updates["outcome"] == "accepted")
        assert totals.outcomes == {
            "accepted": len(accepted), "refused": len(updates) - len(accepted), "failed": 0, "lost": 0,
        }  # fmt: skip
        assert sum(totals.reasons.values()) == len(updates) - len(accepted)
        assert sum(totals.staleness.counts) == len(accepted)
        assert totals.staleness.sum == accepted["staleness"].sum()
        assert totals.staleness.max == (accepted["staleness"].max() or 0)
        assert sum(totals.arrivals_per_bin.versions) == sum(totals.arrivals_per_bin.accepted) == len(accepted)
        assert sum(totals.arrivals_per_bin.not_taken) == len(updates) - len(accepted)
        assert totals.bytes_down == 30 * len(updates)
        last = updates.tail(200)
        assert [arrival.dispatch for arrival in totals.recent] == last["dispatch"].to_list()
        assert [arrival.accepted for arrival in totals.recent] == (last["outcome"] == "accepted").to_list()
        if arrivals:
            first, latest = totals.evaluations[0], totals.evaluations[-1]
            assert (first.updates, first.seconds, first.version) == evaluations.row(0)[:3]
            assert (latest.updates, latest.seconds, latest.version) == evaluations.row(-1)[:3]
        assert snapshot.in_flight == len(made.run.in_flight)
        assert [flight.client for flight in snapshot.longest] == list(made.run.in_flight)[:40]
    width = totals.staleness.width
    assert list(totals.staleness.counts) == np.histogram(accepted["staleness"], bins=width * np.arange(65))[0].tolist()
    assert 150 < len(totals.evaluations) <= 301
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["live.json"]
    json.dumps(view("", {"run": Seen("running", snapshot=snapshot)}, ""), allow_nan=False)


def test_an_error_with_the_name_of_a_state_is_an_error(tmp_path: Path) -> None:
    made, writer = Made(), live.Live(tmp_path)
    writer.end(made.run, "never began")
    assert not (tmp_path / "live.json").exists()
    writer.tick(made.run, 1.0)
    for error in ("finished", "running", "interrupted"):
        writer.end(made.run, error)
        runs = Runs(tmp_path).look()
        shown = view("", runs, "")
        assert (shown["kind"], shown["standing"]) == ("failed", f"ended: {error}")
        assert 'fedfa_run_finished{run="."} 0' in metrics(runs)
    writer.end(made.run, None)
    assert view("", Runs(tmp_path).look(), "")["kind"] == "stopped"


def test_a_run_that_is_over_leaves_no_live_file(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    run = simulate(whole)
    seen: list[Snapshot] = []

    def look() -> bool:
        seen.append(written(parts))
        return True

    with pytest.raises(KeyboardInterrupt):
        simulate(parts, interrupted=look, stop=fedfa.Stop(updates=10**6))
    assert seen[0].state == "running"
    assert seen[0].in_flight == 10
    begun = written(parts)
    assert begun.state == Runs(parts).look()["."].state == "interrupted"
    records = shutil.copytree(parts, tmp_path / "records", ignore=shutil.ignore_patterns("live.json", "checkpoint.npz"))
    left = Runs(records).look()["."].snapshot
    assert left is not None
    assert left.state == "interrupted"
    assert left.totals.evaluations == begun.totals.evaluations
    simulate(parts, resume=True, stop=fedfa.Stop(updates=1))
    for folder in (whole, parts):
        assert not [path.name for path in folder.iterdir() if "live" in path.name]
    finished = live.over(run)
    assert finished == live.over(read_run(whole))
    assert finished.totals.outcomes["lost"] == (run.updates["outcome"] != "accepted").sum() > 0
    points = [(e.updates, e.seconds, e.version, e.accuracy, e.loss) for e in finished.totals.evaluations]
    assert points == list(run.evaluations.drop("step").iter_rows())


def test_a_run_goes_on_where_live_json_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "live.json").mkdir()
    made, writer = Made(), live.Live(tmp_path)
    writer.tick(made.run, 0.0)
    assert "live.json: cannot be written" in caplog.text
