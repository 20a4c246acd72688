"""The page that recipes end in: our numbers beside the paper's, from top to bottom."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from fedfa.record import atomic, machine
from fedfa.report.grid import Grid
from fedfa.report.page import assemble, figure_html
from fedfa_reproduction.base import Results, Section
from fedfa_reproduction.descriptions import introduction
from fedfa_reproduction.study import Study


def write_page(
    study: Study, sections: Sequence[Section], results: Results, name: str, command: str, *, with_files: bool
) -> Path:
    """Write NAME.html into the study's folder; ``with_files``: its figures lie there as files, too."""
    figures = [figure for section in sections for figure in section.figures]
    title = sections[0].title if len(sections) == 1 else "The FedFa paper's tables and figures"
    about = f'<p class="about">{escape(introduction(study))}</p>'
    body = [f"<h1>{escape(title)}</h1>", about, _contents(sections)]
    body += [_section(section, alone=len(sections) == 1, with_files=with_files) for section in sections]
    body += [_names(results), _made_with(command)]
    page = study.folder / f"{name}.html"
    with atomic(page) as file:
        file.write(assemble(title, body, figures).encode())
    return page


def _contents(sections: Sequence[Section]) -> str:
    if len(sections) == 1:
        return ""
    links = "".join(f'<li><a href="#about-{s.name}">{escape(s.title)}</a></li>' for s in sections)
    return f"<nav><ul>{links}</ul></nav>"


def _section(section: Section, *, alone: bool, with_files: bool) -> str:
    heading = "" if alone else f'<h2 id="about-{section.name}">{escape(section.title)}</h2>'
    text = "".join(f'<p class="about">{escape(line)}</p>' for line in section.text if line)
    tables = "".join(grid.as_html() for grid in section.grids)
    figures = "".join(figure_html(figure, heading="h3", files=with_files) for figure in section.figures)
    return f"<section>{heading}{text}{tables}{figures}</section>"


def _names(results: Results) -> str:
    grid = names(results)
    return f"<section>{grid.as_html()}</section>" if grid.rows else ""


def names(results: Results) -> Grid:
    """What to type for each strategy of the tables."""
    seen = {(c.title, c.spec): None for comparison, _ in results for c in comparison.contenders}
    return Grid("What the names stand for", ("Name", "fedfa compare --strategies"), list(seen))


def _made_with(command: str) -> str:
    versions = ", ".join(f"{key} {value}" for key, value in machine().items())
    return f"<section><h3>Made by</h3><pre>{escape(command)}</pre><p class='caption'>{escape(versions)}</p></section>"
