"""Commands that other packages bring."""

from functools import partial
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest

from fedfa.cli import elsewhere, main


def test_a_command_of_another_package_gets_all_its_arguments(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A package names a function under ``fedfa.commands``; its options, ``--help`` among them, are its own."""
    package = tmp_path / "other_package-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: other_package\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[fedfa.commands]\npaper = other_package:paper\n")
    (tmp_path / "other_package.py").write_text(
        "def paper(name: str, loud: bool = False) -> None:\n    print(name, loud)\n"
    )
    monkeypatch.setattr(elsewhere, "entry_points", partial(found_in, tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    for words, expected in ((["table1", "--loud"], "table1 True\n"), (["--help"], "Usage: fedfa paper [OPTIONS] NAME")):
        monkeypatch.setattr("sys.argv", ["fedfa", "paper", *words])
        main()
        assert expected in capsys.readouterr().out


def found_in(folder: Path, *, group: str, name: str) -> Any:
    """Entry points, of the packages in this folder alone."""
    points = (point for one in distributions(path=[str(folder)]) for point in one.entry_points)
    return [point for point in points if (point.group, point.name) == (group, name)]


def test_a_command_that_is_not_installed_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(elsewhere, "entry_points", partial(found_in, tmp_path))
    monkeypatch.setattr("sys.argv", ["fedfa", "paper", "table1", "--scale", "full"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert capsys.readouterr().err == (
        "fedfa: paper: not installed; it comes with the reproduction of the paper; from a checkout: "
        "pip install ./reproduction\n"
    )
