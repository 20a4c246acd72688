"""The command in the record, and the folder of a run."""

from pathlib import Path

import pytest

from fedfa.cli.console import command_typed, free_folder
from fedfa.experiments.config import load_experiment


def test_records_hold_no_local_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = "paper table1 --data /home/me/data --out /srv/out --set data.folder=/x --markdown=/srv/a.md --data=/y"
    monkeypatch.setattr("sys.argv", ["fedfa", *words.split(), "/home/me/b.toml", "--set", "local.lr=0.1"])
    assert command_typed() == (
        "fedfa paper table1 --data DIR --out out --set data.folder=DIR --markdown=a.md --data=DIR b.toml "
        "--set local.lr=0.1"
    )
    experiment = load_experiment(None, [f"data.folder={tmp_path}", "stop.updates=1"])
    experiment.run(tmp_path / "run", command=command_typed())
    assert all(str(tmp_path).encode() not in file.read_bytes() for file in (tmp_path / "run").iterdir())


def test_resume_finds_the_run_that_was_not_finished(tmp_path: Path) -> None:
    """A run without a report is unfinished; where all have one, the last run is meant."""
    first, second, third = (tmp_path / name for name in ("digits", "digits-2", "digits-3"))
    for folder in (first, second):
        folder.mkdir()
    (second / "report.html").touch()
    assert free_folder(first, resume=True) == first
    assert free_folder(first, resume=False) == third
    (first / "report.html").touch()
    assert free_folder(first, resume=True) == second
