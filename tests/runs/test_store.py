"""What a run leaves behind: how it ended, how far it went, which source made it, and no path of the machine."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import fedfa
from fedfa.cli.console import command_typed
from fedfa.errors import ConfigError
from fedfa.experiments.config import load_experiment
from fedfa.runs.run import INTERRUPTED, Run
from fedfa.runs.source import source_commit
from fedfa.runs.store import find_runs, read_run, write_run


def test_of_an_interrupted_run_the_longest_is_kept(tmp_path: Path) -> None:
    def so_far(updates: int) -> Run:
        done = fedfa.simulate("fedfa-param", stop={"updates": updates})
        return replace(done, manifest=done.manifest | {"ended": INTERRUPTED, "fingerprint": "same"})

    for updates, kept in ((20, 20), (10, 20), (30, 30)):
        write_run(tmp_path, so_far(updates))
        assert len(read_run(tmp_path, or_unfinished=True).updates) == kept
    other = so_far(5)
    write_run(tmp_path, replace(other, manifest=other.manifest | {"fingerprint": "of other settings"}))
    assert len(read_run(tmp_path, or_unfinished=True).updates) == 5
    with pytest.raises(fedfa.RecordError, match="holds an unfinished run"):
        read_run(tmp_path)
    (only,) = find_runs(tmp_path)
    assert only.label == "fedfa-param (unfinished)"


def test_a_run_that_has_diverged_ends_early(tmp_path: Path) -> None:
    """No evaluation (every 10 updates) reaches 99 % for 35 updates in a row: seen at the 40th."""
    stop = {"updates": 100, "diverged_below": 0.99, "diverged_updates": 35}
    run = fedfa.simulate("fedfa-param", stop=stop, out=tmp_path / "run")
    assert run.manifest["ended"] == "diverged: accuracy below 0.99 for 40 updates"
    assert len(run.accepted) == 40
    assert fedfa.simulate("fedfa-param", stop=stop, out=tmp_path / "run", resume=True).manifest == run.manifest
    easy = fedfa.simulate("fedfa-param", stop=stop | {"diverged_below": 0.01})
    assert easy.manifest["ended"] == "updates"
    with pytest.raises(ConfigError, match="goes with diverged_updates"):
        fedfa.simulate("fedavg", stop={"updates": 1, "diverged_below": 0.1})
    with pytest.raises(ConfigError, match="set at least one of updates, seconds, accuracy, wall_seconds"):
        fedfa.simulate("fedavg", stop={"diverged_below": 0.1, "diverged_updates": 5})


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


# The commit ----------------------------------------------------------------------------------------------------------


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=me", "-c", "user.email=me@example.org")
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package in a checkout of its own, with one commit."""
    package = tmp_path / "src" / "fedfa"
    package.mkdir(parents=True)
    (package / "core.py").write_text("one = 1\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    return package


def test_the_commit_is_that_of_the_checkout(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = git(package, "rev-parse", "HEAD")
    (package.parent.parent / "notes.md").write_text("not the package's\n")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert source_commit(package) == commit
    assert len(commit) == 40


def test_a_changed_package_is_told(package: Path) -> None:
    (package / "core.py").write_text("one = 2\n")
    assert source_commit(package) == f"{git(package, 'rev-parse', 'HEAD')}-dirty"


def test_without_a_checkout_or_git_there_is_no_commit(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert source_commit(tmp_path / "lib" / "site-packages" / "fedfa") is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert source_commit(package) is None


def test_every_manifest_names_version_and_commit(tmp_path: Path) -> None:
    machine = fedfa.simulate("fedavg", stop={"updates": 1}, out=tmp_path / "run").manifest["machine"]
    assert machine["fedfa"] == fedfa.__version__
    assert machine["commit"] == source_commit()
