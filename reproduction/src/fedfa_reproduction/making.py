"""Carries out a selection: makes the missing runs, and the page that shows them."""

import math
from dataclasses import replace
from pathlib import Path

from fedfa.report.static import save
from fedfa_reproduction.base import Results, Section
from fedfa_reproduction.markdown import write_markdown
from fedfa_reproduction.page import write_page
from fedfa_reproduction.queue import Progress, carry_out
from fedfa_reproduction.selection import Selection
from fedfa_reproduction.study import no_progress


def make(
    selection: Selection,
    *,
    command: str = "",
    jobs: int | None = None,
    progress: Progress = no_progress,
    until: float = math.inf,
    markdown: Path | None = None,
    draw: bool = True,
) -> tuple[Path, list[Section]]:
    """Make the missing runs, while there is time, and the page; returns it with its content.

    ``markdown``: a file for the same tables. ``draw``: write the figures as files, too.
    """
    sections, results = sections_of(selection, command=command, jobs=jobs, progress=progress, until=until)
    study = selection.study
    if draw:
        for figure in (figure for section in sections for figure in section.figures):
            save(figure, study.folder / "figures")
    page = write_page(study, sections, results, selection.name, command, with_files=draw)
    if markdown is not None:
        write_markdown(markdown, study, sections, results, command)
    return page, sections


def sections_of(
    selection: Selection,
    *,
    command: str = "",
    jobs: int | None = None,
    progress: Progress = no_progress,
    until: float = math.inf,
) -> tuple[list[Section], Results]:
    """The sections of the recipes, and their runs."""
    study = selection.study
    results = carry_out(study, selection.comparisons, command=command, jobs=jobs, progress=progress, until=until)
    left = list(results)
    sections = []
    for one in selection.chosen:
        own, left = left[: len(one.comparisons)], left[len(one.comparisons) :]
        seeds = sorted({run.seed for _, runs in own for run in runs})
        sections.append(replace(one.recipe.show(one.study, own), seeds=seeds))
    return sections, results
