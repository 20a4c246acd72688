"""``fedfa run``, ``compare`` and ``report``, and what is wrong with them in one line."""

import json
from pathlib import Path

import pytest

from tests.helpers.commands import QUICK, CommandLine, call, last_json


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


def test_compare_prints_and_resumes(tmp_path: Path) -> None:
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
def test_wrong_input_is_refused_in_one_line_and_nothing_is_written(
    words: list[str], message: str, command_line: CommandLine, tmp_path: Path
) -> None:
    refusal = command_line.refusal(*words)
    assert message in refusal
    assert refusal.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_report_of_a_folder_without_runs_is_refused_in_one_line(tmp_path: Path) -> None:
    assert "no such folder" in call("report", "nowhere", cwd=tmp_path, ok=2).stderr
    (tmp_path / "empty").mkdir()
    assert "empty: holds no run; give a folder" in call("report", "empty", cwd=tmp_path, ok=1).stderr
    (tmp_path / "empty" / "checkpoint.npz").touch()
    assert "go on with the command that began it, and --resume" in call("report", "empty", cwd=tmp_path, ok=1).stderr
    (tmp_path / "empty" / "manifest.json").write_text("{}")
    message = call("report", "empty", cwd=tmp_path, ok=1).stderr
    assert message.startswith("fedfa: empty: cannot be read (its manifest.json is not that of a run)")


def test_a_folder_that_cannot_be_written_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for words in (["run"], ["compare", "--strategies", "fedavg", "--seeds", "0"]):
        message = call(*words, *QUICK, "--out", "file/x", cwd=tmp_path, ok=1).stderr
        assert message.startswith("fedfa: file")
        assert message.endswith("Not a directory; choose another place, or make room there\n")
        assert message.count("\n") == 1
