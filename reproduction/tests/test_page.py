"""The generated tables are what the records say, and the figures in the repository are those that a page shows."""

import re
from pathlib import Path

from fedfa_reproduction.markdown import replaced
from fedfa_reproduction.records import NAME
from reproduction_helpers import ROOT, TABLES, Shown

PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("reproduction/*.md")]


def test_the_tables_are_what_the_records_say(recorded: Shown) -> None:
    study = recorded.selection.study
    assert replaced(TABLES, study, recorded.sections, recorded.results, recorded.command) == TABLES.read_text()


def test_every_recorded_run_can_be_read(recorded: Shown) -> None:
    records = recorded.selection.study.records
    for name, record in records.by_name.items():
        run = records.run(name)
        told = {"updates": len(run.accepted), "best_accuracy": run.best_accuracy, "final_accuracy": run.final_accuracy}
        assert told == record.results, name
        assert run.manifest[NAME] == name
        assert len(run.evaluations)


def test_the_repository_has_the_figures_that_pages_show(recorded: Shown) -> None:
    shown = {
        Path(name).name for page in PAGES for name in re.findall(r"reproduction/figures/([^)]+\.png)", page.read_text())
    }
    drawn = {f"{figure.name}.png" for section in recorded.sections for figure in section.figures}
    assert len(shown) == 3
    assert shown <= drawn
    assert shown <= {path.name for path in (ROOT / "reproduction" / "figures").iterdir()}


def test_the_page_is_read_in_two_minutes() -> None:
    page = (ROOT / "docs" / "reproduction.md").read_text()
    assert len(page.split()) <= 1500
