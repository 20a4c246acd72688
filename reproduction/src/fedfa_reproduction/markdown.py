"""The same tables as a part of a Markdown file, whose other parts are written by hand."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from fedfa.errors import ConfigError, require
from fedfa.files import atomic
from fedfa.report.grid import Grid
from fedfa.runs.run import Run
from fedfa_reproduction.base import Results, Section
from fedfa_reproduction.cells import NOT_RUN
from fedfa_reproduction.descriptions import introduction
from fedfa_reproduction.page import names
from fedfa_reproduction.plan import with_begun
from fedfa_reproduction.records import INDEX, NAME, RECORDS
from fedfa_reproduction.study import Study

BEGIN, END = "<!-- fedfa paper: begin -->", "<!-- fedfa paper: end -->"
SEEDS = "Seeds"
"""The column that says that a row was not run."""


def check_markdown(file: Path) -> None:
    """Check before anything runs that the file can be written and has the markers."""
    _around(file)


def write_markdown(file: Path, study: Study, sections: Sequence[Section], results: Results, command: str) -> None:
    """Replace the text between the markers; a new file contains only the markers and that text."""
    with_text = replaced(file, study, sections, results, command)
    with atomic(file) as handle:
        handle.write(with_text.encode())


def replaced(file: Path, study: Study, sections: Sequence[Section], results: Results, command: str) -> str:
    """The file's new text."""
    before, after = _around(file)
    parts = [f"{introduction(study)} Everything between the two markers is made by:", f"```\n{command}\n```"]
    for section in sections:
        parts += [f"## {section.title}", f"`{_command_for(section, study)}`", *filter(None, section.text)]
        parts += [part for grid in section.grids for part in _folded(grid)]
    shown = {run.manifest[NAME] for _, own in with_begun(study, results) for run in own}
    runs = [study.records.run(name) for name in shown]
    parts += ["## The runs", _about_runs(runs), names(results).as_markdown()]
    return "\n\n".join([f"{before}{BEGIN}", *parts, f"{END}{after}"])


def _folded(grid: Grid) -> Iterator[str]:
    """A table, with the rows that were not run in one line below it."""
    column = grid.headers.index(SEEDS) if SEEDS in grid.headers else None
    not_run = [row for row in grid.rows if column is not None and row[column] == NOT_RUN]
    rows = [row for row in grid.rows if row not in not_run]
    if not rows:
        yield f"### {grid.title}"
        yield f"{NOT_RUN.capitalize()}."
        return
    yield replace(grid, rows=rows).as_markdown()
    if not_run:
        yield f"{NOT_RUN.capitalize()}: {'; '.join(row[0] for row in not_run)}."


def _around(file: Path) -> tuple[str, str]:
    """The text before and after the markers."""
    if not file.exists():
        return "", "\n"
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--markdown {file}: cannot be read ({error}); give a text file") from error
    good = text.count(BEGIN) == text.count(END) == 1 and text.index(BEGIN) < text.index(END)
    require(good, f"--markdown {file}: must hold the lines {BEGIN} and {END} once; what is between them is replaced")
    return text[: text.index(BEGIN)], text[text.index(END) + len(END) :]


def _command_for(section: Section, study: Study) -> str:
    seeds = sorted({*study.seeds, *section.seeds})
    words = ["fedfa", "paper", section.name, "--scale", study.scale, "--seeds", ",".join(map(str, seeds))]
    for text in study.overrides:
        words += [] if text.startswith("data.folder=") else ["--set", text]
    return f"{shlex.join(words)} --data DIR"


def _about_runs(runs: Sequence[Run]) -> str:
    """The number of runs in the tables, their time, and their machines."""
    if not runs:
        return "None is there yet."
    spent = sum(run.manifest["wall_seconds"] for run in runs)
    machines = sorted({_machine(run) for run in runs})
    told = f"{len(runs)} runs, {spent / 60:,.1f} minutes of computing, on: {'; '.join(machines)}."
    return f"{told} Each has a row in `{RECORDS}/{INDEX}`."


def _machine(run: Run) -> str:
    return ", ".join(f"{key} {value}" for key, value in run.manifest["machine"].items() if key != "commit")
