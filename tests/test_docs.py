"""The Python examples in README and docs run as they stand, and what the docs name exists."""

import os
import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from fedfa.recipes.kitchen import Order, carry_out
from fedfa.recipes.lab import Results, Section
from fedfa.recipes.markdown import BEGIN, replaced

from fedfa.bench import choose
from fedfa.strategies.registry import STRATEGIES

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]


@pytest.mark.parametrize("code", EXAMPLES)
def test_examples_run(code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        exec(compile(code, "example", "exec"), {"__name__": "__main__"})
    finally:
        os.chdir(before)
    assert capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.fixture(scope="module")
def reproduction() -> Iterator[tuple[Path, str, Order, list[Section], Results]]:
    """docs/reproduction.md, the command that it names, and what that shows of reproduction/."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("FEDFA_DATA", raising=False)
        patch.chdir(ROOT)
        page = Path("docs/reproduction.md")
        command = page.read_text().split(BEGIN)[1].split("```")[1].strip()
        words = shlex.split(command)
        assert [*words[:3], "--show" in words, "--data" in words] == ["fedfa", "paper", "all", True, False]
        given = {option: words[words.index(option) + 1] for option in ("--scale", "--seeds", "--out", "--markdown")}
        assert given["--markdown"] == str(page)
        seeds = [int(seed) for seed in given["--seeds"].split(",")]
        folder = Path(given["--out"])
        order = choose("all", scale=given["--scale"], tasks=None, seeds=seeds, folder=folder, only_show=True)
        yield page, command, order, *carry_out(order)


def test_the_reproduction_is_what_the_records_say(reproduction: Any) -> None:
    """The generated part of the page, made anew from the records."""
    page, command, order, sections, results = reproduction
    assert replaced(page, order.recipes[0][1], sections, results, command) == page.read_text()


def table_after(text: str, words: str) -> dict[str, list[str]]:
    """The first table after these words: cells by row, without emphasis and remarks."""
    lines = text[text.index(words) :].splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("|"))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in takewhile(is_row, lines[start + 2 :])]
    return {row[0].replace("*", "").replace("(= M_c)", "").strip(): row[1:] for row in rows}


def is_row(line: str) -> bool:
    return line.startswith("|")


def test_the_settings_that_win_are_what_the_records_say(reproduction: Any) -> None:
    """The page's two hand-made tables of where strategies stand."""
    page, _, _, _, results = reproduction
    contests = {contest.name: runs for contest, runs in reversed(results)}  # of the same name: the first

    def standing(name: str, title: str, span: float, by: float) -> str:
        found = [run.level(span, by) for run in contests[name] if run.label == title]
        assert len(found) == 5, (name, title)
        return f"{100 * fmean(found):.1f}"

    shown = {}
    wins = table_after(page.read_text(), "**The settings that make FedFa win.**")
    for row in wins:
        title = row.replace("FedAsync, beta = 0.6", "FedAsync")
        mild, hard = ("iid", "noniid-same-time") if row == "FedAvg" else ("iid-rivals", "noniid-rivals")
        shown[row] = [
            standing(f"cifar10-cnn-{mild}", title, 45, by=300),
            standing(f"cifar10-cnn-{hard}", title, 150, by=1000),
        ]
    assert wins == shown
    assert len(wins) >= 9

    windows = table_after(page.read_text(), "**alpha = 0.1: a large window, and a step to match it.**")
    assert len(windows) >= 11
    named = {"FedFa-Param": "K = {}", "FedFa-Delta by agreement": "K = {}, FedFa-Delta"}
    for row, cells in windows.items():
        name, _, window = row.rpartition(", ")
        contest = f"cifar10-cnn-noniid-{'windows' if name in named else 'same-time'}"
        title = named[name].format(window) if name in named else row.removesuffix(", 5")
        runs = [run for run in contests[contest] if run.label == title]
        best, jumps = fmean(run.best_accuracy for run in runs), fmean(run.jumps() for run in runs)
        levels = [standing(contest, title, 150, by) for by in (200, 400, 700, 1000)]
        assert cells[:6] == [*levels, f"{100 * best:.1f}", f"{100 * jumps:.1f}"], row


def test_every_strategy_is_documented() -> None:
    for page in (ROOT / "README.md", ROOT / "docs" / "strategies.md"):
        text = page.read_text()
        assert [name for name in STRATEGIES if f"`{name}`" not in text] == []
