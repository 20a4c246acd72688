"""Fixtures for the tests of the reproduction."""

import shlex
from collections.abc import Iterator

import pytest

from fedfa_reproduction.making import sections_of
from fedfa_reproduction.markdown import BEGIN
from fedfa_reproduction.selection import choose
from reproduction_helpers import ROOT, TABLES, Shown


@pytest.fixture
def without_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder with data sets is named anywhere."""
    monkeypatch.delenv("FEDFA_DATA", raising=False)


@pytest.fixture(scope="session")
def recorded() -> Iterator[Shown]:
    """The command that reproduction/tables.md names, and what it shows of the records."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("FEDFA_DATA", raising=False)
        patch.chdir(ROOT)
        command = TABLES.read_text().split(BEGIN)[1].split("```")[1].strip()
        words = shlex.split(command)
        assert [*words[:3], "--show" in words, "--data" in words] == ["fedfa", "paper", "all", True, False]
        given = {option: words[words.index(option) + 1] for option in ("--scale", "--seeds", "--out", "--markdown")}
        assert ROOT / given["--markdown"] == TABLES
        seeds = [int(seed) for seed in given["--seeds"].split(",")]
        folder = ROOT / given["--out"]
        selection = choose("all", scale=given["--scale"], tasks=None, seeds=seeds, folder=folder, only_show=True)
        yield Shown(command, selection, *sections_of(selection))
