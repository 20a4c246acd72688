"""The commit of the source that runs."""

import subprocess
from pathlib import Path

import pytest

import fedfa
from fedfa.runs.source import source_commit


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


def test_a_changed_package_is_marked_as_dirty(package: Path) -> None:
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
