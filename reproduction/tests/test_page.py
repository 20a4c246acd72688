"""What is written down of the records is what they say: the generated tables, and the page's own."""

import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import pytest

from fedfa.runs.run import Run
from fedfa_reproduction.base import Results, Section
from fedfa_reproduction.making import sections_of
from fedfa_reproduction.markdown import BEGIN, replaced
from fedfa_reproduction.measures import mean_accuracy, mean_change
from fedfa_reproduction.records import NAME
from fedfa_reproduction.selection import Selection, choose

ROOT = Path(__file__).parents[2]
PAGE, TABLES = Path("docs/reproduction.md"), Path("reproduction/tables.md")


class Shown(NamedTuple):
    command: str
    selection: Selection
    sections: list[Section]
    results: Results

    def runs(self, comparison: str, title: str) -> list[Run]:
        """Of five seeds."""
        first = next(runs for one, runs in self.results if one.name == comparison)
        found = [run for run in first if run.label == title]
        assert len(found) == 5, (comparison, title)
        return found

    def stands_at(self, comparison: str, title: str, span: float, by: float) -> str:
        return f"{100 * fmean(mean_accuracy(run, span, by) for run in self.runs(comparison, title)):.1f}"


@pytest.fixture(scope="module")
def shown() -> Iterator[Shown]:
    """The command that reproduction/tables.md names, and what it shows of the records."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("FEDFA_DATA", raising=False)
        patch.chdir(ROOT)
        command = TABLES.read_text().split(BEGIN)[1].split("```")[1].strip()
        words = shlex.split(command)
        assert [*words[:3], "--show" in words, "--data" in words] == ["fedfa", "paper", "all", True, False]
        given = {option: words[words.index(option) + 1] for option in ("--scale", "--seeds", "--out", "--markdown")}
        assert given["--markdown"] == str(TABLES)
        seeds = [int(seed) for seed in given["--seeds"].split(",")]
        folder = Path(given["--out"])
        selection = choose("all", scale=given["--scale"], tasks=None, seeds=seeds, folder=folder, only_show=True)
        yield Shown(command, selection, *sections_of(selection))


def test_the_tables_are_what_the_records_say(shown: Shown) -> None:
    study = shown.selection.study
    assert replaced(TABLES, study, shown.sections, shown.results, shown.command) == TABLES.read_text()


def test_every_recorded_run_can_be_read(shown: Shown) -> None:
    records = shown.selection.study.records
    for name, record in records.by_name.items():
        run = records.run(name)
        told = {"updates": len(run.accepted), "best_accuracy": run.best_accuracy, "final_accuracy": run.final_accuracy}
        assert told == record.results, name
        assert run.manifest[NAME] == name
        assert len(run.evaluations)


def test_the_page_shows_figures_of_the_records(shown: Shown) -> None:
    """Those in the repository are the ones that the page shows."""
    wanted = set(re.findall(r"reproduction/figures/([^)]+)\.png", PAGE.read_text()))
    drawn = {figure.name for section in shown.sections for figure in section.figures}
    assert wanted <= drawn
    assert all((Path("reproduction/figures") / f"{name}.png").is_file() for name in wanted)


def table_after(text: str, words: str) -> dict[str, list[str]]:
    """The first table after these words: cells by row, without emphasis and remarks."""
    lines = text[text.index(words) :].splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("|"))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in takewhile(is_row, lines[start + 2 :])]
    return {row[0].replace("*", "").replace("(= M_c)", "").strip(): row[1:] for row in rows}


def is_row(line: str) -> bool:
    return line.startswith("|")


def test_the_pages_standings_are_what_the_records_say(shown: Shown) -> None:
    """Where each strategy of the small CNN stands after 300 s and after 1,000 s."""
    written = table_after(PAGE.read_text(), "**The settings that make FedFa win.**")
    found = {}
    for row in written:
        title = row.replace("FedAsync, beta = 0.6", "FedAsync")
        mild, hard = ("iid", "noniid-same-time") if row == "FedAvg" else ("iid-rivals", "noniid-rivals")
        found[row] = [
            shown.stands_at(f"cifar10-cnn-{mild}", title, 45, by=300),
            shown.stands_at(f"cifar10-cnn-{hard}", title, 150, by=1000),
        ]
    assert written == found
    assert len(written) >= 9


def test_the_pages_windows_are_what_the_records_say(shown: Shown) -> None:
    windows = table_after(PAGE.read_text(), "**alpha = 0.1: a large window, and a step to match it.**")
    assert len(windows) >= 11
    titles = {"FedFa-Param": "K = {}", "FedFa-Agree": "K = {}, FedFa-Agree"}
    for row, cells in windows.items():
        name, _, window = row.rpartition(", ")
        comparison = f"cifar10-cnn-noniid-{'windows' if name in titles else 'same-time'}"
        title = titles[name].format(window) if name in titles else row.removesuffix(", 5")
        runs = shown.runs(comparison, title)
        best, jumps = fmean(run.best_accuracy for run in runs), fmean(mean_change(run) for run in runs)
        means = [shown.stands_at(comparison, title, 150, by) for by in (200, 400, 700, 1000)]
        assert cells[:6] == [*means, f"{100 * best:.1f}", f"{100 * jumps:.1f}"], row
