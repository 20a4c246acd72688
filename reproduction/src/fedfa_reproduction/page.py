"""The page with the results of recipes: our numbers beside the paper's."""

from collections.abc import Sequence
from pathlib import Path

from fedfa.files import atomic
from fedfa.report.grid import Grid
from fedfa.report.page import offline_page
from fedfa.report.templates import templates
from fedfa.runs.machine import machine
from fedfa_reproduction.base import Results, Section
from fedfa_reproduction.descriptions import introduction
from fedfa_reproduction.study import Study


def write_page(
    study: Study, sections: Sequence[Section], results: Results, name: str, command: str, *, with_files: bool
) -> Path:
    """Write NAME.html into the study's folder; ``with_files``: its figures are there as files, too."""
    text = offline_page(
        templates("fedfa_reproduction").get_template("recipes.html"),
        title=sections[0].title if len(sections) == 1 else "The FedFa paper's tables and figures",
        figures=[figure for section in sections for figure in section.figures],
        introduction=introduction(study),
        sections=sections,
        names=names(results),
        command=command,
        versions=", ".join(f"{key} {value}" for key, value in machine().items()),
        with_files=with_files,
    )
    page = study.folder / f"{name}.html"
    with atomic(page) as file:
        file.write(text.encode())
    return page


def names(results: Results) -> Grid:
    """The command-line spec of each strategy in the tables."""
    seen = {(c.title, c.spec): None for comparison, _ in results for c in comparison.contenders}
    return Grid("What the names stand for", ("Name", "fedfa compare --strategies"), list(seen))
