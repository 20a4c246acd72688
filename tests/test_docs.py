"""The Python examples in README and docs run as they stand, and what the docs name exists."""

import os
import re
from pathlib import Path

import pytest

from fedfa.strategies.registry import STRATEGIES

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "reproduction").glob("*.md"))]
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


def test_every_strategy_is_documented() -> None:
    for page in (ROOT / "README.md", ROOT / "docs" / "strategies.md"):
        text = page.read_text()
        assert [name for name in STRATEGIES if f"`{name}`" not in text] == []
