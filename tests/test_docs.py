"""The Python examples in README and docs run as they stand, and what the docs name exists."""

import os
import re
import shlex
from pathlib import Path

import pytest

from fedfa.recipes.kitchen import carry_out, choose
from fedfa.recipes.markdown import BEGIN, replaced
from fedfa.strategies import BY_NAME

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


def test_the_reproduction_is_what_the_records_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """The generated part of docs/reproduction.md, made anew from reproduction/ by the command that it names."""
    monkeypatch.delenv("FEDFA_DATA", raising=False)
    monkeypatch.chdir(ROOT)
    page = Path("docs/reproduction.md")
    command = page.read_text().split(BEGIN)[1].split("```")[1].strip()
    words = shlex.split(command)
    assert [*words[:3], "--show" in words, "--data" in words] == ["fedfa", "paper", "all", True, False]
    given = {option: words[words.index(option) + 1] for option in ("--scale", "--seeds", "--out", "--markdown")}
    assert given["--markdown"] == str(page)
    seeds = [int(seed) for seed in given["--seeds"].split(",")]
    order = choose("all", scale=given["--scale"], tasks=None, seeds=seeds, folder=Path(given["--out"]), only_show=True)
    sections, results = carry_out(order)
    assert replaced(page, order.recipes[0][1], sections, results, command) == page.read_text()


def test_every_strategy_is_documented() -> None:
    for page in (ROOT / "README.md", ROOT / "docs" / "strategies.md"):
        text = page.read_text()
        assert [name for name in BY_NAME if f"`{name}`" not in text] == []
