"""The pages with measured figures say what benchmarks/results/*.json says, and no more than one reads."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.scripts import loaded

ROOT = Path(__file__).parents[2]
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
MOST_WORDS = 1500


@pytest.fixture(scope="module")
def tables() -> Any:
    return loaded(ROOT / "benchmarks" / "tables.py")


def test_the_pages_are_up_to_date(tables: Any) -> None:
    """If this fails: python benchmarks/tables.py"""
    for page in tables.PAGES:
        text = page.read_text("utf8")
        assert text == tables.filled(text), page
    named = {name for page in tables.PAGES for _, name, _ in tables.BLOCK.findall(page.read_text("utf8"))}
    assert named == set(tables.TABLES)


def test_the_page_is_short() -> None:
    assert len((ROOT / "benchmarks" / "README.md").read_text("utf8").split()) <= MOST_WORDS


@pytest.mark.parametrize("file", RESULTS, ids=lambda file: file.stem)
def test_every_file_says_where_it_comes_from(file: Path) -> None:
    found = json.loads(file.read_text("utf8"))
    assert re.match(r"(fedfa bench|python benchmarks/)", found["command"])
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", found["date"])
    assert {"cpus", "python", "torch"} <= set(found["machine"])
    assert list(found["measurements"]) == [file.stem]
    for row in found["measurements"][file.stem]:
        assert row["ratio"] == pytest.approx(row["ours"] / row["baseline"])


def test_the_readme_states_the_worst_cell(tables: Any) -> None:
    cells = json.loads((ROOT / "benchmarks" / "results" / "grid.json").read_text("utf8"))["measurements"]["grid"]
    section = (ROOT / "README.md").read_text("utf8").split("## Why it is fast")[1].split("\n## ")[0]
    section = " ".join(section.split())
    worst, best = min(cells, key=lambda row: row["ratio"]), max(cells, key=lambda row: row["ratio"])
    assert f"{worst['ratio']:.2f} to {best['ratio']:.2f} times as fast over {len(cells)} cells" in section
    assert f"The worst: {worst['case']}." in section


def test_the_worst_cell_comes_first_and_stands_beside_the_others_of_its_row(
    tables: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cell(model: str, sizes: str, ratio: float) -> dict[str, Any]:
        details = {
            "model": model, "sizes": sizes, "strategy": "FedAvg, 10 in flight", "optimizer": "sgd", "first_ratio": 0.5,
            "auto_takes": "inline", "auto_of_best": 1.0,
        }  # fmt: skip
        return {"case": model, "ratio": ratio, "details": details}

    cells = [cell("B", "1 to 15", 0.9), cell("A", "lognormal", 1.5), cell("A", "all 32", 2.0), cell("B", "all 8", 3.0)]
    where = {"command": "fedfa bench grid", "date": "2026-01-01", "machine": {"cpus": 2, "cpu": "x", "torch": "2"}}
    monkeypatch.setattr(tables, "kept", lambda name: where | {"measurements": {name: cells}})
    lines = tables.grid()
    assert lines[0].startswith("4 cells: 0.90 to 3.00 times the loop, median 1.75; slower than the loop in 1.")
    first, second = lines[lines.index("") + 3 :][:2]
    assert first == "B |FedAvg:10 |3.00 (0.50) |0.90 (0.50) |– |inline"
    assert second == "A |FedAvg:10 |2.00 (0.50) |– |1.50 (0.50) |inline"
